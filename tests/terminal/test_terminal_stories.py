"""Stories in a real terminal: every key goes through a pty, every byte onto a screen."""

import json
import os
import re
import signal
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal.pty_terminal import CTRL_C, ENTER, ESC, STAGE, Terminal
from tests.terminal.stage import HISTORY

HELLO = 'def greet():\n    return "hi"\n\nprint(greet())\n'
# What we and the line editor write: colours, the cursor, what is erased, paste mode, titles
# and marks without a person.
OURS = re.compile(r"\x1b\[[?0-9;]*[A-HJKhlmnu]|\x1b\[[0-9 ]*q|\x1b[=>]|\r|\x08|\x07?$")
StartTerminal = Callable[..., Terminal]


@pytest.fixture
def start_terminal(tmp_path: Path, compiled: Path) -> Iterator[StartTerminal]:
    (tmp_path / "hello.py").write_text(HELLO, encoding="utf-8")
    terminals: list[Terminal] = []

    def start(*arguments: str, program: Path = STAGE, **options: object) -> Terminal:
        terminal = Terminal(
            program, *arguments, directory=tmp_path, compiled=compiled, **options
        )  # type: ignore[arg-type]
        terminals.append(terminal)
        return terminal

    yield start
    for terminal in terminals:
        terminal.child.close(force=True)


@pytest.mark.slow
def test_one_edit_is_allowed_and_one_command_is_refused(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal("edit")
    at.until("›")
    at.type("be friendly" + ENTER)
    at.until("Edit hello.py?")
    at.until("2 this session: edit_file(./hello.py)")
    at.answer("y")
    at.until("May bash run this?")
    at.answer("n")
    at.until("why not?")
    at.type("not now" + ENTER)
    at.until("12% of window")
    at.type("/quit" + ENTER)

    assert at.end() == 0
    assert "  └ changed hello.py +1 -1" in at.rows
    assert "  └ no: not now" in at.rows
    assert "Now hello.py says hello." in at.rows
    assert at.rows[at.rows.index("To resume: refold -c") + 1 :] == [""] * (
        39 - at.rows.index("To resume: refold -c")
    )
    assert (tmp_path / "hello.py").read_text(encoding="utf-8") == HELLO.replace(
        "hi", "hello"
    )
    # The questions and the status were erased: only the decisions stay.
    assert "1 once" not in at.text
    assert "why not?" not in at.text
    assert "thinking" not in at.text


@pytest.mark.slow
def test_control_sequences_of_models_and_tools_are_escaped(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("hostile", NO_COLOR="1")
    at.until("›")
    at.type("go" + ENTER)
    at.until("red\\x9b1m")
    at.until(" s\n\n›")
    at.type("/quit" + ENTER)

    assert at.end() == 0
    assert "see \\x1b]0;me\\x07\\u202e" in at.rows
    assert "\\x1b[31mred\\x9b1m" in at.rows
    assert not re.search("[\x00-\x06\x0b-\x1f\x7f-\x9f\u202e]", OURS.sub("", at.raw))
    assert "\x1b]" not in at.raw


@pytest.mark.slow
def test_ctrl_c_stops_the_turn_and_the_next_message_redirects_it(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("slow", size=(20, 60))
    at.until("›")
    at.type("go" + ENTER)
    at.until("word word")
    at.type(CTRL_C)
    at.until("Type what to do instead.\n\n›")
    at.type("be short" + ENTER)
    at.until("As you like.")
    at.until("$0.0002")

    assert at.rows[at.rows.index("› be short") - 3].endswith(" s")


@pytest.mark.slow
def test_one_key_stops_streaming_and_commands(start_terminal: StartTerminal) -> None:
    for story in ("slow", "command"):
        at = start_terminal(story)
        at.until("›")
        at.type("go" + ENTER)
        if story == "command":
            at.answer("y")
            at.until("running")
        else:
            at.until("word word")
        at.type(CTRL_C if story == "slow" else ESC)
        at.until("stopped")
        at.until("instead.\n\n›")
        at.type("\x04")

        assert at.end() == 0


@pytest.mark.slow
def test_text_typed_during_a_turn_is_queued_for_the_next_step(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("command")
    at.until("›")
    at.type("go" + ENTER)
    at.answer("y")
    at.until("running")
    at.type("hurry up")
    at.until("› hurry up")
    at.type(ENTER)
    at.until_gone("send at the next step")
    at.until("running")
    at.type("/quit" + ENTER)
    at.until("after this turn: /quit")
    at.type(ESC)
    at.until("stopped")

    assert at.end() == 0
    assert at.text.count("› hurry up") == 1
    assert "Not sent yet: hurry up. Your next message or Enter sends it." in at.rows


@pytest.mark.slow
def test_keys_typed_before_a_question_do_not_answer_it(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal("late")
    at.until("›")
    at.type("go" + ENTER)
    at.until("word word")
    at.type("y")
    at.until("a question waits: Enter sends your message first\n› y")
    at.type(CTRL_C)
    at.until("\nstopped at a question")
    at.until_asked("› y")

    assert (tmp_path / "hello.py").read_text(encoding="utf-8") == HELLO


@pytest.mark.slow
def test_ctrl_c_at_a_question_stops_the_turn(start_terminal: StartTerminal) -> None:
    at = start_terminal("command")
    at.until("›")
    at.type("go" + ENTER)
    at.until("› 1 once")
    at.type(CTRL_C)
    at.until("\nstopped at a question")


@pytest.mark.slow
def test_an_edit_and_a_command_are_approved_in_a_narrow_terminal(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("edit", size=(60, 24))
    at.until("›")
    at.type("be friendly" + ENTER)
    at.answer("y")
    at.until("python3 hello.py")
    at.answer("y")
    at.until("says hello.")

    assert "I will look first." in at.rows
    assert '  2 +    return "hello"' in at.rows
    assert "Now hello.py says hello." in at.rows


@pytest.mark.slow
def test_an_unknown_command_is_answered_with_the_nearest_name(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("talk")
    at.until("›")
    at.type("/csot" + ENTER)
    at.until("There is no command /csot. Did you mean /cost?")
    at.type("/hel")
    at.until("/help [NAME|all|keys]  list what you can type here")
    at.type("\t")
    at.until("› /help")
    at.type(ENTER)
    at.until("Esc Enter  line break")
    at.type(CTRL_C)
    at.until("Press Ctrl+C again to leave")
    at.type(CTRL_C)

    assert at.end() == 0


@pytest.mark.slow
def test_a_message_of_several_lines_is_sent_and_found_in_the_history(
    start_terminal: StartTerminal,
) -> None:
    for keys in ("one\\" + ENTER + "two" + ENTER, "\x1b[A" + ENTER):
        at = start_terminal("talk")
        at.until("›")
        at.type(keys)
        at.until(" s\n\n›")
        at.type("\x04")

        assert at.end() == 0
        assert at.rows[at.rows.index("› one") + 1] == "  two"


@pytest.mark.slow
def test_a_typed_api_key_is_not_written_to_the_history(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal("talk")
    at.until("›")
    at.type("use sk-ant-api03-" + "A" * 40 + ENTER)
    at.until(" s\n\n›")
    at.type("\x04")

    assert at.end() == 0
    text = (tmp_path / HISTORY).read_text(encoding="utf-8")
    assert "+use " in text
    assert "sk-ant" not in text


@pytest.mark.slow
def test_a_dumb_terminal_gets_only_text(start_terminal: StartTerminal) -> None:
    at = start_terminal("edit", TERM="dumb")
    at.until(">")
    at.type("be friendly\n")
    at.until("> 1 once")
    at.type("y\n")
    at.until("May bash")
    at.until("bash(python3 hello.py)")
    at.type("n\n")
    at.until("why not?")
    at.type("no time\n")
    at.until("says hello.")
    at.until("$0.0054")
    at.type("exit\n")

    assert at.end() == 0
    assert "\x1b" not in at.raw
    assert "Now `hello.py` says hello." in at.rows


@pytest.mark.slow
def test_ctrl_c_in_a_dumb_terminal_asks_before_leaving(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal("command", TERM="dumb")
    at.until(">")
    at.type("go\n")
    at.until("> 1 once")
    at.type("y\n")
    at.until("yes, once")
    at.until_there(tmp_path / "begun")
    at.type(CTRL_C)
    at.until("instead.\n\n>")
    at.type("be short\n")
    at.until("As you like.")
    at.until("$0.0002")
    at.type(CTRL_C)
    at.until("Press Ctrl+C again to leave")
    at.type("\x04")

    assert at.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_terminal_modes_are_restored_after_a_signal(
    start_terminal: StartTerminal, number: signal.Signals
) -> None:
    at = start_terminal("slow")
    at.until("›")
    at.type("go" + ENTER)
    at.until("word word")
    at.child.kill(number)

    assert at.end() == 128 + number
    assert at.modes & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON


@pytest.mark.slow
def test_the_first_run_leads_to_the_tour(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal(program=STAGE.with_name("stage_tour.py"), size=(70, 90))
    at.choose("qwen2.5-coder-1.5b")
    at.until("the model cannot be fetched: no network")
    at.until("4 a guided tour")
    at.answer("1" + ENTER)  # Enter after a digit answers no other question
    at.until("Key or provider:")
    at.type("anthropc")
    at.until("provider: anthropc")  # a name is shown, a key is not
    at.type(ENTER)
    at.until("did you mean anthropic")
    at.type("anthropic" + ENTER)
    at.until("The key for anthropic")
    at.type("sk-or-v1-of-another" + ENTER)
    at.until("This is a key for openrouter. It was not sent.")
    at.until("it is not shown")
    at.type("sk-ant-wrong" + ENTER)
    at.until("anthropic does not accept the key: anthropic does not know this key")
    at.until("2 type another key")
    at.choose("back")
    at.until("4 a guided tour")
    at.choose("a guided tour")
    at.until("Enter begins")
    at.type(ENTER)
    at.until("Edit greet.sh?")
    at.answer("y")
    at.until("May bash run this?")
    at.answer("n")
    at.until("why not?")
    at.type(ENTER)
    at.until("Enter shows the journal")
    at.type(ENTER)
    at.until("That was the tour.")

    assert at.end() == 0
    assert "sk-ant" not in at.raw
    assert not (tmp_path / "key").exists()
    assert any(row.split()[1:2] == ["TurnEnded"] for row in at.rows)


@pytest.mark.slow
def test_an_api_key_that_cannot_be_checked_offline_can_be_saved(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal(program=STAGE.with_name("stage_tour.py"), size=(70, 90))
    at.choose("an API key")
    at.until("Key or provider:")
    at.type("openai" + ENTER)
    at.until("https://platform.openai.com/api-keys")
    at.until("The key for openai")
    at.type("sk-offline" + ENTER)
    at.until("The key could not be checked: no network")
    at.until("2 type another key")
    at.choose("keep it unchecked")
    at.until("openai/model is now the default model.")

    assert at.end() == 0
    assert (tmp_path / "key").read_text() == "openai sk-offline"
    assert (tmp_path / "remembered").read_text() == "model = openai/model\n"


@pytest.mark.slow
@pytest.mark.parametrize("key", ["sk-ant-of-mine", "4d1f" * 8])
def test_a_key_pasted_into_the_menu_of_the_first_run_is_hidden_and_used(
    start_terminal: StartTerminal, tmp_path: Path, key: str
) -> None:
    at = start_terminal(program=STAGE.with_name("stage_tour.py"), size=(70, 90))
    at.until("› 1 ")
    at.type(f"\x1b[200~{key}\x1b[201~")
    at.until("*" * len(key))
    at.type(ENTER)
    if key.startswith("4d1f"):
        at.until("Whose key is it?")
        at.type(ENTER)
    at.until("anthropic/model is now the default model.")

    assert at.end() == 0
    assert key not in at.raw
    assert (tmp_path / "key").read_text() == f"anthropic {key}"


@pytest.mark.slow
def test_the_tour_can_be_left_at_any_time(start_terminal: StartTerminal) -> None:
    tour = STAGE.with_name("stage_tour.py")
    for left in ("at the start", "at a question"):
        at = start_terminal("tour", program=tour)
        at.until("Enter begins")
        if left == "at a question":
            at.type(ENTER)
            at.until("› 1 once")
            at.type(CTRL_C)
        else:
            at.type("q")

        assert at.end() == 0
        assert "That was the tour." not in at.text


@pytest.mark.slow
def test_an_always_rule_is_saved_and_applied_in_the_next_session(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal("edit")
    at.until("›")
    at.type("be friendly" + ENTER)
    at.choose("always")
    at.until("Always allowed in this folder, in .folders.toml:")
    at.choose("save it")
    at.until("yes, and edit_file(./hello.py) always")
    at.until("May bash run this?")
    at.answer("n")
    at.until("why not?")
    at.type(ENTER)
    at.until("12% of window")
    at.type("\x04")

    assert at.end() == 0
    (tmp_path / "hello.py").write_text(HELLO, encoding="utf-8")
    at = start_terminal("edit")
    at.until("›")
    at.type("be friendly" + ENTER)
    at.until("May bash run this?")
    assert "Edit hello.py?" not in at.text


@pytest.mark.slow
def test_a_plan_is_edited_approved_and_carried_out(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / "editor").write_text("#!/bin/sh\nsed -i s/greeting/farewell/ $1\n")
    (tmp_path / "editor").chmod(0o755)
    at = start_terminal("plan", VISUAL=str(tmp_path / "editor"))
    at.until("›")
    at.type("/plan be friendly" + ENTER)
    at.until("The plan: A friendlier hello")
    at.choose("edit")
    at.until("Change the farewell")
    at.answer("y")
    at.until("Edit hello.py?")
    at.answer("y")
    at.until("Carried out.")
    at.until(" s\n\n›")
    at.type("/plan list" + ENTER)
    at.until("approved  A friendlier hello\n\n›")
    at.type("\x04")

    assert at.end() == 0
    assert "  └ approved, as you edited it, in mode default" in at.rows
    assert "3 edit" not in at.text


@pytest.mark.slow
def test_a_plan_is_revised_after_feedback_and_can_be_approved_later(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("revise", size=(50, 80))
    at.until("›")
    at.type("/plan be friendly" + ENTER)
    at.choose("feedback")
    at.until("feedback ›")
    at.type("shorter" + ENTER)
    at.until("The plan: Simpler")
    at.until("4 feedback")
    at.type(CTRL_C)
    at.until("The plan waits")
    at.until("plan ›")
    at.type("/execute" + ENTER)
    at.until("Carried out.")
    at.until(" s\n\n›")
    at.type("\x04")

    assert at.end() == 0
    assert "  └ to be revised: shorter" in at.rows


@pytest.mark.slow
def test_changes_to_a_plan_are_typed_where_no_editor_is_set(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("plan", EDITOR="", VISUAL="", size=(50, 80))
    at.until("›")
    at.type("/plan be friendly" + ENTER)
    at.choose("edit")
    at.until("1. **Change** the greeting")
    at.type(", kindly" + ENTER)
    at.until("Change the greeting, kindly")
    at.answer("n")
    at.until("rejected")
    at.until_asked("plan ›")
    at.type("\x04")

    assert at.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_questions_of_the_model_are_answered(
    start_terminal: StartTerminal, term: str
) -> None:
    enter, sign = ("\n", ">") if term == "dumb" else (ENTER, "›")
    at = start_terminal("ask", TERM=term)
    at.until(sign)
    at.type("go" + enter)
    at.until("The model asks you (1 of 3)")
    at.until("1-2 or text" if term == "dumb" else "or type an answer")
    at.type("2" + enter)
    at.until("(2 of 3)")
    at.until("several with commas")
    at.type("1,3" + enter)
    at.until("(3 of 3)")
    at.until("your answer")
    at.type(ESC + enter if term == "dumb" else enter)
    at.until("Thank you.")
    at.until(f" s\n\n{sign}")
    at.type("\x04")

    assert at.end() == 0
    under = "  | " if term == "dumb" else "  └ "
    assert [row.removeprefix(under) for row in at.rows if row.startswith(under)][:3] == [
        "blue",
        "small, huge",
        "no answer",
    ]


@pytest.mark.slow
def test_ctrl_c_at_a_question_of_the_model_stops_the_turn(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("ask")
    at.until("›")
    at.type("go" + ENTER)
    at.until("or type an answer")
    at.type(CTRL_C)
    at.until("\nstopped at a question")


@pytest.mark.slow
def test_shift_tab_cycles_through_the_permission_modes(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("talk")
    at.until("›")
    at.type("half a wor")
    for text in ("accept-edits › half a wor", "plan › half a wor", "\n› half a wor"):
        at.type("\x1b[Z")
        at.until(text)
    at.type("\x1b[Z")
    at.until("accept-edits › half a wor")
    at.type("d" + ENTER)
    at.until("One.")
    at.until(" s\n\naccept-edits ›")
    at.type("/mode bypass" + ENTER)
    at.until("bypass ›")
    at.type("\x1b[Z")
    at.until_gone("\nbypass ›")
    at.type("\x04")

    assert at.end() == 0


@pytest.mark.slow
def test_a_question_that_times_out_is_refused(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal("command", PATIENCE="0.5")
    at.until("›")
    at.type("go" + ENTER)
    at.until("1 once")
    at.until("no: no answer came within 0.5 s")
    at.until("As you like.")

    assert not (tmp_path / "begun").exists()
    assert "no, and why" not in at.text


@pytest.mark.slow
def test_the_end_of_a_padded_command_is_shown_in_its_question(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("hidden")
    at.until("›")
    at.type("go" + ENTER)
    at.until("› 1 once")

    assert "ls … 3000 spaces … ; echo \\u202egone\\u200b" in at.text
    assert "2 hidden characters are written out" in at.text


WRITES = (
    '{"calls": [{"tool": "write_file", "arguments": {"path": "a.txt", "content": "hello"}}]}\n'
    '{"text": "Written."}\n'
)


@pytest.mark.slow
def test_the_settings_of_a_folder_are_shown_and_asked_about_once(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / ".refold").mkdir()
    (tmp_path / ".refold/config.toml").write_text('[permissions]\nallow = ["write_file"]\n')
    (tmp_path / "script").write_text(WRITES)
    program = STAGE.with_name("stage_program.py")
    for answer, result in (("n", True), ("y", True), ("", False)):
        (tmp_path / "a.txt").unlink(missing_ok=True)
        at = start_terminal("--script", "script", program=program)
        if answer:
            at.until("runs without asking: write_file")
            at.answer(answer)
        at.until_asked()
        assert ("Trust the settings of this folder?" in at.text) == result
        assert ("with --trust once" in at.text) == (answer == "n")
        at.type("go" + ENTER)
        if answer == "n":
            at.until("› 1 once")
            at.type(CTRL_C)
            at.until("stopped at a question")
        else:
            at.until("Written.")
        at.until_asked()
        at.type("\x04")

        assert at.end() == 0
        assert (tmp_path / "a.txt").exists() == (answer != "n")


@pytest.mark.slow
def test_commands_make_user_namespaces_only_after_the_user_permits_them_in_a_folder(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    call = {"tool": "bash", "arguments": {"command": "unshare -U true && echo made one"}}
    answers = [{"calls": [call]}, {"text": "Ended."}]
    (tmp_path / "script").write_text("".join(f"{json.dumps(one)}\n" for one in answers))
    program = STAGE.with_name("stage_program.py")
    settings = Path(os.environ["REFOLD_HOME"]) / "config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("[sandbox]\nuser_namespaces = true\n")
    for answer in ("n", "y", ""):
        at = start_terminal("--yolo", "--script", "script", program=program)
        if answer:
            at.until("Permit it in this folder?")
            at.answer(answer)
        at.until_asked("bypass ›")
        assert ("Permit it" in at.text) == bool(answer)
        at.type("go" + ENTER)
        at.until("Ended.")
        at.until(" s\n\nbypass ›")
        at.type("\x04")

        assert at.end() == 0
        assert ("└ made one" in at.text) == (answer != "n"), at.text


@pytest.mark.slow
def test_instructions_of_a_folder_are_shown_and_asked_about_once(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    (tmp_path / "script").write_text('{"text": "Hello."}\n')
    program = STAGE.with_name("stage_program.py")
    for answer in ("n", "y", ""):
        at = start_terminal("--script", "script", program=program)
        if answer:
            at.until("  AGENTS.md (9 bytes)")
            at.until("Trust this folder? Its instructions will be sent to the model.")
            at.answer(answer)
        at.until_asked()
        assert ("Trust this folder?" in at.text) == bool(answer)
        text = " ".join(at.text.split())
        assert ("not trusted, so not read" in text) == (answer == "n"), text
        at.type("\x04")

        assert at.end() == 0


@pytest.mark.slow
def test_changed_instructions_are_shown_and_asked_about_at_the_next_start(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    question = "Send the changed instructions to the model from now on?"
    (tmp_path / "AGENTS.md").write_text("Use tabs.\n")
    (tmp_path / "script").write_text('{"text": "Hello."}\n')
    program = STAGE.with_name("stage_program.py")
    # Trust, then a change that is declined, is not asked about again, and another, accepted.
    for text, result, answer in (
        ("Use tabs.\n", "Trust this folder? Its instructions will be sent to the model.", "y"),
        ("Use spaces.\n", question, "n"),
        ("Use spaces.\n", "", ""),
        ("Use both.\n", question, "y"),
        ("Use both.\n", "", ""),
    ):  # fmt: skip
        (tmp_path / "AGENTS.md").write_text(text)
        at = start_terminal("--script", "script", program=program)
        if result:
            at.until(result)
            at.answer(answer)
        at.until_asked()
        outcome = f"AGENTS.mdchangedsinceyoutrustedit:@@-1,1+1,1@@-Usetabs.+{text}Send"
        assert ("".join(outcome.split()) in "".join(at.text.split())) == (
            result == question
        ), at.text
        at.type("\x04")

        assert at.end() == 0


@pytest.mark.slow
def test_a_rule_is_added_in_the_list_of_permissions(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / "script").write_text(WRITES)
    at = start_terminal("--script", "script", program=STAGE.with_name("stage_program.py"))
    at.until("›")
    at.type("/permissions" + ENTER)
    at.until("+ add a rule")
    at.type(ENTER)
    at.until("allow for this session")
    at.type("deny always" + ENTER)
    at.until("Rule, such as")
    at.type("write_file(*.txt)" + ENTER)
    at.until("From now on: deny write_file(*.txt)")
    at.until("+ add a rule")
    at.type(ESC)
    at.until_asked()
    at.type("go" + ENTER)
    at.until("says deny")
    at.until_asked()
    at.type("/permissions" + ENTER)
    at.until("refused write_file")
    at.type("\x1b[C" * 3)
    at.until_gone("refused write_file")
    at.type(ESC)
    at.until_asked()
    at.type("\x04")

    assert at.end() == 0
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.slow
def test_an_always_rule_is_saved_outside_the_folder(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / "script").write_text(WRITES)
    program = STAGE.with_name("stage_program.py")
    for first in (True, False):
        (tmp_path / "a.txt").unlink(missing_ok=True)
        at = start_terminal("--script", "script", program=program)
        at.until("›")
        at.type("go" + ENTER)
        if first:
            at.choose("always")
            at.until("folders.toml:")
            at.choose("save it")
        at.until("Written.")
        at.until(" s\n\n›")
        at.type("/permissions" + ENTER)
        at.until("+ add a rule")
        at.until("allow   write_file(./a.txt)")
        at.type(ESC)
        at.until_asked()
        at.type("/undo" + ENTER)
        at.until("Rewind? y/n")
        at.type("y")
        at.until("1 file restored")
        at.type("/rewind" + ENTER)
        at.until("restore:")
        at.type(ESC)
        at.until_asked()
        at.type("\x04")

        assert at.end() == 0
        assert ("Create a.txt?" in at.text) == first
        assert not (tmp_path / "a.txt").exists()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".refold")] == []


@pytest.mark.slow
def test_alt_enter_queues_a_message_for_after_the_turn(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("command")
    at.until("›")
    at.type("go" + ENTER)
    at.answer("y")
    at.until("running")
    at.type("and then this")
    at.until("› and then this")
    at.until("Alt+Enter: after this turn")
    at.type(ESC + ENTER)
    at.until("after this turn: and then this")
    at.until("1 after this turn")
    at.type(ESC)
    at.until("Not sent yet: and then this. Your next message or Enter sends it.")
    at.until_asked()
    at.type(ENTER)
    at.until("As you like.")
    at.until(" s\n\n›")
    at.type("/quit" + ENTER)

    assert at.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("key", [ESC, ESC + ESC, CTRL_C])
def test_a_stop_keeps_the_draft_for_the_next_prompt(
    start_terminal: StartTerminal, key: str
) -> None:
    at = start_terminal("command")
    at.until("›")
    at.type("go" + ENTER)
    at.answer("y")
    at.until("running")
    at.type("be bri")
    at.until("› be bri")
    at.type(key)
    at.until("instead.\n\n› be bri")
    at.type("ef" + ENTER)
    at.until("As you like.")
    at.until_asked()
    at.type("\x04")

    assert at.end() == 0
    assert at.rows.count("› be brief") == 1


@pytest.mark.slow
def test_output_status_and_questions_appear_above_a_draft(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    at = start_terminal("late")
    at.until("›")
    at.type("go" + ENTER)
    at.until("word word")
    at.type("please be")
    at.until("Esc: stop\n› please be")
    count = at.text.count("word")
    at.until("a question waits: Enter sends your message first\n› please be")
    assert at.text.count("word") > count
    assert "? Edit hello.py?" in at.text
    at.type(" quick" + ENTER)
    at.until("for the next step: please be quick\n")
    at.answer("y")
    at.until("\n› please be quick\n")
    at.until("Well.")
    at.until_asked()
    at.type("\x04")

    assert at.end() == 0
    assert "hello" in (tmp_path / "hello.py").read_text(encoding="utf-8")
    assert at.text.count("› please be quick") == 1


@pytest.mark.slow
def test_a_draft_is_at_the_prompt_when_the_turn_has_ended(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("busy")
    at.until("›")
    at.type("go" + ENTER)
    at.answer("y")
    at.type("and the")
    at.until("There: one, two.")
    at.until_asked("› and the")
    at.type(" rest" + ENTER)
    at.until("› and the rest\n")


@pytest.mark.slow
def test_context_usage_is_shown_and_the_conversation_compacted(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("long", size=(60, 80))
    at.until("›")
    for words, answer in (("one", "First."), ("two", "Second.")):
        at.type(words + ENTER)
        at.until(answer)
        at.until_asked()
    at.type("/context" + ENTER)
    at.until("counted by the provider at its last answer")
    assert "script/one · about " in at.text
    assert re.search(r"tool results +\d+ ", at.text)
    at.until_asked()
    at.type("/compact the greeting" + ENTER)
    at.until("messages became a summary, ")
    at.until_asked()
    at.type("three" + ENTER)
    at.until("Third.")
    at.until_asked()
    at.type("/quit" + ENTER)

    assert at.end() == 0


@pytest.mark.slow
def test_a_turn_pauses_at_its_budget_and_continues_after_it_is_raised(
    start_terminal: StartTerminal,
) -> None:
    at = start_terminal("costly", size=(40, 100))
    at.until("›")
    at.type("go" + ENTER)
    at.until("/budget raises it; Enter continues with the same amount again.")
    at.until_asked()
    at.type("/budget 2" + ENTER)
    at.until("$2.00")
    at.until_asked()
    at.type(ENTER)
    at.until("So far.")
    at.until_asked()
    at.type("/quit" + ENTER)

    assert at.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("term", "program", "sent"),
    [
        ("xterm-256color", "ghostty", "\x1b]9;refold: it is done: go\x1b\\"),
        ("dumb", "ghostty", ""),
    ],
)
def test_the_end_of_a_long_turn_sends_the_notification_the_terminal_supports(
    start_terminal: StartTerminal, term: str, program: str, sent: str
) -> None:
    at = start_terminal(
        "talk", TERM=term, TERM_PROGRAM=program, NOTIFY="0.000001", TMUX="", STY=""
    )
    at.until("›" if term != "dumb" else ">")
    at.type("go" + ENTER)
    at.until("One.")
    at.until(" s\n\n")
    at.type("/quit" + ENTER)

    assert at.end() == 0
    assert (sent in at.raw) if sent else ("\x07" not in at.raw and "\x1b]" not in at.raw)
