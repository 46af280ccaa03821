"""Children at a terminal: who asks, how far they are, and how they are stopped."""

import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
import pytest
from msgspec import Raw
from msgspec.structs import replace

from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.console.reader import Key
from refold.journal.events.child_events import (
    BackgroundStarted,
    ChildAnswered,
    ChildAsked,
    ChildBorn,
    ChildEnded,
    ChildStopped,
)
from refold.journal.events.kinds import (
    Ended,
    Entry,
    Event,
    Frame,
    Granted,
    ModelAnswered,
    ModelAsked,
    Said,
    SessionStarted,
    Started,
    Stopped,
    TurnStarted,
)
from refold.journal.state.children import Child, Children
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.terminal.screen.status_line import StatusLine
from refold.terminal.screen.transcript import TranscriptPrinter
from refold.tools.builtin import builtin
from refold.tools.contract import Reply, Tool, tool
from refold.values.display import ASK_USER, Note
from refold.values.live import ChildMoved, SubagentDelta, TextCame
from refold.values.messages import Message, ToolCall
from refold.values.tools import Effect
from refold.values.usage import Spent, Usage
from refold.views.children_list import (
    child_label,
    child_lines,
    live_rows,
    running_summary,
)
from refold.views.styled import plain_text
from refold.views.wrap import cells
from tests.terminal.stage import world
from tests.terminal.test_conversation import ScriptedTerminal, Typed, Typist

BORN = ChildBorn("child-1", "call-0", "explore", "Look around\nfor me.")
ENDED = ChildEnded(
    "child-1", "answered", "done", spent=Spent(Usage(900, output=10), 0.25, 1)
)

TOOLS = {item.name: item for item in builtin()}
EDIT = '{"path": "hello.py", "old": "hi", "new": "hello"}'
ASK = '{"questions": [{"question": "Which colour?"}, {"question": "Why?"}]}'
MOVED = ChildMoved("child-1", "explore", "a look", 2, 12_345, 0.5, "read_file hello.py")


def child_question(name: str, arguments: str, *, agent: str = "explore") -> ChildAsked:
    call = ToolCall("child-1/c7", name, Raw(arguments.encode()))
    return ChildAsked("child-1/c7", "child-1", agent, call, "no rule allows it", "h1")


def child_task_with(*news: ChildAsked | Said, until: type = ChildAnswered) -> Tool:
    """Return a tool whose child asks or says this, and ends once `until` stands in the
    journal.
    """

    @tool(Effect.SELF)
    async def child_task(*, record: Recorder) -> Reply:
        """Have a child at work."""
        await record(BORN, *news)
        record.publish(MOVED)
        record.publish(replace(MOVED, node="child-1/child-1", title="deeper"))
        while True:
            seq = record.view.seq
            if any(isinstance(e.event, until) for e in await record.entries()):
                break
            await record.wait_for_event(after=seq)
        await record(ENDED)
        return Reply("so it was")

    return child_task


def run_with_child(
    directory: Path, child_task: Tool, *typed: Typed
) -> tuple[list[str], ScriptedTerminal]:
    scripted_terminal = ScriptedTerminal(directory, [("child_task", "{}")], "Done.")

    async def run_story() -> None:
        record = Recorder(scripted_terminal.store)
        mine = world(scripted_terminal.provider, record, directory, 9)
        tools = (*mine.tools, child_task)
        house = {**mine.tool_dependencies, "record": record}
        mine = replace(mine, tools=tools, tool_dependencies=house)
        session = await Session.open(record, lambda _: mine, directory=str(directory))
        typist = Typist(*typed)
        around = partial(scripted_terminal.converse, typist, "go", session)
        await around(tools=tools)

    anyio.run(run_story)
    return [
        row for row in scripted_terminal.out.getvalue().split("\n") if row
    ], scripted_terminal


def print_events(*events: Event) -> list[str]:
    """Return what the terminal prints of this, but for empty rows."""
    out = io.StringIO()
    showing = TranscriptPrinter(
        Printer(out, TerminalCapabilities()), lambda: 0.0, TOOLS.get
    )
    for seq, event in enumerate(events, start=1):
        showing.show(Frame(seq, 0, Entry(seq, event)))
    return [row for row in out.getvalue().split("\n") if row]


def test_a_subagent_question_names_the_subagent_and_can_be_allowed_for_the_session(
    tmp_path: Path,
) -> None:
    rows, scripted_terminal = run_with_child(
        tmp_path, child_task_with(child_question("edit_file", EDIT)), "s"
    )

    first_row = rows.index("child-1 (explore) asks:")
    assert rows[first_row - 1] == "child-1 (explore) begins: Look around for me."
    assert rows[first_row + 1 : first_row + 6] == [
        "? May edit_file change a file?", "  hello.py", "  -hi", "  +hello",
        "  no rule allows it",
    ]  # fmt: skip
    assert "  └ yes, and edit_file(./hello.py) for this session" in rows
    assert any(
        row.startswith(
            "child-1 (explore) is done · Look around for me. · 900 in · 10 out · $0.25"
        )
        for row in rows
    )
    assert scripted_terminal.events(Granted, ChildAnswered) == [
        Granted("edit_file(./hello.py)"),
        ChildAnswered("child-1/c7", True, hash="h1"),
    ]


def test_a_refusal_and_its_reason_are_sent_to_the_subagent(tmp_path: Path) -> None:
    _, scripted_terminal = run_with_child(
        tmp_path, child_task_with(child_question("edit_file", EDIT)), "n", "not yet"
    )

    assert scripted_terminal.events(ChildAnswered) == [
        ChildAnswered("child-1/c7", False, "not yet", hash="h1")
    ]


def test_questions_of_a_subagent_are_asked_under_its_name(tmp_path: Path) -> None:
    rows, scripted_terminal = run_with_child(
        tmp_path, child_task_with(child_question(ASK_USER, ASK)), "blue", "so"
    )

    assert rows.count("child-1 (explore) asks:") == 2
    assert scripted_terminal.events(ChildAnswered) == [
        ChildAnswered("child-1/c7", True, "", ("blue", "so"), hash="h1")
    ]


def test_control_sequences_in_subagent_names_are_escaped(tmp_path: Path) -> None:
    hostile = child_question("edit_file", EDIT, agent="\x1b[2Jmain\u202e")

    rows, _ = run_with_child(tmp_path, child_task_with(hostile), "y")

    assert "child-1 (\\x1b[2Jmain\\u202e) asks:" in rows


def test_ctrl_c_at_a_question_of_a_subagent_stops_the_turn(tmp_path: Path) -> None:
    rows, scripted_terminal = run_with_child(
        tmp_path, child_task_with(child_question("edit_file", EDIT)), Key.CTRL_C
    )

    assert "stopped at a question" in rows
    assert scripted_terminal.events(Stopped) == [Stopped("stopped at a question")]


def test_a_question_that_a_subagent_withdraws_is_removed(tmp_path: Path) -> None:
    late = child_task_with(child_question("edit_file", EDIT))

    @tool(Effect.SELF)
    async def child_task(*, record: Recorder) -> Reply:
        """Have a child at work that is stopped while it asks."""

        async def run() -> None:
            await late.run(record=record)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            while not record.view.children.asks:
                await record.wait_for_event(after=record.view.seq)
            for _ in range(50):  # until it stands on the screen
                await anyio.lowlevel.checkpoint()
            await record(ChildAnswered("child-1/c7", withdrawn=True))
        return Reply("so it was")

    async def press_nothing() -> str | Key:
        await anyio.sleep_forever()
        return ""

    rows, _ = run_with_child(tmp_path, child_task, press_nothing)

    assert "  └ no longer asked" in rows


@pytest.fixture
def here(tmp_path: Path) -> Callable[[Sequence[str]], tuple[list[str], ScriptedTerminal]]:
    """Return what commands say while a child is at work, which ends when it is stopped."""

    def tell(commands: Sequence[str]) -> tuple[list[str], ScriptedTerminal]:
        scripted_terminal = ScriptedTerminal(tmp_path, "Done.")

        async def run_story() -> None:
            session = await scripted_terminal.session()
            await session.record(BORN)
            session.record.publish(MOVED)
            session.record.publish(replace(MOVED, node="child-1/child-1", title="deeper"))
            await scripted_terminal.converse(Typist(*commands), session=session)

        anyio.run(run_story)
        return [
            row for row in scripted_terminal.out.getvalue().split("\n") if row
        ], scripted_terminal

    return tell


def test_tree_shows_each_subagent_with_its_task_tokens_and_cost(
    here: Callable[[Sequence[str]], tuple[list[str], ScriptedTerminal]],
) -> None:
    rows, _ = here(["/tree", "/tree all"])

    matching_rows = [row for row in rows if "child-1" in row]
    assert matching_rows[0].startswith(
        "child-1 (explore) runs · Look around for me. · 12.3k tokens"
    )
    assert (
        matching_rows[1] == "    child-1/child-1 (explore) · deeper · 12.3k tokens · $0.50"
    )
    assert "type /tree, not /tree all: refold tree shows any session" in rows


def test_stop_command_ends_one_subagent_or_all_and_names_them(
    here: Callable[[Sequence[str]], tuple[list[str], ScriptedTerminal]],
) -> None:
    rows, scripted_terminal = here(["/stop child-9", "/stop child-1", "/stop", "/tree"])

    assert "nothing called 'child-9' is running; running now: child-1" in rows
    assert "Stopping child-1, and the subagents below." in rows
    assert "It is being stopped already." in rows
    assert "    asked to end: stopped by the person" in rows
    assert scripted_terminal.events(ChildStopped) == [ChildStopped("child-1")]


def test_tree_and_stop_commands_report_that_no_subagent_runs(tmp_path: Path) -> None:
    scripted_terminal = ScriptedTerminal(tmp_path, "Done.")

    rows = scripted_terminal.tell("/tree", "/stop")

    assert "No subagents: the tool `task` starts one." in rows
    assert "no subagent is running" in rows


def test_stop_command_with_an_unknown_name_lists_running_background_commands(
    tmp_path: Path,
) -> None:
    scripted_terminal = ScriptedTerminal(tmp_path)
    typist = Typist("/stop", "/stop background-9", "/stop background-1 background-2")

    async def run_story() -> None:
        session = await scripted_terminal.session()
        names = ("background-1", "background-2")
        runs = [BackgroundStarted(name, "make", "c1", str(tmp_path)) for name in names]
        await session.record.append_if(lambda _: runs)
        await scripted_terminal.converse(typist, session=session)

    anyio.run(run_story)

    rows, there = (
        scripted_terminal.out.getvalue().split("\n"),
        "running now: background-1, background-2",
    )
    assert (
        "no subagent is running; in the background run background-1, background-2: "
        "/stop NAME stops one" in rows
    )
    assert f"nothing called 'background-9' is running; {there}" in rows
    assert f"nothing called 'background-1 background-2' is running; {there}" in rows
    assert "Ended with the session: background-1 (make), background-2 (make)" in rows


def test_a_line_of_the_tree_fits_a_narrow_screen() -> None:
    child = Child(BORN, 1)
    done = Child(replace(BORN, child="child-2", title="\x1b]0;x"), 2, end=ENDED)
    family = Children((child, done))

    wide = [plain_text([row]) for row in child_lines(family, {}, 0)]
    narrow = [plain_text([row]) for row in child_lines(family, {"child-1": MOVED}, 40)]

    assert wide == [
        "child-1 (explore) runs · Look around for me. · nothing yet",
        "child-2 (explore) done · \\x1b]0;x · 900 in · 10 out · $0.25",
    ]
    assert all(len(row) <= 40 for row in narrow)


def test_status_summary_names_running_subagents_and_their_cost_so_far() -> None:
    two = Child(replace(BORN, child="child-2"), 3)
    over = Child(BORN, 2, end=ENDED)
    deep = replace(MOVED, node="child-2/child-1", label="grep x")

    one = running_summary(Children((Child(BORN, 2),)), {"child-1": MOVED}, 1)
    rest = running_summary(Children((over, two)), {"child-2": MOVED, deep.node: deep}, 1)
    both = running_summary(Children((Child(BORN, 2), two)), {"child-1": MOVED}, 1)
    later = running_summary(Children((over, two)), {}, 2)
    member = Child(replace(BORN, child="child-2", teammate="ann"), 3)
    team = running_summary(
        Children((Child(BORN, 2), member)), {"child-2": replace(MOVED, node="child-2")}, 1
    )

    assert one == "child-1 (explore) · 12.3k tokens · $0.50 · read_file hello.py"
    assert rest == (
        "child-2 (explore) · 13.3k tokens · $0.75 · child-2/child-1 (explore): grep x"
    )
    assert both == (
        "2 subagents · 12.3k tokens · $0.50 · child-1 (explore): read_file hello.py"
    )
    assert later == "child-2 (explore) · begins"
    assert team.endswith(" · ann (child-2, explore): read_file hello.py")
    assert running_summary(Children((over,)), {}, 1) == ""


def test_the_status_line_names_a_subagent_while_the_session_waits() -> None:
    doing = StatusLine(lambda: 3.0, "-")

    assert doing.line() == ()
    assert plain_text([doing.line(line_below="child-1 (explore) · begins")]).startswith(
        "- waiting 3.0 s  child-1 (explore) · begins  "
    )


def test_a_task_result_is_shown_only_for_a_subagent_with_its_own_git_branch(
    tmp_path: Path,
) -> None:
    call = ToolCall("call-0", "task", Raw(b'{"prompt":"Look.","agent":"explore"}'))
    conversation = (
        SessionStarted("/w"), TurnStarted(2), ModelAsked(),
        ModelAnswered(Message("assistant", (call,))), Started("call-0"),
    )  # fmt: skip
    done = Ended("call-0", "done", "Seen.", (Note("child-1 done: look"),))

    here = print_events(*conversation, BORN, ENDED, done)
    apart = print_events(*conversation, replace(BORN, branch="refold/x"), ENDED, done)

    news = [
        "child-1 (explore) begins: Look around for me.",
        "child-1 (explore) is done · Look around for me. · 900 in · 10 out · $0.25",
    ]
    assert here == news
    assert apart == [*news, "● task explore", "  └ child-1 done: look"]


def test_a_subagent_report_is_shown_without_the_tags_for_the_model(
    tmp_path: Path,
) -> None:
    words = '<child name="child-1" agent="explore" status="done">\nchild-1 is done.\n\nTwo.\n</child>'
    report = Said(words, "child-1", when="now")

    rows, _ = run_with_child(tmp_path, child_task_with(report, until=Said))

    first_row = rows.index("child-1 reports:")
    assert rows[first_row + 1] == "  Two."
    assert rows[first_row + 2].startswith(
        "child-1 (explore) is done · Look around for me. · 900 in · 10 out · $0.25 · "
    )
    assert not [row for row in rows if "<child" in row or row == "› Two."]


def test_the_report_of_a_teammate_is_shown_under_its_name() -> None:
    words = (
        '<child name="child-2" teammate="ada" agent="code" status="done">\nTwo.\n</child>'
    )

    assert print_events(Said(words, "child-2"))[0] == "ada (child-2) reports:"


def test_a_question_from_a_subagent_in_another_git_worktree_names_the_worktree() -> None:
    apart = Children((Child(replace(BORN, branch="refold/x"), 1),))

    assert child_label("child-1 (code)", apart) == (
        "child-1 (code), in its own git worktree,"
    )
    assert child_label("child-1/child-2 (code)", apart).endswith("in its own git worktree,")
    assert child_label("child-1 (code)", Children((Child(BORN, 1),))) == "child-1 (code)"
    assert child_label("", apart) == ""


def live_printer(out: io.StringIO) -> TranscriptPrinter:
    """Return what prints on a screen where rows can be erased."""
    look = TerminalCapabilities(
        moves=True, cursor_up_sequence="\x1b[A", height=lambda: 24, text_width=lambda: 90
    )
    return TranscriptPrinter(Printer(out, look), lambda: 3.0, TOOLS.get)


def test_each_running_subagent_has_a_status_row_and_then_two_lines_of_its_report() -> None:
    out = io.StringIO()
    showing = live_printer(out)
    two = replace(BORN, child="child-2", title="the other")
    report = replace(ENDED, text="# Found\n\nIt is in `parse`.\n" + "word " * 60)
    events: list[Event] = [SessionStarted("/w"), TurnStarted(1), BORN, two]

    for seq, event in enumerate(events, start=1):
        showing.show(Frame(seq, 0, Entry(seq, event)))
    showing.show(Frame(4, 1, MOVED))
    showing.show(Frame(4, 2, SubagentDelta("child-2", TextCame("The other  one\nis"))))
    showing.show(Frame(4, 3, replace(MOVED, node="child-2", label="begins", tokens=0)))
    showing.show(Frame(4, 4, SubagentDelta("child-2", TextCame("I see"))))
    rows = [plain_text([row]) for row in showing.subagent_rows()]
    text = out.getvalue()
    showing.show(Frame(5, 0, Entry(5, report, at=9.0)))

    assert text == ""  # that they begin is seen
    assert [" ".join(row.split()) for row in rows] == [
        "child-1 (explore) Look around for me.: read_file hello.py 12.3k tokens · 0.0 s",
        "child-2 (explore) the other: … I see 0 tokens · 0.0 s",
    ]
    assert all(len(row) <= 89 for row in rows)
    told_ = out.getvalue().rstrip("\n").split("\n")
    assert told_[0].startswith("child-1 (explore) is done · Look around for me. · 900 in")
    assert told_[-2].startswith("  └ # Found It is in `parse`. word word")
    assert told_[-1].startswith("    word")
    assert told_[-1].endswith("…")
    assert len(told_[-1]) <= 90


def test_text_in_wide_characters_that_a_subagent_writes_keeps_its_end() -> None:
    family = Children((Child(BORN, 1),))
    newest = {"child-1": replace(MOVED, label="… " + "文" * 60 + "終")}

    (row,) = live_rows(family, newest, {}, 80, 4)

    assert "終 " in plain_text([row])
    assert cells(plain_text([row])) <= 79


def test_more_subagents_than_fit_are_counted_in_the_last_row() -> None:
    family = Children(
        tuple(Child(replace(BORN, child=f"child-{n}"), n) for n in range(1, 10))
    )

    rows = [plain_text([row]) for row in live_rows(family, {}, {}, 80, 4)]

    assert len(rows) == 4
    assert rows[-1] == "  … 6 more, see /tree"
    assert live_rows(family, {}, {}, 80, 0) == []
