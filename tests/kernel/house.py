"""A small world for the tests: two tools, a model with a script, and helpers."""

from collections.abc import Iterable, Sequence
from typing import Any

import anyio
from msgspec import Raw

from refold.engine.policies.continuation import joined_up
from refold.engine.policies.converse import converse
from refold.engine.policies.final import final
from refold.engine.policies.planning import in_plan_mode, plan_ready
from refold.engine.policies.refusals import not_refused
from refold.engine.policies.step_limit import at_most, going_on
from refold.engine.policies.stopping import after_a_stop, stopping
from refold.engine.policies.stuck import not_stuck
from refold.engine.world import Mind, World
from refold.journal import codec
from refold.journal.codec import Head
from refold.journal.events import Entry, Event, SessionStarted
from refold.journal.fold import View
from refold.journal.store import MemoryStore, Store
from refold.permissions.rules import parse
from refold.provider.port import Provider
from refold.session.recorder import Recorder
from refold.session.secrets import Masks
from refold.session.session import Session
from refold.testing.strict import StrictProvider
from refold.testing.worlds import world_with
from refold.tools.contract import Reply, tool
from refold.values.tools import Effect

POLICIES = (
    stopping, plan_ready, final, not_refused(3), at_most(5, warn=1), joined_up(3), *not_stuck(3),
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


def world(provider: Provider, orders: list[str] | None = None, **more: Any) -> World:
    house = {"orders": [] if orders is None else orders}
    plain = World(
        Mind(StrictProvider(provider)), (weather, book), POLICIES, OPEN_HAND, house=house
    )
    return world_with(plain, **more)


async def opened(store: Store, given: World, secrets: Sequence[str] = ()) -> Session:
    record = Recorder(store, masks=Masks(secrets), clock=lambda: 0.0)
    return await Session.open(record, lambda _: given)


async def converse_once(store: Store, given: World, *words: str) -> View:
    session = await opened(store, given)
    for said in words:
        await session.inbox.say(said)
    return await session.go()


def run(store: Store, given: World, *words: str) -> View:
    return anyio.run(converse_once, store, given, *words)


def entries(store: MemoryStore) -> list[Entry]:
    return [entry for entry, _ in codec.decode(store.lines)]


def kinds(store: MemoryStore) -> str:
    return " ".join(type(entry.event).__name__ for entry in entries(store))


def lines(events: Iterable[Event]) -> Sequence[bytes]:
    head, made = Head(), list[bytes]()
    for seq, event in enumerate(events, start=1):
        line, head = codec.encode(Entry(seq, event), head)
        made.append(line)
    return made


def raw(text: str) -> Raw:
    return Raw(text.encode())


def started(*events: Event) -> list[Event]:
    return [SessionStarted("/"), *events]
