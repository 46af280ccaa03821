"""Makes a small world for tests, with two tools and a scripted model, and runs sessions in it."""

from collections.abc import Iterable, Sequence
from typing import Any

import anyio
from msgspec import Raw

from refold.engine.policies.conversation import converse, final
from refold.engine.policies.plan_mode import in_plan_mode, plan_ready
from refold.engine.policies.step_limit import at_most, going_on
from refold.engine.policies.stuck import not_refused, not_stuck
from refold.engine.policies.turn_end import after_a_stop, continue_cut_response, stopping
from refold.engine.world import Model, World
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import Entry, Event, SessionStarted
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryStore, Store
from refold.permissions.rules import parse
from refold.provider.port import Provider
from refold.session.recorder import Recorder
from refold.session.redactor import Redactor
from refold.session.session import Session
from refold.testing.providers import StrictProvider
from refold.tools.contract import Reply, tool
from refold.values.tools import Effect
from tests.engine.worlds import world_with

POLICIES = (
    stopping, plan_ready, final, not_refused(3), at_most(5, warn=1), continue_cut_response(3), *not_stuck(3),
    going_on, after_a_stop, in_plan_mode("default"), converse,
)  # fmt: skip
OPEN_HAND = (parse("book", "allow"),)

WEATHER = ("weather", '{"city": "Oslo"}')
BOOK = ("book", '{"what": "taxi"}')


@tool(Effect.LOOK)
async def weather(city: str) -> Reply:
    """Say what the weather is."""
    return Reply(f"rain in {city}")


@tool(Effect.RUN)
async def book(what: str, *, orders: list[str]) -> Reply:
    """Order something."""
    orders.append(what)
    return Reply(f"{what} ordered")


def world(provider: Provider, orders: list[str] | None = None, **fields: Any) -> World:
    house = {"orders": [] if orders is None else orders}
    plain = World(
        Model(StrictProvider(provider)),
        (weather, book),
        POLICIES,
        OPEN_HAND,
        tool_dependencies=house,
    )
    return world_with(plain, **fields)


async def open_session(store: Store, world: World, secrets: Sequence[str] = ()) -> Session:
    record = Recorder(store, masks=Redactor(secrets), clock=lambda: 0.0)
    return await Session.open(record, lambda _: world)


async def converse_once(store: Store, world: World, *text: str) -> View:
    session = await open_session(store, world)
    for word in text:
        await session.inbox.say(word)
    return await session.run_turns()


def run(store: Store, world: World, *text: str) -> View:
    return anyio.run(converse_once, store, world, *text)


def entries(store: MemoryStore) -> list[Entry]:
    return [entry for entry, _ in codec.decode(store.lines)]


def kinds(store: MemoryStore) -> str:
    return " ".join(type(entry.event).__name__ for entry in entries(store))


def lines(events: Iterable[Event]) -> Sequence[bytes]:
    head, chunks = Head(), list[bytes]()
    for seq, event in enumerate(events, start=1):
        line, head = codec.encode(Entry(seq, event), head)
        chunks.append(line)
    return chunks


def raw(text: str) -> Raw:
    return Raw(text.encode())


def after_start(*events: Event) -> list[Event]:
    return [SessionStarted("/"), *events]
