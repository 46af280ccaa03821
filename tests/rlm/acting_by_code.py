"""Runs sessions whose model acts by code, with leaves that answer by a rule."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
from msgspec import Raw

from refold.agents.profile import CodeLimits
from refold.engine.policies.code_only import code_or_final
from refold.engine.policies.conversation import converse, final
from refold.engine.policies.step_limit import at_most, going_on
from refold.engine.policies.turn_end import after_a_stop, continue_cut_response, stopping
from refold.engine.world import Model, World
from refold.errors import ProviderError
from refold.journal.events import codec
from refold.journal.events.kinds import Entry, Event, Reserved, Settled
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryStore, Store
from refold.permissions.rules import parse
from refold.provider.port import Delta, Done, Provider, Request, Stop, TextDelta
from refold.provider.text_protocol.code_acting import CodeActing
from refold.rlm.initial_variables import InitialVariables
from refold.rlm.memo import Kind, SessionMemo
from refold.rlm.rate_limit import RateLimit
from refold.rlm.repl import Repl, ReplLimits
from refold.rlm.worker_port import WorkerKeeper, Workers
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.testing.providers import StrictProvider
from refold.tools.python_tool import python
from refold.values.messages import ToolResult
from refold.values.usage import Usage
from tests.engine.worlds import world_with
from tests.rlm.in_process import InProcessWorkers

LEASH = CodeLimits(fan_out=50, at_once=8, depth=1, cell=120, call=120)
POLICIES = (
    stopping, code_or_final, final, at_most(25, warn=1), continue_cut_response(3, code=True),
    going_on, after_a_stop, converse,
)  # fmt: skip
Rule = Callable[[str], str]


class Leaf:
    """A model that computes its answer from the message by a rule, and records its requests.

    The first `broken` requests fail. `stop` is the reason why each response ends.
    """

    def __init__(
        self, rule: Rule, seconds: float = 0.0, broken: int = 0, stop: Stop = "end"
    ) -> None:
        self._rule, self._seconds, self._broken = rule, seconds, broken
        self._stop: Stop = stop
        self.heard: list[Request] = []
        self.at_once = self._now = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.heard.append(request)
        if self._broken:
            self._broken -= 1
            raise ProviderError("the line is down")
        self._now += 1
        self.at_once = max(self.at_once, self._now)
        try:
            await anyio.sleep(self._seconds)
        finally:
            self._now -= 1
        yield TextDelta(self._rule(request.messages[-1].message.text))
        yield Done(Usage(fresh=100, output=10), stop=self._stop)


def as_code(*cells: str) -> str:
    return "\n\n".join(f"```python\n{cell}\n```" for cell in cells)


class CodeSession:
    """The parts of a session, from which a second session can continue."""

    def __init__(
        self,
        model: Provider,
        leaf: Provider,
        *,
        store: Store | None = None,
        workers: Workers | None = None,
        repl_options: dict[str, Any] | None = None,
        memo: Kind = "off",
        **world: Any,
    ) -> None:
        self.store: Any = store or MemoryStore()
        self.native = False  # whether the model makes calls of its own, not code in text
        self.model: Any = model
        self.leaf: Any = leaf
        self.workers: Any = workers or InProcessWorkers()
        self._repl_options, self._memo = repl_options or {}, memo
        self._house = {"seen": world.pop("seen", [])}
        self._tools, self._world = world.pop("tools", ()), world

    async def session(self) -> Session:
        record = Recorder(self.store, clock=lambda: 0.0)
        memo = SessionMemo(record) if self._memo == "session" else None
        every: dict[str, Any] = {"code_limits": LEASH, "rate": RateLimit(), "memo": memo}
        limits = ReplLimits(**{**every, **self._repl_options})
        keeper = WorkerKeeper(self.workers)
        repl = Repl(record, lambda: world, keeper, limits)
        world = World(
            Model(self.model if self.native else CodeActing(StrictProvider(self.model))),
            (python, *self._tools),
            POLICIES,
            (parse("python", "allow"), parse("peek", "allow")),
            tool_dependencies={"repl": repl, **self._house},
            helper_model=lambda: Model(self.leaf, "test/leaf", 1_000_000, _price),
            background=keeper.background,
        )
        world = world_with(world, **self._world)
        return await Session.open(record, lambda _: world)

    async def turn(self, text: str = "Go.") -> View:
        session = await self.session()
        if text:
            await session.inbox.say(text)
        return await session.run_turns()

    def run(self, text: str = "Go.") -> View:
        return anyio.run(self.turn, text)

    @property
    def entries(self) -> list[Entry]:
        return [entry for entry, _ in codec.decode(self.store.lines)]

    def events(self, kind: type[Event]) -> list[Any]:
        return [e.event for e in self.entries if isinstance(e.event, kind)]

    @property
    def leaves(self) -> tuple[list[Reserved], list[Settled]]:
        return self.events(Reserved), self.events(Settled)


def _price(model: str, usage: Usage) -> float:
    return 0.01


def observations(view: View) -> list[str]:
    """Return the results of its code that the model read."""
    results = [s.message for s in view.conversation.messages if s.message.role == "tool"]
    parts = (part for message in results for part in message.parts)
    return [part.text for part in parts if isinstance(part, ToolResult)]


def material(**values: object) -> dict[str, Any]:
    return {"initial_variables": InitialVariables(values)}


def shape(text: str) -> Raw:
    return Raw(text.encode())
