"""What waits for the user: calls, questions, plans. Without a terminal."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.console.reader import Key
from refold.errors import BadInput
from refold.journal.events.kinds import (
    Answered,
    Ended,
    Granted,
    Judged,
    PlanAnswered,
    Said,
    Stopped,
)
from refold.journal.events.setting_events import ModeChanged
from refold.terminal.work import Work
from tests.terminal.stage import ALWAYS, ASK, BETTER, EDIT, PLAN, READ, RUN
from tests.terminal.test_conversation import HELLO, NEVER, ScriptedTerminal, Typed, Typist

OpenScriptedTerminal = Callable[..., ScriptedTerminal]


@pytest.fixture
def scripted_terminal(tmp_path: Path) -> OpenScriptedTerminal:
    return lambda *lines, **more: ScriptedTerminal(tmp_path, *lines, **more)


def test_an_always_rule_is_confirmed_saved_and_applied_in_the_next_session(
    scripted_terminal: OpenScriptedTerminal, tmp_path: Path
) -> None:
    terminal = scripted_terminal([READ], [EDIT], "Done.")

    rows = terminal.tell("go", "a", "n", "a", "y")

    assert rows.count("Always allowed in this folder, in .folders.toml:") == 2
    assert "  └ yes, and edit_file(./hello.py) always" in rows
    assert terminal.events(Granted) == [Granted("edit_file(./hello.py)")]
    assert (tmp_path / ALWAYS).read_text() == "edit_file(./hello.py)\n"
    tomorrow = scripted_terminal([READ], [EDIT], "Done.")
    assert "? Edit hello.py?" not in tomorrow.tell("go")
    assert 'return "hello"' in (tmp_path / "hello.py").read_text()


def test_a_rule_that_cannot_be_saved_holds_for_the_session(tmp_path: Path) -> None:
    terminal = ScriptedTerminal(tmp_path, [READ], [EDIT], "Done.")

    def full(rule: str) -> None:
        raise BadInput("the disk is full")

    rows = terminal.tell("go", "a", "y", always=full)

    assert "the disk is full" in rows
    assert terminal.events(Granted, Answered) == [
        Granted("edit_file(./hello.py)"),
        Answered("call-1", True),
    ]


def test_a_call_that_no_rule_can_cover_can_only_be_allowed_once(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    guarded = ("write_file", '{"path": ".env", "content": "KEY=1"}')
    terminal = scripted_terminal([guarded], "Done.")

    typist = Typist("go", "s", "a", "y")
    terminal.tell(typist=typist)

    assert [a for a in typist.asked if "once" in a] == [
        "› 1 once (y) · 2 no, and why (n) · tab amend · esc no, and stop "
    ] * 3
    assert terminal.events(Granted, Answered) == [Answered("call-0", True)]
    (judged,) = terminal.events(Judged)
    assert isinstance(judged, Judged)
    assert judged.once


def test_a_question_shows_network_access_and_the_sandbox(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    fetch = ("bash", '{"command": "curl example.org", "network": true}')
    terminal = scripted_terminal([fetch], [RUN], "Done.")

    rows = terminal.tell("go", "n", "", "n", "", sandboxed=True)

    assert "  in the sandbox · network: every host" in rows
    assert "  in the sandbox · network: off" in rows


def test_a_question_that_times_out_is_refused_and_reported(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([READ], [EDIT], "Well.")
    terminal.question_timeout = 0.05

    rows = terminal.tell("go", NEVER)

    assert "  └ no: no answer came within 0.05 s" in rows
    assert rows[-4:-2] == ["Well.", "hello.py was not written: it was refused"]
    assert terminal.events(Answered) == [
        Answered("call-1", False, "no answer came within 0.05 s")
    ]
    assert (terminal.here / "hello.py").read_text() == HELLO


def test_questions_of_the_model_are_answered_by_number_or_text(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([ASK], "Thank you.")

    rows = terminal.tell("go", "4", "1,2", "2", "1, 3", "Sea salt")

    assert rows[2:10] == [
        "? The model asks you (1 of 3)",
        "  Which colour?",
        "  1 red",
        "  2 blue",
        "    like the sea",
        "Only one can be chosen. 4 is not one of the choices.",
        "Only one can be chosen. 1,2 is not one of the choices.",
        "  └ blue",
    ]
    assert terminal.events(Answered) == [
        Answered("call-0", True, answers=("blue", "small, huge", "Sea salt"))
    ]
    (end,) = terminal.events(Ended)
    assert isinstance(end, Ended)
    assert end.text == (
        "Which colour?\n  blue\nWhich sizes?\n  small, huge\nA name?\n  Sea salt"
    )


def test_an_empty_answer_to_a_question_of_the_model_is_sent(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([ASK], "Thank you.")

    terminal.tell("go", "", Key.ESC, "red\x1b[31m")

    assert terminal.events(Answered) == [
        Answered("call-0", True, answers=("", "", "red\x1b[31m"))
    ]
    assert "\x1b" not in terminal.out.getvalue()


def test_ctrl_c_at_a_question_of_the_model_stops_the_turn(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([ASK], "never said")

    rows = terminal.tell("go", "1", Key.CTRL_C)

    assert "stopped at a question" in rows
    assert terminal.events(Stopped, Answered) == [Stopped("stopped at a question")]


@pytest.mark.parametrize("call", [RUN, ASK], ids=["a call", "a question"])
def test_a_stop_at_a_question_is_shown_at_the_question_and_for_the_turn(
    scripted_terminal: OpenScriptedTerminal, call: tuple[str, str]
) -> None:
    terminal = scripted_terminal([call], "never said")

    rows = terminal.tell("go", Key.CTRL_C)

    assert [row for row in rows[1:] if "stop" in row.lower()] == [
        "  └ stopped", "stopped at a question",
    ]  # fmt: skip


def test_a_refusal_of_several_calls_is_printed_once(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    other = ("bash", '{"command": "touch other"}')
    terminal = scripted_terminal([RUN, other, READ], "So be it.")

    rows = terminal.tell("go", "n", "not this", "n", "")

    assert [row for row in rows if row.startswith(("  └", "●"))] == [
        "  └ no: not this", "  └ no", "● read_file hello.py", "  └ read hello.py, 4 lines",
    ]  # fmt: skip


def test_answers_to_the_model_are_not_printed_again_as_a_result(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([ASK], [RUN], "Thank you.")

    rows = terminal.tell("go", "2", "1", "Sea salt", "y")

    assert [row for row in rows if row.startswith("  └")] == [
        "  └ blue", "  └ small", "  └ Sea salt", "  └ yes, once", "  └ hi",
    ]  # fmt: skip


def test_a_refusal_by_rules_is_shown_without_the_text_for_the_model(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([RUN], "So it is.")

    rows = terminal.tell("/plan be friendly")

    (text,) = (row for row in rows if row.startswith("  └"))
    assert text.startswith("  └ refused: plan mode runs only read-only commands")
    assert not any("get round" in row for row in rows)


def test_the_title_of_a_plan_is_not_repeated_above_a_plan_that_begins_with_it(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    plan = ("exit_plan_mode", '{"plan": "# Greet\\n\\nSay hello"}')
    terminal = scripted_terminal([plan], "Carried out.")

    rows = terminal.tell("/plan be friendly", "n")

    assert [row for row in rows if "Greet" in row] == ["# Greet"]
    assert "? The plan" in rows


def test_questions_of_the_model_answered_by_another_client_are_removed(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([ASK], "Thank you.")

    async def run_story() -> str | None:
        async with await terminal.session() as session:

            async def answer_elsewhere() -> str | Key:
                await session.inbox.answer("call-0", allowed=True, answers=("red",))
                await anyio.sleep_forever()
                return ""

            work = Work(terminal.handle(session), terminal.paper, Typist(answer_elsewhere))
            await session.inbox.say("go")
            await work.run_until_over(session.run_turns)
            return session.view.turn.outcome

    assert anyio.run(run_story) == "answered"
    assert "  └ answered elsewhere\n" in terminal.out.getvalue()


def test_a_plan_is_shown_approved_and_carried_out(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([READ], [PLAN], [EDIT], "Carried out.")

    typist = Typist("/plan be friendly", "y", "y")
    rows = terminal.tell(typist=typist)

    assert [a for a in typist.asked if a.endswith("› ")] == ["› ", "› "]
    position = rows.index("? The plan: A friendlier hello")
    assert rows[position : position + 4] == [
        "? The plan: A friendlier hello",
        "# Greet",
        "1. **Change** the greeting",
        "  └ approved, in mode default",
    ]
    assert "Carried out." in rows
    assert terminal.events(ModeChanged) == [ModeChanged("plan"), ModeChanged("default")]
    assert 'return "hello"' in (terminal.here / "hello.py").read_text()


@pytest.mark.parametrize(
    ("before", "key", "follows"),
    [
        ("default", "a", "accept-edits"),
        ("accept-edits", "y", "default"),
        ("accept-edits", "a", "accept-edits"),
        ("rules-only", "y", "rules-only"),
        ("rules-only", "a", "accept-edits"),
    ],
)
def test_the_permission_mode_after_a_plan_is_shown_and_can_be_chosen(
    scripted_terminal: OpenScriptedTerminal, before: str, key: str, follows: str
) -> None:
    terminal = scripted_terminal([PLAN], "Carried out.")

    typist = Typist(f"/mode {before}", "/plan be friendly", key)
    rows = terminal.tell(typist=typist)

    assert f"  └ approved, in mode {follows}" in rows
    assert terminal.events(ModeChanged)[-1] == ModeChanged(follows)  # type: ignore[arg-type]
    yes = (
        "approve, ask for each edit"
        if before != "rules-only"
        else "approve, in mode rules-only"
    )
    assert any(f"1 {yes} (y)" in row for row in typist.asked)


def test_plans_command_renders_an_old_plan_as_it_was_first_rendered(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([PLAN], "Well.")
    terminal.paper = Printer(
        terminal.out, TerminalCapabilities(color=True, style_sequences={})
    )

    rows = terminal.tell("/plan be friendly", "n", "", "/plans 1")

    assert rows.count("1. Change the greeting") == 2


def test_plan_mode_refuses_edits_and_commands_without_asking(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([READ], [EDIT], [RUN], "So it is.")

    rows = terminal.tell("/plan", "be friendly")

    assert [row for row in rows if row.startswith("? ")] == []
    assert [e.outcome for e in terminal.events(Ended) if isinstance(e, Ended)] == [
        "done", "refused", "refused",
    ]  # fmt: skip
    assert (terminal.here / "hello.py").read_text() == HELLO


def test_a_plan_edited_in_the_editor_is_carried_out_as_edited(
    scripted_terminal: OpenScriptedTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i s/greeting/farewell/")
    terminal = scripted_terminal([PLAN], "Carried out.")

    rows = terminal.tell("/plan go", "e", "y")

    assert "1. **Change** the farewell" in rows
    assert "  └ approved, as you edited it, in mode default" in rows
    (result,) = terminal.events(PlanAnswered)
    assert isinstance(result, PlanAnswered)
    assert result.text == "# Greet\n\n1. **Change** the farewell"
    event = terminal.events(Said)[-1]
    assert isinstance(event, Said)
    assert "the farewell" in event.text


@pytest.mark.parametrize("editor", ["", "no-such-editor-here", "false"])
def test_without_an_editor_changes_to_a_plan_are_typed(
    scripted_terminal: OpenScriptedTerminal, monkeypatch: pytest.MonkeyPatch, editor: str
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    terminal = scripted_terminal([PLAN], "Carried out.")

    terminal.tell("/plan go", "e", "My own plan", "y")

    (result,) = terminal.events(PlanAnswered)
    assert isinstance(result, PlanAnswered)
    assert (result.approved, result.text) == (True, "My own plan")


def test_feedback_makes_the_model_revise_the_plan(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([PLAN], [BETTER], "Carried out.")

    rows = terminal.tell("/plan go", "f", "shorter", "y", "/plan list")

    assert "  └ to be revised: shorter" in rows
    assert "? The plan: Simpler" in rows
    states = [
        e.approved for e in terminal.events(PlanAnswered) if isinstance(e, PlanAnswered)
    ]
    assert states == [False, True]
    assert [row.split("  ")[-1].strip() for row in rows[-3:-1]] == [
        "rejected  A friendlier hello",
        "approved  Simpler",
    ] or [" ".join(row.split()[2:]) for row in rows[-3:-1]] == [
        "rejected A friendlier hello",
        "approved Simpler",
    ]


def test_a_postponed_plan_can_be_approved_with_the_execute_command(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([PLAN], "Carried out.")

    rows = terminal.tell("/plan go", Key.ESC, "/plan", Key.CTRL_C, "/execute")

    assert rows.count("? The plan: A friendlier hello") == 2
    assert "approved: A friendlier hello" in rows
    assert "Carried out." in rows


def test_rejecting_a_plan_keeps_plan_mode_and_execute_ends_plan_mode(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([PLAN])

    typist = Typist("/mode accept-edits", "/plan go", "n", "/execute", "/execute")
    rows = terminal.tell(typist=typist)

    assert typist.asked[1::2][:2] == ["accept-edits › ", "plan › "]
    assert "  └ rejected" in rows
    assert "Plan mode is off. The mode is accept-edits." in rows
    assert "There is no plan to approve. /plan starts one." in rows


def test_a_pending_plan_is_shown_again_after_resume(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([PLAN], "Carried out.")
    terminal.tell("/plan go", Key.ESC)

    rows = terminal.tell("y")

    assert "? The plan: A friendlier hello" in rows
    assert "Carried out." in rows


def test_a_plan_approved_by_another_client_is_carried_out(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([PLAN], "Carried out.")
    typed: list[Typed] = ["/plan go"]

    async def run_story() -> None:
        async with await terminal.session() as session:

            async def answer_elsewhere() -> str | Key:
                await session.inbox.approve_plan()
                await anyio.sleep_forever()
                return "n"

            await terminal.converse(Typist(*typed, answer_elsewhere), session=session)

    anyio.run(run_story)

    assert "  └ answered elsewhere\n" in terminal.out.getvalue()
    assert "Carried out." in terminal.out.getvalue()


def test_part_of_a_mode_name_is_answered_with_the_displayed_mode_name(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    rows = scripted_terminal().tell("/mode rules")

    assert "'rules' is not a mode. Did you mean rules-only?" in rows


def test_modes_have_aliases_and_an_unknown_mode_is_answered_with_the_nearest(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal()

    rows = terminal.tell(
        "/mode acceptEdits", "/mode rulesOnly", "/mode byepass", "/approval off", "/approval",
        "/approval maybe", "/approval on", "/mode",
    )  # fmt: skip

    assert rows[2:10] == [
        "accept-edits: edits inside the workspace run without asking, too",
        "rules-only: only what an allow rule covers runs without asking",
        "'byepass' is not a mode. Did you mean bypass?",
        "bypass: everything runs without asking, except what every mode asks about",
        "off (/approval on|off changes it)",
        "type /approval on or /approval off, not 'maybe'",
        "default: read-only calls run without asking; edits and commands ask",
        "* default       read-only calls run without asking; edits and commands ask",
    ]


def test_rules_are_listed_with_where_they_come_from(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([READ], [EDIT], "Done.")
    (terminal.here / ALWAYS).write_text("bash(git log *)\n")

    rows = terminal.tell(
        "/permissions allow editfile", "/permissions allow Edit(hello.py)", "/permissions",
        "go", "/permissions nonsense",
    )  # fmt: skip

    assert rows[2:7] == [
        rows[2],
        "For this session: Edit(hello.py)",
        "The mode is default: read-only calls run without asking; edits and commands ask",
        "  allow bash(git log *)  always",
        "  allow Edit(hello.py)  this session",
    ]
    assert "names no tool" in rows[2]
    assert "type /permissions, or /permissions allow RULE for this session" in rows
    assert "? Edit hello.py?" not in rows


def test_rewind_works_for_messages_where_no_checkpoints_are_recorded(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal("One.", "Two.", "Three.")

    rows = terminal.tell(
        "first", "second", "/rewind", "/undo", "n", "/undo", "y", "/rewind x"
    )

    assert any("first" in row and "20" in row for row in rows)
    assert rows.count("Nothing was changed.") == 1
    assert any(
        row.startswith("The conversation was rewound. To undo this: ") for row in rows
    )
    assert any(row.startswith("type /rewind, or /rewind N") for row in rows)


def test_another_session_in_the_same_folder_sees_only_its_own_grants(
    scripted_terminal: OpenScriptedTerminal, tmp_path: Path
) -> None:
    terminal = scripted_terminal([READ], [EDIT], "Done.")
    terminal.tell("go", "s")
    (tmp_path / "hello.py").write_text(HELLO)
    tomorrow = ScriptedTerminal(tmp_path, [READ], [EDIT], "Done.")

    rows = tomorrow.tell("go", "n", "")

    assert "? Edit hello.py?" in rows
