"""Functions that code calls besides models: our tools, through the seam, and subagents."""

from typing import Any

import anyio
import pytest

from refold.errors import ToolFailed
from refold.journal.events.kinds import Ended, Entry, Judged, NestedCallMade
from refold.permissions.rules import parse
from refold.rlm.initial_variables import InitialVariables
from refold.testing.providers import ScriptedProvider
from refold.tools.contract import Reply, tool
from refold.tools.task import Report
from refold.tools.todo import todo_write
from refold.values.tools import Effect
from tests.rlm.acting_by_code import CodeSession, Leaf, as_code, observations


@tool(Effect.LOOK)
async def peek(path: str, first: int = 1, *, seen: list[str]) -> Reply:
    """Read a file."""
    seen.append(path)
    if path == "gone":
        raise ToolFailed("There is no file 'gone'.")
    return Reply(f"{path} from {first}")


@tool(Effect.CHANGE, path="path")
async def scribble(path: str) -> Reply:
    """Write a file."""
    return Reply("written")


class Siblings:
    """Children that answer at once. `wanted` are the requests to them."""

    def __init__(self, *reports: Report) -> None:
        self._reports = iter(reports)
        self.wanted: list[tuple[str, int, InitialVariables]] = []

    async def start(
        self, call_id: str, key: str, n: int, task: str, material: InitialVariables
    ) -> Report:
        self.wanted.append((task, n, material))
        return next(self._reports)


def make_run(*answers: str, **options: Any) -> CodeSession:
    texts: list[str] = []
    return CodeSession(
        ScriptedProvider(*answers), Leaf(str), tools=(peek, scribble), seen=texts, **options
    )


def test_a_tool_call_of_code_is_recorded_as_a_nested_call() -> None:
    run = make_run(as_code("FINAL(peek('a.txt', first=3))"))

    view = run.run()

    assert view.turn.answer == "a.txt from 3"
    (result,) = run.events(NestedCallMade)
    assert (result.call.id, result.call.name, result.parent_call) == (
        "call-0.1",
        "peek",
        "call-0",
    )
    assert [e.call_id for e in run.events(Ended)] == ["call-0.1", "call-0"]


def test_a_failed_or_refused_tool_call_raises_in_the_code() -> None:
    run = make_run(
        as_code("peek('gone')"), as_code("scribble('a.txt')"), as_code("FINAL(1)"),
        attended=False,
    )  # fmt: skip

    view = run.run()

    first, second, _ = observations(view)
    assert first == "refold.rlm.worker_port.HostFailed: There is no file 'gone'."
    assert "Refused: no rule allows scribble" in second
    assert {e.call_id: e.verdict for e in run.events(Judged)}["call-1.1"] == "deny"
    assert [denial.call.name for denial in view.turn.denials] == ["scribble"]


def test_code_waits_until_the_user_approves_its_tool_call() -> None:
    run = make_run(as_code("FINAL(scribble('a.txt'))"))

    async def wait_and_allow() -> str:
        session = await run.session()
        await session.inbox.say("Go.")

        async def say_yes() -> None:
            while not session.view.conversation.waiting_calls:
                await session.record.wait_for_event(after=session.view.seq)
            await session.inbox.answer(
                session.view.conversation.waiting_calls[0].call.id, allowed=True
            )

        async with anyio.create_task_group() as group:
            group.start_soon(say_yes)
            await session.run_turns()
        return session.view.turn.answer

    assert anyio.run(wait_and_allow) == "written"


def test_a_subagent_receives_its_context_and_returns_its_value_unchanged() -> None:
    below = Siblings(
        Report("child-1", "done", '{"n": 3}', as_json=True), Report("child-2", "done", "42")
    )
    run = make_run(
        as_code("a = rlm('Count.', context=[1, 2])", "FINAL([a['n'], rlm('Say.')])"),
        repl_options={"subagents": below},
    )

    view = run.run()

    assert view.turn.answer == '[3,"42"]'
    assert below.wanted == [
        ("Count.", 0, InitialVariables({"context": [1, 2]})), ("Say.", 0, InitialVariables()),
    ]  # fmt: skip


def test_a_failed_subagent_is_a_marked_slot_among_the_results() -> None:
    below = Siblings(
        Report("child-1", "done", "1", as_json=True),
        Report("child-2", "failed", "", "out of money"),
    )
    run = make_run(
        as_code("FINAL(map_rlm(['Same.', 'Same.'], shared='x'))"),
        repl_options={"subagents": below},
    )

    view = run.run()

    assert view.turn.answer == '[1,{"__failed__":"child-2 is failed: out of money"}]'
    assert [(n, m) for _, n, m in below.wanted] == [
        (0, InitialVariables({"shared": "x"})), (1, InitialVariables({"shared": "x"})),
    ]  # fmt: skip


@pytest.mark.parametrize("code", ["rlm('Look.')", "map_rlm(['Look.'])[0]"])
def test_code_cannot_start_subagents_below_the_maximum_depth(code: str) -> None:
    run = make_run(
        as_code(f"print({code})"),
        as_code("FINAL(1)"),
        repl_options={"subagents": Siblings(), "depth": 1},
    )

    view = run.run()

    assert "goes no deeper than 1 here: use lm or map_lm" in observations(view)[0]


def test_attaching_a_missing_session_fails() -> None:
    run = make_run(
        as_code("attach_rlm('x', 'Go on.')"),
        as_code("FINAL(1)"),
        repl_options={"subagents": Siblings()},
    )

    view = run.run()

    assert observations(view)[0].endswith("attach_rlm: there are no other sessions here")


def test_denying_python_prevents_its_nested_tool_calls() -> None:
    run = make_run(
        as_code("FINAL(peek('a.txt'))"), "Then not.", "Then not.",
        rules=(parse("python", "deny"),),
    )  # fmt: skip

    view = run.run()

    assert view.turn.outcome == "answered"
    assert run.events(NestedCallMade) == []


def test_session_control_tools_are_not_functions_in_code() -> None:
    program = ScriptedProvider(as_code("FINAL('todo_write' in globals())"))
    run = CodeSession(program, Leaf(str), tools=(peek, todo_write))

    assert run.run().turn.answer == "false"


def test_the_session_view_keeps_a_bounded_number_of_nested_calls() -> None:
    run = make_run(
        as_code("for n in range(200):\n    peek(str(n))\nprint('done')"), "Over."
    )
    most = 0

    async def count_nested() -> None:
        nonlocal most
        session = await run.session()

        def look(_: Entry) -> None:
            nonlocal most
            most = max(most, len(session.view.conversation.nested))

        session.hub.subscribe(look)
        await session.inbox.say("Go.")
        await session.run_turns()

    anyio.run(count_nested)

    assert len(run.events(NestedCallMade)) == 200
    assert 1 <= most <= 70
