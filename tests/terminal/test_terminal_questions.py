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
    ModeChanged,
    PlanAnswered,
    Said,
    Stopped,
)
from refold.terminal.work import Work
from tests.terminal.stage import ALWAYS, ASK, BETTER, EDIT, PLAN, READ, RUN
from tests.terminal.test_conversation import HELLO, NEVER, Evening, Typed, Typist

Evenings = Callable[..., Evening]


@pytest.fixture
def evening(tmp_path: Path) -> Evenings:
    return lambda *lines, **more: Evening(tmp_path, *lines, **more)


def test_an_always_rule_is_confirmed_saved_and_applied_in_the_next_session(
    evening: Evenings, tmp_path: Path
) -> None:
    tonight = evening([READ], [EDIT], "Done.")

    rows = tonight.tell("go", "a", "n", "a", "y")

    assert rows.count("Always allowed in this folder, in .folders.toml:") == 2
    assert "  └ yes, and edit_file(./hello.py) always" in rows
    assert tonight.events(Granted) == [Granted("edit_file(./hello.py)")]
    assert (tmp_path / ALWAYS).read_text() == "edit_file(./hello.py)\n"
    tomorrow = evening([READ], [EDIT], "Done.")
    assert "? Edit hello.py?" not in tomorrow.tell("go")
    assert 'return "hello"' in (tmp_path / "hello.py").read_text()


def test_a_rule_that_cannot_be_saved_holds_for_the_session(tmp_path: Path) -> None:
    tonight = Evening(tmp_path, [READ], [EDIT], "Done.")

    def full(rule: str) -> None:
        raise BadInput("the disk is full")

    rows = tonight.tell("go", "a", "y", always=full)

    assert "the disk is full" in rows
    assert tonight.events(Granted, Answered) == [
        Granted("edit_file(./hello.py)"),
        Answered("call-1", True),
    ]


def test_a_call_that_no_rule_can_cover_can_only_be_allowed_once(evening: Evenings) -> None:
    guarded = ("write_file", '{"path": ".env", "content": "KEY=1"}')
    tonight = evening([guarded], "Done.")

    typist = Typist("go", "s", "a", "y")
    tonight.tell(typist=typist)

    assert [a for a in typist.asked if "once" in a] == [
        "› 1 once (y) · 2 no, and why (n) · tab amend · esc no, and stop "
    ] * 3
    assert tonight.events(Granted, Answered) == [Answered("call-0", True)]
    (judged,) = tonight.events(Judged)
    assert isinstance(judged, Judged)
    assert judged.once


def test_a_question_shows_network_access_and_the_sandbox(evening: Evenings) -> None:
    fetch = ("bash", '{"command": "curl example.org", "network": true}')
    tonight = evening([fetch], [RUN], "Done.")

    rows = tonight.tell("go", "n", "", "n", "", sandboxed=True)

    assert "  in the sandbox · network: every host" in rows
    assert "  in the sandbox · network: off" in rows


def test_a_question_that_times_out_is_refused_and_reported(evening: Evenings) -> None:
    tonight = evening([READ], [EDIT], "Well.")
    tonight.question_timeout = 0.05

    rows = tonight.tell("go", NEVER)

    assert "  └ no: no answer came within 0.05 s" in rows
    assert rows[-4:-2] == ["Well.", "hello.py was not written: it was refused"]
    assert tonight.events(Answered) == [
        Answered("call-1", False, "no answer came within 0.05 s")
    ]
    assert (tonight.here / "hello.py").read_text() == HELLO


def test_questions_of_the_model_are_answered_by_number_or_text(evening: Evenings) -> None:
    tonight = evening([ASK], "Thank you.")

    rows = tonight.tell("go", "4", "1,2", "2", "1, 3", "Sea salt")

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
    assert tonight.events(Answered) == [
        Answered("call-0", True, answers=("blue", "small, huge", "Sea salt"))
    ]
    (end,) = tonight.events(Ended)
    assert isinstance(end, Ended)
    assert end.text == (
        "Which colour?\n  blue\nWhich sizes?\n  small, huge\nA name?\n  Sea salt"
    )


def test_an_empty_answer_to_a_question_of_the_model_is_sent(evening: Evenings) -> None:
    tonight = evening([ASK], "Thank you.")

    tonight.tell("go", "", Key.ESC, "red\x1b[31m")

    assert tonight.events(Answered) == [
        Answered("call-0", True, answers=("", "", "red\x1b[31m"))
    ]
    assert "\x1b" not in tonight.out.getvalue()


def test_ctrl_c_at_a_question_of_the_model_stops_the_turn(evening: Evenings) -> None:
    tonight = evening([ASK], "never said")

    rows = tonight.tell("go", "1", Key.CTRL_C)

    assert "stopped at a question" in rows
    assert tonight.events(Stopped, Answered) == [Stopped("stopped at a question")]


@pytest.mark.parametrize("call", [RUN, ASK], ids=["a call", "a question"])
def test_a_stop_at_a_question_is_shown_at_the_question_and_for_the_turn(
    evening: Evenings, call: tuple[str, str]
) -> None:
    tonight = evening([call], "never said")

    rows = tonight.tell("go", Key.CTRL_C)

    assert [row for row in rows[1:] if "stop" in row.lower()] == [
        "  └ stopped", "stopped at a question",
    ]  # fmt: skip


def test_a_refusal_of_several_calls_is_printed_once(
    evening: Evenings,
) -> None:
    other = ("bash", '{"command": "touch other"}')
    tonight = evening([RUN, other, READ], "So be it.")

    rows = tonight.tell("go", "n", "not this", "n", "")

    assert [row for row in rows if row.startswith(("  └", "●"))] == [
        "  └ no: not this", "  └ no", "● read_file hello.py", "  └ read hello.py, 4 lines",
    ]  # fmt: skip


def test_answers_to_the_model_are_not_printed_again_as_a_result(evening: Evenings) -> None:
    tonight = evening([ASK], [RUN], "Thank you.")

    rows = tonight.tell("go", "2", "1", "Sea salt", "y")

    assert [row for row in rows if row.startswith("  └")] == [
        "  └ blue", "  └ small", "  └ Sea salt", "  └ yes, once", "  └ hi",
    ]  # fmt: skip


def test_a_refusal_by_rules_is_shown_without_the_text_for_the_model(
    evening: Evenings,
) -> None:
    tonight = evening([RUN], "So it is.")

    rows = tonight.tell("/plan be friendly")

    (text,) = (row for row in rows if row.startswith("  └"))
    assert text.startswith("  └ refused: plan mode runs only read-only commands")
    assert not any("get round" in row for row in rows)


def test_the_title_of_a_plan_is_not_repeated_above_a_plan_that_begins_with_it(
    evening: Evenings,
) -> None:
    plan = ("exit_plan_mode", '{"plan": "# Greet\\n\\nSay hello"}')
    tonight = evening([plan], "Carried out.")

    rows = tonight.tell("/plan be friendly", "n")

    assert [row for row in rows if "Greet" in row] == ["# Greet"]
    assert "? The plan" in rows


def test_questions_of_the_model_answered_by_another_client_are_removed(
    evening: Evenings,
) -> None:
    tonight = evening([ASK], "Thank you.")

    async def run_story() -> str | None:
        async with await tonight.session() as session:

            async def somebody_else() -> str | Key:
                await session.inbox.answer("call-0", allowed=True, answers=("red",))
                await anyio.sleep_forever()
                return ""

            work = Work(tonight.handle(session), tonight.paper, Typist(somebody_else))
            await session.inbox.say("go")
            await work.run_until_over(session.run_turns)
            return session.view.turn.outcome

    assert anyio.run(run_story) == "answered"
    assert "  └ answered elsewhere\n" in tonight.out.getvalue()


def test_a_plan_is_shown_approved_and_carried_out(evening: Evenings) -> None:
    tonight = evening([READ], [PLAN], [EDIT], "Carried out.")

    typist = Typist("/plan be friendly", "y", "y")
    rows = tonight.tell(typist=typist)

    assert [a for a in typist.asked if a.endswith("› ")] == ["› ", "› "]
    position = rows.index("? The plan: A friendlier hello")
    assert rows[position : position + 4] == [
        "? The plan: A friendlier hello",
        "# Greet",
        "1. **Change** the greeting",
        "  └ approved, in mode default",
    ]
    assert "Carried out." in rows
    assert tonight.events(ModeChanged) == [ModeChanged("plan"), ModeChanged("default")]
    assert 'return "hello"' in (tonight.here / "hello.py").read_text()


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
    evening: Evenings, before: str, key: str, follows: str
) -> None:
    tonight = evening([PLAN], "Carried out.")

    typist = Typist(f"/mode {before}", "/plan be friendly", key)
    rows = tonight.tell(typist=typist)

    assert f"  └ approved, in mode {follows}" in rows
    assert tonight.events(ModeChanged)[-1] == ModeChanged(follows)  # type: ignore[arg-type]
    yes = (
        "approve, ask for each edit"
        if before != "rules-only"
        else "approve, in mode rules-only"
    )
    assert any(f"1 {yes} (y)" in row for row in typist.asked)


def test_plans_command_renders_an_old_plan_as_it_was_first_rendered(
    evening: Evenings,
) -> None:
    tonight = evening([PLAN], "Well.")
    tonight.paper = Printer(
        tonight.out, TerminalCapabilities(color=True, style_sequences={})
    )

    rows = tonight.tell("/plan be friendly", "n", "", "/plans 1")

    assert rows.count("1. Change the greeting") == 2


def test_plan_mode_refuses_edits_and_commands_without_asking(evening: Evenings) -> None:
    tonight = evening([READ], [EDIT], [RUN], "So it is.")

    rows = tonight.tell("/plan", "be friendly")

    assert [row for row in rows if row.startswith("? ")] == []
    assert [e.outcome for e in tonight.events(Ended) if isinstance(e, Ended)] == [
        "done", "refused", "refused",
    ]  # fmt: skip
    assert (tonight.here / "hello.py").read_text() == HELLO


def test_a_plan_edited_in_the_editor_is_carried_out_as_edited(
    evening: Evenings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i s/greeting/farewell/")
    tonight = evening([PLAN], "Carried out.")

    rows = tonight.tell("/plan go", "e", "y")

    assert "1. **Change** the farewell" in rows
    assert "  └ approved, as you edited it, in mode default" in rows
    (result,) = tonight.events(PlanAnswered)
    assert isinstance(result, PlanAnswered)
    assert result.text == "# Greet\n\n1. **Change** the farewell"
    event = tonight.events(Said)[-1]
    assert isinstance(event, Said)
    assert "the farewell" in event.text


@pytest.mark.parametrize("editor", ["", "no-such-editor-here", "false"])
def test_without_an_editor_changes_to_a_plan_are_typed(
    evening: Evenings, monkeypatch: pytest.MonkeyPatch, editor: str
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    tonight = evening([PLAN], "Carried out.")

    tonight.tell("/plan go", "e", "My own plan", "y")

    (result,) = tonight.events(PlanAnswered)
    assert isinstance(result, PlanAnswered)
    assert (result.approved, result.text) == (True, "My own plan")


def test_feedback_makes_the_model_revise_the_plan(evening: Evenings) -> None:
    tonight = evening([PLAN], [BETTER], "Carried out.")

    rows = tonight.tell("/plan go", "f", "shorter", "y", "/plan list")

    assert "  └ to be revised: shorter" in rows
    assert "? The plan: Simpler" in rows
    states = [
        e.approved for e in tonight.events(PlanAnswered) if isinstance(e, PlanAnswered)
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
    evening: Evenings,
) -> None:
    tonight = evening([PLAN], "Carried out.")

    rows = tonight.tell("/plan go", Key.ESC, "/plan", Key.CTRL_C, "/execute")

    assert rows.count("? The plan: A friendlier hello") == 2
    assert "approved: A friendlier hello" in rows
    assert "Carried out." in rows


def test_rejecting_a_plan_keeps_plan_mode_and_execute_ends_plan_mode(
    evening: Evenings,
) -> None:
    tonight = evening([PLAN])

    typist = Typist("/mode accept-edits", "/plan go", "n", "/execute", "/execute")
    rows = tonight.tell(typist=typist)

    assert typist.asked[1::2][:2] == ["accept-edits › ", "plan › "]
    assert "  └ rejected" in rows
    assert "Plan mode is off. The mode is accept-edits." in rows
    assert "There is no plan to approve. /plan starts one." in rows


def test_a_pending_plan_is_shown_again_after_resume(evening: Evenings) -> None:
    tonight = evening([PLAN], "Carried out.")
    tonight.tell("/plan go", Key.ESC)

    rows = tonight.tell("y")

    assert "? The plan: A friendlier hello" in rows
    assert "Carried out." in rows


def test_a_plan_approved_by_another_client_is_carried_out(evening: Evenings) -> None:
    tonight = evening([PLAN], "Carried out.")
    typed: list[Typed] = ["/plan go"]

    async def run_story() -> None:
        async with await tonight.session() as session:

            async def somebody_else() -> str | Key:
                await session.inbox.approve_plan()
                await anyio.sleep_forever()
                return "n"

            await tonight.converse(Typist(*typed, somebody_else), session=session)

    anyio.run(run_story)

    assert "  └ answered elsewhere\n" in tonight.out.getvalue()
    assert "Carried out." in tonight.out.getvalue()


def test_part_of_a_mode_name_is_answered_with_the_displayed_mode_name(
    evening: Evenings,
) -> None:
    rows = evening().tell("/mode rules")

    assert "'rules' is not a mode. Did you mean rules-only?" in rows


def test_modes_have_aliases_and_an_unknown_mode_is_answered_with_the_nearest(
    evening: Evenings,
) -> None:
    tonight = evening()

    rows = tonight.tell(
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


def test_rules_are_listed_with_where_they_come_from(evening: Evenings) -> None:
    tonight = evening([READ], [EDIT], "Done.")
    (tonight.here / ALWAYS).write_text("bash(git log *)\n")

    rows = tonight.tell(
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
    evening: Evenings,
) -> None:
    tonight = evening("One.", "Two.", "Three.")

    rows = tonight.tell(
        "first", "second", "/rewind", "/undo", "n", "/undo", "y", "/rewind x"
    )

    assert any("first" in row and "20" in row for row in rows)
    assert rows.count("Nothing was changed.") == 1
    assert any(
        row.startswith("The conversation was rewound. To undo this: ") for row in rows
    )
    assert any(row.startswith("type /rewind, or /rewind N") for row in rows)


def test_another_session_in_the_same_folder_sees_only_its_own_grants(
    evening: Evenings, tmp_path: Path
) -> None:
    tonight = evening([READ], [EDIT], "Done.")
    tonight.tell("go", "s")
    (tmp_path / "hello.py").write_text(HELLO)
    tomorrow = Evening(tmp_path, [READ], [EDIT], "Done.")

    rows = tomorrow.tell("go", "n", "")

    assert "? Edit hello.py?" in rows
