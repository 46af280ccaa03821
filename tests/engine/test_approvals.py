"""What ran is what was shown and approved, once, whatever happens in between.

Links are changed underneath; answers come twice, late, for another call or for an earlier
version; the process dies; no answer comes. The tests do not wait: the clock jumps.
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from msgspec import Struct

from refold.engine.calls import NOBODY_TO_ASK
from refold.engine.world import World
from refold.journal.events.kinds import Answered, Ended, Judged
from refold.journal.store.port import MemoryStore
from refold.permissions.facts import Facts
from refold.session.pending_requests import Permission, requests
from refold.session.recorder import Recorder
from refold.session.session import Session, SessionOptions
from refold.testing.providers import Line, ScriptedProvider
from refold.tools.contract import Reply, tool
from refold.values.tools import Effect
from tests.engine.house import entries, world
from tests.engine.worlds import world_with

PATIENCE = 300.0
PATHS = ("/w/a", "/w/b")
TARGETS = ("/w/one", "/w/two", "/elsewhere")
T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    """Jumps to the next time at which something can happen."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def without_waiting(story: Callable[[], Awaitable[T]]) -> T:
    return anyio.run(story, backend_options={"loop_factory": _Loop})


@tool(Effect.CHANGE, path="path")
async def strike(
    path: str, number: int, *, links: dict[str, str], struck: list[str]
) -> Reply:
    """Change a file."""
    struck.append(f"{number} at {links[path]}")
    return Reply("struck")


def script(sizes: Sequence[int]) -> list[Line]:
    """Answers with this number of calls each; every call has a number of its own."""
    lines: list[Line] = []
    number = 0
    for size in sizes:
        calls: list[tuple[str, str]] = []
        for _ in range(size):
            calls.append(
                ("strike", f'{{"path": "{PATHS[number % 2]}", "number": {number}}}')
            )
            number += 1
        lines.append(calls or "Done.")
    return lines


class ApprovalSession:
    """A session, its place, and a person who records the questions."""

    def __init__(self, *sizes: int) -> None:
        self.links: dict[str, str] = dict.fromkeys(PATHS, TARGETS[0])
        self.struck: list[str] = []
        self.approved: list[str] = []
        self.seen: dict[str, tuple[str, str]] = {}  # call: the hash, and what it would do
        self.older: list[str] = []
        self.store = MemoryStore()
        self._given: World = world(
            ScriptedProvider(*script(sizes)),
            tools=(strike,),
            rules=(),
            tool_dependencies={"links": self.links, "struck": self.struck},
            facts=lambda: Facts(("/w",), follow=lambda path: self.links.get(path, path)),
        )
        self.session: Session | None = None

    async def open(self, *, attended: bool = True) -> Session:
        if self.session is not None:
            await self.session.close()
        record = Recorder(self.store, clock=lambda: 0.0)
        present = world_with(self._given, attended=attended)
        self.session = await Session.open(
            record, lambda _: present, session_options=SessionOptions(question=PATIENCE)
        )
        return self.session

    def waiting(self, at: int) -> Permission | None:
        assert self.session
        permissions = [r for r in requests(self.session.view) if isinstance(r, Permission)]
        return permissions[at % len(permissions)] if permissions else None

    def show(self, permission: Permission) -> None:
        """Show what a client shows: the file that the call was judged for, wherever its
        path leads now.
        """
        arguments = strike.parse(permission.call.call.arguments)
        news = (e.event for e in reversed(entries(self.store)))
        of_it = (e for e in news if isinstance(e, Judged) and e.call_id == permission.id)
        does = f"{arguments['number']} at {next(of_it).real_path}"
        if permission.id in self.seen:
            self.older.append(self.seen[permission.id][0])
        self.seen[permission.id] = (permission.call.hash, does)


class Step(Struct, frozen=True):
    what: str
    at: int = 0
    other: int = 0


STEPS = some.builds(
    Step,
    some.sampled_from((
        "go", "go", "show", "show", "approve", "approve", "twice", "stale", "other", "deny",
        "move", "move", "wait", "restart", "stop",
    )),
    some.integers(0, 2),
    some.integers(0, 2),
)  # fmt: skip


async def run_step(step: Step, approval_session: ApprovalSession) -> None:
    session = approval_session.session
    assert session
    waiting = approval_session.waiting(step.at)
    match step.what:
        case "go":
            if session.idle:
                await session.inbox.say("go on")
            await session.run_turns()
        case "move":
            approval_session.links[PATHS[step.at % 2]] = TARGETS[step.other]
        case "restart":
            await approval_session.open()
        case "stop":
            await session.inbox.interrupt()
        case _ if waiting is None:
            return
        case "show":
            approval_session.show(waiting)
        case "wait":
            async with session.question_timeout.show_question(
                waiting.id, waiting.call.hash
            ):
                await anyio.sleep(100)
        case _:
            await answer(step, waiting, approval_session)


async def answer(
    step: Step, permission: Permission, approval_session: ApprovalSession
) -> None:
    session = approval_session.session
    assert session
    hash_, does = approval_session.seen.get(permission.id, ("", ""))
    match step.what:
        case "deny":
            await session.inbox.answer(permission.id, allowed=False)
        case "approve" | "twice" if does:
            result = await session.inbox.answer(permission.id, allowed=True, hash_=hash_)
            assert result == (hash_ == permission.call.hash)
            if result:
                approval_session.approved.append(does)
                assert not await session.inbox.answer(
                    permission.id, allowed=True, hash_=hash_
                )
        case "stale":
            for text in approval_session.older:
                if text != permission.call.hash:
                    assert not await session.inbox.answer(
                        permission.id, allowed=True, hash_=text
                    )
        case "other":
            for call, (text, _) in approval_session.seen.items():
                if call != permission.id and text != permission.call.hash:
                    assert not await session.inbox.answer(
                        permission.id, allowed=True, hash_=text
                    )
        case _:
            return


@given(
    some.lists(some.sampled_from((0, 1, 2, 3)), min_size=12, max_size=12),
    some.lists(STEPS, max_size=30),
)
@example(
    [1] * 12,
    [Step("show"), Step("approve"), Step("move", 0, 1), Step("go"), Step("approve")],
)
@example(
    [3] * 12,
    [
        Step("show"),
        Step("approve"),
        Step("show"),
        Step("move", 0, 2),
        Step("go"),
        Step("show"),
        Step("stale"),
        Step("other"),
        Step("restart"),
        Step("twice"),
    ],
)
def test_every_call_that_ran_was_shown_and_approved_once(
    sizes: list[int], steps: list[Step]
) -> None:
    approval_session = ApprovalSession(*sizes)

    async def run_story() -> None:
        await approval_session.open()
        for step in (Step("go"), *steps, Step("go")):
            await run_step(step, approval_session)
            assert set(approval_session.struck) <= set(approval_session.approved)
            assert len(approval_session.struck) == len(set(approval_session.struck))

    without_waiting(run_story)


def test_question_shown_without_an_answer_times_out_as_a_denial() -> None:
    approval_session = ApprovalSession(1, 0)

    async def run_story() -> tuple[list[object], bool, float]:
        session = await approval_session.open()
        await session.inbox.say("go")
        await session.run_turns()
        waiting = approval_session.waiting(0)
        assert waiting
        for seconds in (100, 150):  # with an hour between, when no screen shows it
            async with session.question_timeout.show_question(
                waiting.id, waiting.call.hash
            ):
                await anyio.sleep(seconds)
            await anyio.sleep(3600)
        assert session.view.conversation.calls[0].stage == "asked"
        began = anyio.current_time()
        async with session.question_timeout.show_question(waiting.id, waiting.call.hash):
            await anyio.sleep(60)
        late = await session.inbox.answer(waiting.id, allowed=True, hash_=waiting.call.hash)
        await session.run_turns()
        call = [
            e.event
            for e in entries(approval_session.store)
            if isinstance(e.event, Answered | Ended)
        ]
        return list(call), late, anyio.current_time() - began

    events, late, _ = without_waiting(run_story)

    assert (late, approval_session.struck) == (False, [])
    assert isinstance(events[0], Answered)
    assert (events[0].allowed, events[0].reason) == (False, "no answer came within 300 s")


@pytest.mark.parametrize("moved", [True, False])
def test_approval_applies_only_to_the_file_that_the_path_led_to_then(moved: bool) -> None:
    approval_session = ApprovalSession(1, 0)

    async def run_story() -> tuple[str, ...]:
        session = await approval_session.open()
        await session.inbox.say("go")
        await session.run_turns()
        waiting = approval_session.waiting(0)
        assert waiting
        await session.inbox.answer(waiting.id, allowed=True, hash_=waiting.call.hash)
        if moved:
            approval_session.links[PATHS[0]] = TARGETS[2]
        view = await session.run_turns()
        again = approval_session.waiting(0)
        assert (again is not None) == moved
        assert again is None or again.call.hash != waiting.call.hash
        return tuple(c.stage for c in view.conversation.calls)

    assert without_waiting(run_story) == (("asked",) if moved else ())
    assert approval_session.struck == ([] if moved else [f"0 at {TARGETS[0]}"])


@pytest.mark.parametrize("moved", [True, False])
def test_approval_before_a_crash_applies_to_a_resumed_run_without_a_user(
    moved: bool,
) -> None:
    approval_session = ApprovalSession(1, 0)

    async def run_story() -> None:
        session = await approval_session.open()
        await session.inbox.say("go")
        await session.run_turns()
        waiting = approval_session.waiting(0)
        assert waiting
        await session.inbox.answer(waiting.id, allowed=True, hash_=waiting.call.hash)
        if moved:
            approval_session.links[PATHS[0]] = TARGETS[2]
        session = await approval_session.open(attended=False)
        await session.run_turns()

    without_waiting(run_story)

    end = next(
        e.event for e in entries(approval_session.store) if isinstance(e.event, Ended)
    )
    assert approval_session.struck == ([] if moved else [f"0 at {TARGETS[0]}"])
    assert (NOBODY_TO_ASK in str(end)) == moved
