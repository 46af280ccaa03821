"""Real loops are stopped within a fixed number of responses; honest repeated work is not.

Each case is a table of responses: the calls, and their results. All of it goes through the
real engine, with a scripted model and scripted tools.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import msgspec
import pytest
from msgspec import Struct

from refold.config.settings import Limits
from refold.engine.policies.conversation import converse, final
from refold.engine.policies.step_limit import at_most
from refold.engine.policies.stuck import (
    REPEATED_CALLS,
    REPEATED_ERRORS,
    REPEATED_SEARCHES,
    not_stuck,
)
from refold.engine.policies.turn_end import continue_cut_response
from refold.errors import ToolFailed
from refold.journal.events.kinds import Compacted, Entry, ModelAsked, TurnEnded
from refold.journal.state.fold import View, fold
from refold.journal.store.port import MemoryStore
from refold.permissions.rules import parse
from refold.session.recorder import Recorder
from refold.session.redactor import Redactor
from refold.session.session import Session
from refold.testing.providers import Line, ScriptedProvider
from refold.testing.providers import Reply as Said
from refold.tools.contract import Reply, tool
from refold.tools.turn_control import think
from refold.values.display import Output
from refold.values.tools import Effect
from tests.engine.house import entries, open_session, run, world


class Call(NamedTuple):
    """`code` is for commands; with `fails` the tool raises; `took` is in seconds."""

    name: str
    arguments: dict[str, Any] | str
    result: str = "ok"
    code: int = 0
    fails: bool = False
    took: float = 0.1


class Outcomes:
    """The results of the calls, in their order, while the clock advances."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.left, self.now = list(calls), 1000.0

    def next(self) -> Call:
        call = self.left.pop(0)
        self.now += call.took
        return call

    def plain(self) -> Reply:
        call = self.next()
        if call.fails:
            raise ToolFailed(call.result)
        return Reply(call.result)


@tool(Effect.LOOK)
async def read_file(path: str, first: int = 1, *, outcomes: Outcomes) -> Reply:
    """Read."""
    return outcomes.plain()


@tool(Effect.LOOK)
async def grep(pattern: str, path: str = ".", *, outcomes: Outcomes) -> Reply:
    """Search files."""
    return outcomes.plain()


@tool(Effect.LOOK)
async def web_fetch(url: str, *, outcomes: Outcomes) -> Reply:
    """Read a page."""
    return outcomes.plain()


@tool(Effect.LOOK)
async def list_files(path: str = ".", *, outcomes: Outcomes) -> Reply:
    """List."""
    return outcomes.plain()


@tool(Effect.LOOK)
async def edit_file(path: str, old: str, new: str, *, outcomes: Outcomes) -> Reply:
    """Edit."""
    return outcomes.plain()


@tool(Effect.LOOK)
async def web_search(query: str, *, outcomes: Outcomes) -> Reply:
    """Search the web."""
    return outcomes.plain()


@tool(Effect.SELF)
async def todo_write(todos: list[str], *, outcomes: Outcomes) -> Reply:
    """Write the list."""
    return outcomes.plain()


@tool(Effect.RUN)
async def bash(command: str, *, outcomes: Outcomes) -> Reply:
    """Run."""
    call = outcomes.next()
    end = f"\n(exit code {call.code})" if call.code else ""
    body = call.result or "(no output)"
    return Reply(body + end, (Output(command, call.result, call.code),))


TOOLS = (
    *(read_file, grep, list_files, edit_file, web_search, web_fetch),
    *(todo_write, bash, think),
)


class Step(Struct):
    """One answer."""

    calls: tuple[Call, ...]
    text: str = ""

    @property
    def line(self) -> Line:
        calls = (
            (
                c.name,
                c.arguments
                if isinstance(c.arguments, str)
                else encode_arguments(c.arguments),
            )
            for c in self.calls
        )
        return Said(self.text, tuple(calls))


def encode_arguments(arguments: dict[str, Any]) -> str:
    return msgspec.json.encode(arguments).decode()


def step(name: str, result: str = "ok", /, **arguments: Any) -> Step:
    more = {k: arguments.pop(k) for k in ("code", "fails", "took") if k in arguments}
    return Step((Call(name, arguments, result, **more),))


def thought(n: int) -> Step:
    return Step((Call("think", {"thought": f"Perhaps {n}."}),))


def run_turn(
    steps: Sequence[Step],
    store: MemoryStore | None = None,
    rules: Mapping[str, int] | None = None,
) -> View:
    """A turn of these answers; where no policy stops it, it ends with an answer."""
    outcomes = Outcomes([c for s in steps for c in s.calls if c.name != "think"])
    provider = ScriptedProvider(*(s.line for s in steps), "Done.")
    scripted_world = world(
        provider,
        tools=TOOLS,
        rules=(parse("bash", "allow"),),
        policies=(final, at_most(60), *not_stuck(**rules or {}), converse),
        tool_dependencies={"outcomes": outcomes},
    )

    async def main() -> View:
        record = Recorder(
            store or MemoryStore(), masks=Redactor(()), clock=lambda: outcomes.now
        )
        session = await Session.open(record, lambda _: scripted_world)
        await session.inbox.say("Go.")
        return await session.run_turns()

    return anyio.run(main)


def list_rules(store: MemoryStore) -> list[str]:
    """Return the rules that spoke to the model, in turn."""
    events = (e.event for e in entries(store) if isinstance(e.event, ModelAsked))
    return [name for event in events for name in event.policies]


# Circles. -----------------------------------------------------------------------------

NO_PLACE = "The old text does not occur in a.py."
RED = "1 failed in {n}.3{n}s\n"
CELL = "  cell {n}, line 1: 1/0\nZeroDivisionError: division by zero"


def repeat_forever(*steps: Step) -> Iterator[Step]:
    while True:
        yield from steps


def thinking_between() -> Iterator[Step]:
    for n in count():
        yield thought(n)
        yield step("read_file", "x = 1", path="a.py")


def steps_with_reordered_keys() -> Iterator[Step]:
    one = '{"pattern": "main", "path": "src"}'
    other = '{ "path":"src",\n  "pattern":"main" }'
    for n in count():
        yield Step((Call("grep", (one, other)[n % 2], "no match"),))


def fast_steps() -> Iterator[Step]:
    look = Call("read_file", {"path": "a.py"}, "x = 1")
    for n in count():
        yield Step((look,) * (1 + n % 3))


CIRCLES: dict[str, tuple[Iterator[Step], int, str]] = {
    "the same file is read again": (
        repeat_forever(step("read_file", "x = 1", path="a.py")), 4, "repeated_calls"),
    "an edit that fails is tried again": (
        repeat_forever(step("edit_file", NO_PLACE, path="a.py", old="x", new="y", fails=True)),
        4, "repeated_calls"),
    "an edit is done and undone": (
        repeat_forever(
            step("edit_file", "Changed a.py.", path="a.py", old="x", new="y"),
            step("edit_file", "Changed a.py.", path="a.py", old="y", new="x")),
        7, "alternating_calls"),
    "three looks go round": (
        repeat_forever(
            step("list_files", "a.py", path="src"),
            step("read_file", "x = 1", path="a.py"),
            step("grep", "no match", pattern="main")),
        10, "alternating_calls"),
    "the arguments change and the error does not": (
        (step("edit_file", NO_PLACE, path="a.py", old=f"x{n}", new="y", fails=True)
         for n in count()),
        4, "repeated_errors"),
    "a command fails alike in other words": (
        (step("bash", "bash: make: command not found\n", command=f"make all -j{n}", code=127)
         for n in count()),
        4, "repeated_errors"),
    "the same search with its arguments in another order": (steps_with_reordered_keys(), 4, "repeated_calls"),
    "the same call several times at once": (fast_steps(), 4, "repeated_calls"),
    "a thought between two calls alike": (thinking_between(), 8, "repeated_calls"),
    "other words before the same call": (
        (Step((Call("read_file", {"path": "a.py"}, "x = 1"),), f"Try {n}.") for n in count()),
        4, "repeated_calls"),
    "tests that fail again, with nothing changed": (
        (step("bash", RED.format(n=n), command="pytest -q", code=1, took=9) for n in count()),
        4, "repeated_calls"),
    "code fails again, in a cell with another number": (
        (step("bash", CELL.format(n=n), command="run cell", code=1) for n in count()),
        4, "repeated_calls"),
    "an empty folder is listed again": (
        repeat_forever(step("list_files", "(empty)", path="build")), 4, "repeated_calls"),
    "only thoughts, and always the same": (repeat_forever(thought(1)), 4, "repeated_calls"),
    "three times the same and then another, over and over": (
        repeat_forever(
            *[step("read_file", "x = 1", path="a.py")] * 2, step("list_files", "a.py")),
        10, "alternating_calls"),
}  # fmt: skip


@pytest.mark.parametrize("circle", CIRCLES)
def test_repeated_calls_are_warned_about_and_then_stopped(circle: str) -> None:
    steps, after, rule = CIRCLES[circle]
    store = MemoryStore()

    view = run_turn(list(islice(steps, after + 2)), store)

    assert (view.turn.outcome, view.turn.steps) == ("stuck", after)
    assert list_rules(store) == [rule]
    (end,) = (e for e in entries(store) if isinstance(e.event, TurnEnded))
    assert end.by == f"policy {rule}"


# Honest work. -------------------------------------------------------------------------

PENDING = "status: pending\n"


def edit_step(n: int, path: str = "a.py") -> Step:
    return step("edit_file", f"Changed {path}, line {n}.", path=path, old=f"{n}", new="y")


def repeat_steps(*kinds: Step | Callable[[int], Step], rounds: int = 8) -> list[Step]:
    """Return each of `kinds` in turn, with a number where it is a function."""
    return [k if isinstance(k, Step) else k(n) for n in range(rounds) for k in kinds]


def searching_and_reading(n: int) -> list[Step]:
    queries = [step("web_search", f"r{n}", query=f"q {n} {m}") for m in range(2)]
    return [*queries, step("read_file", f"page {n}", path=f"page-{n}")]


HONEST: dict[str, tuple[list[Step], list[str]]] = {
    "a build is polled, and says the same": (
        repeat_steps(step("bash", PENDING, command="sleep 5; curl -s host/status")), []),
    "a build is polled, and says how far it is": (
        repeat_steps(lambda n: step("bash", f"{n * 10} %\n", command="curl -s host/status")), []),
    "a request that is long answered with nothing new": (
        repeat_steps(step("bash", PENDING, command="curl -s host/next", took=30)), ["repeated_calls"]),
    "a server is waited for that is not up yet": (
        repeat_steps(step("bash", "refused\n", command="sleep 2 && curl host", code=7)), []),
    "a log is followed for a while, again and again": (
        repeat_steps(step("bash", "no news\n", command="timeout 5 tail -n1 -f log")), []),
    "many files are edited": (repeat_steps(lambda n: edit_step(1, f"{n}.py"), rounds=20), []),
    "one file is edited in many places": (repeat_steps(edit_step, rounds=20), []),
    "a log is read page by page": (
        repeat_steps(lambda n: step("read_file", f"line {n}", path="log", first=1 + 200 * n)), []),
    "tests fail alike after each edit": (
        repeat_steps(edit_step, step("bash", "1 failed\n", command="pytest -q", code=1)), []),
    "forty files are read": (
        repeat_steps(lambda n: step("read_file", "import os", path=f"{n}.py"), rounds=40), []),
    "the state is looked at between edits": (
        repeat_steps(step("bash", " M a.py\n", command="git status -s"), edit_step), []),
    "todos are ticked off": (
        repeat_steps(edit_step, lambda n: step("todo_write", "Written.", todos=[f"{n} done"])), []),
    "it thinks before each step": (
        repeat_steps(thought, lambda n: step("read_file", "x", path=f"{n}.py")), []),
    "what failed succeeds when it is tried again": (
        [*[step("bash", "busy\n", command=f"deploy --try {n}", code=1) for n in range(3)],
         step("bash", "deployed\n", command="deploy --try 3")], ["repeated_errors"]),
    "searches, and what they found is read": (
        [s for n in range(4) for s in searching_and_reading(n)], []),
    "nothing is found, by many patterns": (
        repeat_steps(lambda n: step("bash", "", command=f"grep -r word{n} .", code=1)), []),
    "the same is asked three times, and then something else": (
        [*[step("list_files", "a.py")] * 3, step("read_file", "x", path="a.py")], ["repeated_calls"]),
}  # fmt: skip


@pytest.mark.parametrize("work", HONEST)
def test_repetitive_but_useful_work_is_not_stopped(work: str) -> None:
    steps, nudges = HONEST[work]
    store = MemoryStore()

    view = run_turn(steps, store)

    assert (view.turn.outcome, view.turn.steps) == ("answered", len(steps) + 1)
    assert list_rules(store) == nudges


# The rules themselves. ----------------------------------------------------------------

READ = step("read_file", "x = 1", path="a.py")
SWITCHES = {
    "repeated_searches": (
        [step("web_search", f"nothing for {n}", query=f"words {n}") for n in range(9)],
        6,
    ),
    "repeated_calls": ([READ] * 9, 4),
    "alternating_calls": ([READ, step("list_files", "a.py")] * 5, 7),
    "repeated_errors": (
        [step("grep", "bad pattern", pattern=f"({n}", fails=True) for n in range(9)],
        4,
    ),
}


@pytest.mark.parametrize("rule", SWITCHES)
def test_each_stuck_rule_can_be_switched_off(rule: str) -> None:
    steps, after = SWITCHES[rule]

    with_it, without = run_turn(steps), run_turn(steps, rules={rule: 0})

    assert (with_it.turn.outcome, with_it.turn.steps) == ("stuck", after)
    assert (without.turn.outcome, without.turn.steps) == ("answered", len(steps) + 1)


@pytest.mark.parametrize(
    ("rule", "limit", "after"),
    [("repeated_calls", 1, 2), ("repeated_calls", 5, 6), ("alternating_calls", 1, 5), ("alternating_calls", 4, 9),
     ("repeated_errors", 1, 1), ("repeated_errors", 6, 6),
     ("repeated_searches", 1, 2), ("repeated_searches", 4, 8)],
)  # fmt: skip
def test_each_stuck_rule_stops_at_its_configured_count(
    rule: str, limit: int, after: int
) -> None:
    view = run_turn(SWITCHES[rule][0], rules={rule: limit})

    assert (view.turn.outcome, view.turn.steps) == ("stuck", after)


@pytest.mark.parametrize(
    ("rule", "nudge", "reason"),
    [
        ("repeated_calls", REPEATED_CALLS.format(names="read_file", times=3),
         "read_file was called 4 times with the same arguments and the same result"),
        ("repeated_errors", REPEATED_ERRORS.format(names="grep", times=3),
         "grep failed 4 times with the same error"),
        ("repeated_searches", REPEATED_SEARCHES.format(times=3),
         "the web was searched 6 times in a row, and no page was read"),
    ],
)  # fmt: skip
def test_stuck_warning_and_stop_reason_name_the_repetition_and_its_count(
    rule: str, nudge: str, reason: str
) -> None:
    store = MemoryStore()

    view = run_turn(SWITCHES[rule][0], store)

    notes = [e.event.notes for e in entries(store) if isinstance(e.event, ModelAsked)]
    assert [note for item in notes for note in item] == [nudge]
    assert view.turn.reason == reason


def test_searches_with_a_page_read_between_them_are_not_stuck() -> None:
    search = [step("web_search", f"nothing for {n}", query=f"words {n}") for n in range(8)]
    read = [step("web_fetch", f"page {n}", url=f"https://a.example/{n}") for n in range(8)]
    pairs = zip(search[::2], search[1::2], read, strict=False)

    view = run_turn([item for triple in pairs for item in triple])

    assert (view.turn.outcome, view.turn.steps) == ("answered", 13)


def test_repeated_calls_still_count_after_a_compaction() -> None:
    """The rules count calls, whether or not the model still sees them."""
    store = MemoryStore()
    run_turn([READ] * 3, store)
    whole = entries(store)
    cut = max(n for n, e in enumerate(whole) if isinstance(e.event, ModelAsked))
    shortened = [*whole[:cut], Entry(whole[cut].seq, Compacted("full", summary="So far."))]
    view = fold(shortened)

    (repeated_calls, *_) = not_stuck()

    assert repeated_calls(view) == repeated_calls(fold(whole[:cut]))
    assert repeated_calls(view) is not None


def test_stuck_warning_is_given_only_once_even_after_a_cut_off_answer() -> None:
    """An answer that was cut off does not count as a repetition."""
    store = MemoryStore()
    cut = Said("So ", stop="length")
    scripted_world = world(
        ScriptedProvider(*[READ.line] * 3, cut, "far."),
        tools=TOOLS,
        policies=(continue_cut_response(), *not_stuck(), converse),
        tool_dependencies={"outcomes": Outcomes([*READ.calls] * 3)},
    )

    run(store, scripted_world, "Go.")

    assert list_rules(store) == ["repeated_calls", "continuation"]


def test_repetition_count_restarts_when_a_stuck_turn_is_continued() -> None:
    outcomes = Outcomes([*READ.calls] * 6)
    scripted_world = world(
        ScriptedProvider(*[READ.line] * 6, "Done."),
        tools=TOOLS,
        policies=(*not_stuck(), converse),
        tool_dependencies={"outcomes": outcomes},
    )

    async def main() -> list[str]:
        session = await open_session(MemoryStore(), scripted_world)
        await session.inbox.say("Go.")
        first = await session.run_turns()
        return [first.turn.outcome, (await session.continue_()).turn.outcome]

    assert anyio.run(main) == ["stuck", "answered"]


def test_repetition_count_restarts_after_a_message_of_the_user() -> None:
    """After a message of the user, the same call may be right."""
    outcomes = Outcomes([c for s in [READ] * 6 for c in s.calls])
    provider = ScriptedProvider(*[s.line for s in [READ] * 6], "Done.")
    scripted_world = world(
        provider,
        tools=TOOLS,
        policies=(final, *not_stuck(), converse),
        tool_dependencies={"outcomes": outcomes},
    )

    async def main() -> View:
        session = await Session.open(
            Recorder(MemoryStore(), masks=Redactor(())), lambda _: scripted_world
        )

        async def send_again() -> None:
            while session.view.turn.steps < 3:
                await session.record.wait_for_event(session.view.seq)
            await session.inbox.say("Look again.")

        async with anyio.create_task_group() as group:
            group.start_soon(send_again)
            await session.inbox.say("Look.")
            await session.run_turns()
        return session.view

    assert anyio.run(main).turn.outcome == "answered"


# The page about them. -----------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs/explain/loops.md").read_text(encoding="utf-8")


def test_documented_limits_equal_the_defaults_of_the_settings() -> None:
    rows = dict(re.findall(r"^\| `limits\.(\w+)` \| (\w+) \|", PAGE, re.MULTILINE))

    limits = msgspec.to_builtins(Limits())

    assert rows == {name: str(limits[name]).lower() for name in rows}
    assert {rule.__name__ for rule in not_stuck()} < set(rows)


@pytest.mark.parametrize(
    "command",
    ["sleep 5; cat log", "make & wait", "watch -n1 ls", "tail -f log", "tail -n 20 -F log",
     "kubectl wait --for=x pod/a", "gh run watch 7", "ci status --wait", "curl --retry 5 host"],
)  # fmt: skip
def test_repeated_waiting_command_is_not_stuck(command: str) -> None:
    view = run_turn([step("bash", "pending\n", command=command)] * 6)

    assert view.turn.outcome == "answered"


@pytest.mark.parametrize(
    "command", ["ls sleeping", "tail -n 20 log", "cat --waiters x", "grep -f words log"]
)
def test_repeated_command_that_only_resembles_waiting_is_stuck(command: str) -> None:
    view = run_turn([step("bash", "pending\n", command=command)] * 6)

    assert view.turn.outcome == "stuck"
