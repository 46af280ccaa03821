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
# The sequences of refold and the line editor: colours, the cursor, erasing, paste mode, titles
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
    terminal = start_terminal("edit")
    terminal.until("›")
    terminal.type("be friendly" + ENTER)
    terminal.until("Edit hello.py?")
    terminal.until("2 this session: edit_file(./hello.py)")
    terminal.answer("y")
    terminal.until("May bash run this?")
    terminal.answer("n")
    terminal.until("why not?")
    terminal.type("not now" + ENTER)
    terminal.until("12% of window")
    terminal.type("/quit" + ENTER)

    assert terminal.end() == 0
    assert "  └ changed hello.py +1 -1" in terminal.rows
    assert "  └ no: not now" in terminal.rows
    assert "Now hello.py says hello." in terminal.rows
    assert terminal.rows[terminal.rows.index("To resume: refold -c") + 1 :] == [""] * (
        39 - terminal.rows.index("To resume: refold -c")
    )
    assert (tmp_path / "hello.py").read_text(encoding="utf-8") == HELLO.replace(
        "hi", "hello"
    )
    # The questions and the status were erased: only the decisions stay.
    assert "1 once" not in terminal.text
    assert "why not?" not in terminal.text
    assert "thinking" not in terminal.text


@pytest.mark.slow
def test_control_sequences_of_models_and_tools_are_escaped(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("hostile", NO_COLOR="1")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.until("red\\x9b1m")
    terminal.until(" s\n\n›")
    terminal.type("/quit" + ENTER)

    assert terminal.end() == 0
    assert "see \\x1b]0;me\\x07\\u202e" in terminal.rows
    assert "\\x1b[31mred\\x9b1m" in terminal.rows
    assert not re.search("[\x00-\x06\x0b-\x1f\x7f-\x9f\u202e]", OURS.sub("", terminal.raw))
    assert "\x1b]" not in terminal.raw


@pytest.mark.slow
def test_ctrl_c_stops_the_turn_and_the_next_message_redirects_it(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("slow", size=(20, 60))
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.until("word word")
    terminal.type(CTRL_C)
    terminal.until("Type what to do instead.\n\n›")
    terminal.type("be short" + ENTER)
    terminal.until("As you like.")
    terminal.until("$0.0002")

    assert terminal.rows[terminal.rows.index("› be short") - 3].endswith(" s")


def end_after_stop(terminal: Terminal) -> None:
    terminal.until("stopped")
    terminal.until("instead.\n\n›")
    terminal.type("\x04")

    assert terminal.end() == 0


@pytest.mark.slow
def test_ctrl_c_stops_a_streamed_answer(start_terminal: StartTerminal) -> None:
    terminal = start_terminal("slow")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.until("word word")
    terminal.type(CTRL_C)

    end_after_stop(terminal)


@pytest.mark.slow
def test_esc_stops_a_running_command(start_terminal: StartTerminal) -> None:
    terminal = start_terminal("command")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.answer("y")
    terminal.until("running")
    terminal.type(ESC)

    end_after_stop(terminal)


@pytest.mark.slow
def test_text_typed_during_a_turn_is_queued_for_the_next_step(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("command")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.answer("y")
    terminal.until("running")
    terminal.type("hurry up")
    terminal.until("› hurry up")
    terminal.type(ENTER)
    terminal.wait_until_gone("send at the next step")
    terminal.until("running")
    terminal.type("/quit" + ENTER)
    terminal.until("after this turn: /quit")
    terminal.type(ESC)
    terminal.until("stopped")

    assert terminal.end() == 0
    assert terminal.text.count("› hurry up") == 1
    assert "Not sent yet: hurry up. Your next message or Enter sends it." in terminal.rows


@pytest.mark.slow
def test_keys_typed_before_a_question_do_not_answer_it(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_terminal("late")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.until("word word")
    terminal.type("y")
    terminal.until("a question waits: Enter sends your message first\n› y")
    terminal.type(CTRL_C)
    terminal.until("\nstopped at a question")
    terminal.wait_for_prompt("› y")

    assert (tmp_path / "hello.py").read_text(encoding="utf-8") == HELLO


@pytest.mark.slow
def test_ctrl_c_at_a_question_stops_the_turn(start_terminal: StartTerminal) -> None:
    terminal = start_terminal("command")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.until("› 1 once")
    terminal.type(CTRL_C)
    terminal.until("\nstopped at a question")


@pytest.mark.slow
def test_an_edit_and_a_command_are_approved_in_a_narrow_terminal(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("edit", size=(60, 24))
    terminal.until("›")
    terminal.type("be friendly" + ENTER)
    terminal.answer("y")
    terminal.until("python3 hello.py")
    terminal.answer("y")
    terminal.until("says hello.")

    assert "I will look first." in terminal.rows
    assert '  2 +    return "hello"' in terminal.rows
    assert "Now hello.py says hello." in terminal.rows


@pytest.mark.slow
def test_an_unknown_command_is_answered_with_the_nearest_name(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("talk")
    terminal.until("›")
    terminal.type("/csot" + ENTER)
    terminal.until("There is no command /csot. Did you mean /cost?")
    terminal.type("/hel")
    terminal.until("/help [NAME|all|keys]  list what you can type here")
    terminal.type("\t")
    terminal.until("› /help")
    terminal.type(ENTER)
    terminal.until("Esc Enter  line break")
    terminal.type(CTRL_C)
    terminal.until("Press Ctrl+C again to leave")
    terminal.type(CTRL_C)

    assert terminal.end() == 0


@pytest.mark.slow
def test_a_message_of_several_lines_is_sent_and_found_in_the_history(
    start_terminal: StartTerminal,
) -> None:
    for keys in ("one\\" + ENTER + "two" + ENTER, "\x1b[A" + ENTER):
        terminal = start_terminal("talk")
        terminal.until("›")
        terminal.type(keys)
        terminal.until(" s\n\n›")
        terminal.type("\x04")

        assert terminal.end() == 0
        assert terminal.rows[terminal.rows.index("› one") + 1] == "  two"


@pytest.mark.slow
def test_a_typed_api_key_is_not_written_to_the_history(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_terminal("talk")
    terminal.until("›")
    terminal.type("use sk-ant-api03-" + "A" * 40 + ENTER)
    terminal.until(" s\n\n›")
    terminal.type("\x04")

    assert terminal.end() == 0
    text = (tmp_path / HISTORY).read_text(encoding="utf-8")
    assert "+use " in text
    assert "sk-ant" not in text


@pytest.mark.slow
def test_a_dumb_terminal_gets_only_text(start_terminal: StartTerminal) -> None:
    terminal = start_terminal("edit", TERM="dumb")
    terminal.until(">")
    terminal.type("be friendly\n")
    terminal.until("> 1 once")
    terminal.type("y\n")
    terminal.until("May bash")
    terminal.until("bash(python3 hello.py)")
    terminal.type("n\n")
    terminal.until("why not?")
    terminal.type("no time\n")
    terminal.until("says hello.")
    terminal.until("$0.0054")
    terminal.type("exit\n")

    assert terminal.end() == 0
    assert "\x1b" not in terminal.raw
    assert "Now `hello.py` says hello." in terminal.rows


@pytest.mark.slow
def test_ctrl_c_in_a_dumb_terminal_asks_before_leaving(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_terminal("command", TERM="dumb")
    terminal.until(">")
    terminal.type("go\n")
    terminal.until("> 1 once")
    terminal.type("y\n")
    terminal.until("yes, once")
    terminal.wait_for_path(tmp_path / "begun")
    terminal.type(CTRL_C)
    terminal.until("instead.\n\n>")
    terminal.type("be short\n")
    terminal.until("As you like.")
    terminal.until("$0.0002")
    terminal.type(CTRL_C)
    terminal.until("Press Ctrl+C again to leave")
    terminal.type("\x04")

    assert terminal.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_terminal_modes_are_restored_after_a_signal(
    start_terminal: StartTerminal, number: signal.Signals
) -> None:
    terminal = start_terminal("slow")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.until("word word")
    terminal.child.kill(number)

    assert terminal.end() == 128 + number
    assert terminal.modes & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON


@pytest.mark.slow
def test_the_first_run_leads_to_the_tour(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_terminal(program=STAGE.with_name("stage_tour.py"), size=(70, 90))
    terminal.choose("qwen2.5-coder-1.5b")
    terminal.until("the model cannot be fetched: no network")
    terminal.until("4 a guided tour")
    terminal.answer("1" + ENTER)  # Enter after a digit answers no other question
    terminal.until("Key or provider:")
    terminal.type("anthropc")
    terminal.until("provider: anthropc")  # a name is shown, a key is not
    terminal.type(ENTER)
    terminal.until("did you mean anthropic")
    terminal.type("anthropic" + ENTER)
    terminal.until("The key for anthropic")
    terminal.type("sk-or-v1-of-another" + ENTER)
    terminal.until("This is a key for openrouter. It was not sent.")
    terminal.until("it is not shown")
    terminal.type("sk-ant-wrong" + ENTER)
    terminal.until("anthropic does not accept the key: anthropic does not know this key")
    terminal.until("2 type another key")
    terminal.choose("back")
    terminal.until("4 a guided tour")
    terminal.choose("a guided tour")
    terminal.until("Enter begins")
    terminal.type(ENTER)
    terminal.until("Edit greet.sh?")
    terminal.answer("y")
    terminal.until("May bash run this?")
    terminal.answer("n")
    terminal.until("why not?")
    terminal.type(ENTER)
    terminal.until("Enter shows the journal")
    terminal.type(ENTER)
    terminal.until("That was the tour.")

    assert terminal.end() == 0
    assert "sk-ant" not in terminal.raw
    assert not (tmp_path / "key").exists()
    assert any(row.split()[1:2] == ["TurnEnded"] for row in terminal.rows)


@pytest.mark.slow
def test_an_api_key_that_cannot_be_checked_offline_can_be_saved(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_terminal(program=STAGE.with_name("stage_tour.py"), size=(70, 90))
    terminal.choose("an API key")
    terminal.until("Key or provider:")
    terminal.type("openai" + ENTER)
    terminal.until("https://platform.openai.com/api-keys")
    terminal.until("The key for openai")
    terminal.type("sk-offline" + ENTER)
    terminal.until("The key could not be checked: no network")
    terminal.until("2 type another key")
    terminal.choose("keep it unchecked")
    terminal.until("openai/model is now the default model.")

    assert terminal.end() == 0
    assert (tmp_path / "key").read_text() == "openai sk-offline"
    assert (tmp_path / "remembered").read_text() == "model = openai/model\n"


@pytest.mark.slow
@pytest.mark.parametrize("key", ["sk-ant-of-mine", "4d1f" * 8])
def test_a_key_pasted_into_the_menu_of_the_first_run_is_hidden_and_used(
    start_terminal: StartTerminal, tmp_path: Path, key: str
) -> None:
    terminal = start_terminal(program=STAGE.with_name("stage_tour.py"), size=(70, 90))
    terminal.until("› 1 ")
    terminal.type(f"\x1b[200~{key}\x1b[201~")
    terminal.until("*" * len(key))
    terminal.type(ENTER)
    if key.startswith("4d1f"):
        terminal.until("Whose key is it?")
        terminal.type(ENTER)
    terminal.until("anthropic/model is now the default model.")

    assert terminal.end() == 0
    assert key not in terminal.raw
    assert (tmp_path / "key").read_text() == f"anthropic {key}"


@pytest.mark.slow
def test_the_tour_can_be_left_at_any_time(start_terminal: StartTerminal) -> None:
    tour = STAGE.with_name("stage_tour.py")
    for left in ("at the start", "at a question"):
        terminal = start_terminal("tour", program=tour)
        terminal.until("Enter begins")
        if left == "at a question":
            terminal.type(ENTER)
            terminal.until("› 1 once")
            terminal.type(CTRL_C)
        else:
            terminal.type("q")

        assert terminal.end() == 0
        assert "That was the tour." not in terminal.text


@pytest.mark.slow
def test_an_always_rule_is_saved_and_applied_in_the_next_session(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_terminal("edit")
    terminal.until("›")
    terminal.type("be friendly" + ENTER)
    terminal.choose("always")
    terminal.until("Always allowed in this folder, in .folders.toml:")
    terminal.choose("save it")
    terminal.until("yes, and edit_file(./hello.py) always")
    terminal.until("May bash run this?")
    terminal.answer("n")
    terminal.until("why not?")
    terminal.type(ENTER)
    terminal.until("12% of window")
    terminal.type("\x04")

    assert terminal.end() == 0
    (tmp_path / "hello.py").write_text(HELLO, encoding="utf-8")
    terminal = start_terminal("edit")
    terminal.until("›")
    terminal.type("be friendly" + ENTER)
    terminal.until("May bash run this?")
    assert "Edit hello.py?" not in terminal.text


@pytest.mark.slow
def test_a_plan_is_edited_approved_and_carried_out(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / "editor").write_text("#!/bin/sh\nsed -i s/greeting/farewell/ $1\n")
    (tmp_path / "editor").chmod(0o755)
    terminal = start_terminal("plan", VISUAL=str(tmp_path / "editor"))
    terminal.until("›")
    terminal.type("/plan be friendly" + ENTER)
    terminal.until("The plan: A friendlier hello")
    terminal.choose("edit")
    terminal.until("Change the farewell")
    terminal.answer("y")
    terminal.until("Edit hello.py?")
    terminal.answer("y")
    terminal.until("Carried out.")
    terminal.until(" s\n\n›")
    terminal.type("/plan list" + ENTER)
    terminal.until("approved  A friendlier hello\n\n›")
    terminal.type("\x04")

    assert terminal.end() == 0
    assert "  └ approved, as you edited it, in mode default" in terminal.rows
    assert "3 edit" not in terminal.text


@pytest.mark.slow
def test_a_plan_is_revised_after_feedback_and_can_be_approved_later(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("revise", size=(50, 80))
    terminal.until("›")
    terminal.type("/plan be friendly" + ENTER)
    terminal.choose("feedback")
    terminal.until("feedback ›")
    terminal.type("shorter" + ENTER)
    terminal.until("The plan: Simpler")
    terminal.until("4 feedback")
    terminal.type(CTRL_C)
    terminal.until("The plan waits")
    terminal.until("plan ›")
    terminal.type("/execute" + ENTER)
    terminal.until("Carried out.")
    terminal.until(" s\n\n›")
    terminal.type("\x04")

    assert terminal.end() == 0
    assert "  └ to be revised: shorter" in terminal.rows


@pytest.mark.slow
def test_changes_to_a_plan_are_typed_where_no_editor_is_set(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("plan", EDITOR="", VISUAL="", size=(50, 80))
    terminal.until("›")
    terminal.type("/plan be friendly" + ENTER)
    terminal.choose("edit")
    terminal.until("1. **Change** the greeting")
    terminal.type(", kindly" + ENTER)
    terminal.until("Change the greeting, kindly")
    terminal.answer("n")
    terminal.until("rejected")
    terminal.wait_for_prompt("plan ›")
    terminal.type("\x04")

    assert terminal.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_questions_of_the_model_are_answered(
    start_terminal: StartTerminal, term: str
) -> None:
    enter, sign = ("\n", ">") if term == "dumb" else (ENTER, "›")
    terminal = start_terminal("ask", TERM=term)
    terminal.until(sign)
    terminal.type("go" + enter)
    terminal.until("The model asks you (1 of 3)")
    terminal.until("1-2 or text" if term == "dumb" else "or type an answer")
    terminal.type("2" + enter)
    terminal.until("(2 of 3)")
    terminal.until("several with commas")
    terminal.type("1,3" + enter)
    terminal.until("(3 of 3)")
    terminal.until("your answer")
    terminal.type(ESC + enter if term == "dumb" else enter)
    terminal.until("Thank you.")
    terminal.until(f" s\n\n{sign}")
    terminal.type("\x04")

    assert terminal.end() == 0
    under = "  | " if term == "dumb" else "  └ "
    assert [row.removeprefix(under) for row in terminal.rows if row.startswith(under)][
        :3
    ] == [
        "blue",
        "small, huge",
        "no answer",
    ]


@pytest.mark.slow
def test_ctrl_c_at_a_question_of_the_model_stops_the_turn(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("ask")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.until("or type an answer")
    terminal.type(CTRL_C)
    terminal.until("\nstopped at a question")


@pytest.mark.slow
def test_shift_tab_cycles_through_the_permission_modes(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("talk")
    terminal.until("›")
    terminal.type("half a wor")
    for text in ("accept-edits › half a wor", "plan › half a wor", "\n› half a wor"):
        terminal.type("\x1b[Z")
        terminal.until(text)
    terminal.type("\x1b[Z")
    terminal.until("accept-edits › half a wor")
    terminal.type("d" + ENTER)
    terminal.until("One.")
    terminal.until(" s\n\naccept-edits ›")
    terminal.type("/mode bypass" + ENTER)
    terminal.until("bypass ›")
    terminal.type("\x1b[Z")
    terminal.wait_until_gone("\nbypass ›")
    terminal.type("\x04")

    assert terminal.end() == 0


@pytest.mark.slow
def test_a_question_that_times_out_is_refused(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_terminal("command", PATIENCE="0.5")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.until("1 once")
    terminal.until("no: no answer came within 0.5 s")
    terminal.until("As you like.")

    assert not (tmp_path / "begun").exists()
    assert "no, and why" not in terminal.text


@pytest.mark.slow
def test_the_end_of_a_padded_command_is_shown_in_its_question(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("hidden")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.until("› 1 once")

    assert "ls … 3000 spaces … ; echo \\u202egone\\u200b" in terminal.text
    assert "2 hidden characters are written out" in terminal.text


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
        terminal = start_terminal("--script", "script", program=program)
        if answer:
            terminal.until("runs without asking: write_file")
            terminal.answer(answer)
        terminal.wait_for_prompt()
        assert ("Trust the settings of this folder?" in terminal.text) == result
        assert ("with --trust once" in terminal.text) == (answer == "n")
        terminal.type("go" + ENTER)
        if answer == "n":
            terminal.until("› 1 once")
            terminal.type(CTRL_C)
            terminal.until("stopped at a question")
        else:
            terminal.until("Written.")
        terminal.wait_for_prompt()
        terminal.type("\x04")

        assert terminal.end() == 0
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
        terminal = start_terminal("--yolo", "--script", "script", program=program)
        if answer:
            terminal.until("Permit it in this folder?")
            terminal.answer(answer)
        terminal.wait_for_prompt("bypass ›")
        assert ("Permit it" in terminal.text) == bool(answer)
        terminal.type("go" + ENTER)
        terminal.until("Ended.")
        terminal.until(" s\n\nbypass ›")
        terminal.type("\x04")

        assert terminal.end() == 0
        assert ("└ made one" in terminal.text) == (answer != "n"), terminal.text


@pytest.mark.slow
def test_instructions_of_a_folder_are_shown_and_asked_about_until_it_is_trusted(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    (tmp_path / "script").write_text('{"text": "Hello."}\n')
    program = STAGE.with_name("stage_program.py")
    for answer in ("n", "y", None):  # None: trusted by now, so nothing is asked
        terminal = start_terminal("--script", "script", program=program)
        if answer:
            terminal.until("  AGENTS.md (9 bytes)")
            terminal.until("Trust this folder? Its instructions will be sent to the model.")
            terminal.answer(answer)
        terminal.wait_for_prompt()
        assert ("Trust this folder?" in terminal.text) == bool(answer)
        text = " ".join(terminal.text.split())
        assert ("not trusted, so not read" in text) == (answer == "n"), text
        terminal.type("\x04")

        assert terminal.end() == 0


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
        terminal = start_terminal("--script", "script", program=program)
        if result:
            terminal.until(result)
            terminal.answer(answer)
        terminal.wait_for_prompt()
        expected = f"AGENTS.mdchangedsinceyoutrustedit:@@-1,1+1,1@@-Usetabs.+{text}Send"
        assert ("".join(expected.split()) in "".join(terminal.text.split())) == (
            result == question
        ), terminal.text
        terminal.type("\x04")

        assert terminal.end() == 0


@pytest.mark.slow
def test_a_rule_is_added_in_the_list_of_permissions(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / "script").write_text(WRITES)
    terminal = start_terminal(
        "--script", "script", program=STAGE.with_name("stage_program.py")
    )
    terminal.until("›")
    terminal.type("/permissions" + ENTER)
    terminal.until("+ add a rule")
    terminal.type(ENTER)
    terminal.until("allow for this session")
    terminal.type("deny always" + ENTER)
    terminal.until("Rule, such as")
    terminal.type("write_file(*.txt)" + ENTER)
    terminal.until("From now on: deny write_file(*.txt)")
    terminal.until("+ add a rule")
    terminal.type(ESC)
    terminal.wait_for_prompt()
    terminal.type("go" + ENTER)
    terminal.until("says deny")
    terminal.wait_for_prompt()
    terminal.type("/permissions" + ENTER)
    terminal.until("refused write_file")
    terminal.type("\x1b[C" * 3)
    terminal.wait_until_gone("refused write_file")
    terminal.type(ESC)
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.slow
def test_an_always_rule_is_saved_outside_the_folder(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    (tmp_path / "script").write_text(WRITES)
    program = STAGE.with_name("stage_program.py")
    for first in (True, False):
        (tmp_path / "a.txt").unlink(missing_ok=True)
        terminal = start_terminal("--script", "script", program=program)
        terminal.until("›")
        terminal.type("go" + ENTER)
        if first:
            terminal.choose("always")
            terminal.until("folders.toml:")
            terminal.choose("save it")
        terminal.until("Written.")
        terminal.until(" s\n\n›")
        terminal.type("/permissions" + ENTER)
        terminal.until("+ add a rule")
        terminal.until("allow   write_file(./a.txt)")
        terminal.type(ESC)
        terminal.wait_for_prompt()
        terminal.type("/undo" + ENTER)
        terminal.until("Rewind? y/n")
        terminal.type("y")
        terminal.until("1 file restored")
        terminal.type("/rewind" + ENTER)
        terminal.until("restore:")
        terminal.type(ESC)
        terminal.wait_for_prompt()
        terminal.type("\x04")

        assert terminal.end() == 0
        assert ("Create a.txt?" in terminal.text) == first
        assert not (tmp_path / "a.txt").exists()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".refold")] == []


@pytest.mark.slow
def test_alt_enter_queues_a_message_for_after_the_turn(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("command")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.answer("y")
    terminal.until("running")
    terminal.type("and then this")
    terminal.until("› and then this")
    terminal.until("Alt+Enter: after this turn")
    terminal.type(ESC + ENTER)
    terminal.until("after this turn: and then this")
    terminal.until("1 after this turn")
    terminal.type(ESC)
    terminal.until("Not sent yet: and then this. Your next message or Enter sends it.")
    terminal.wait_for_prompt()
    terminal.type(ENTER)
    terminal.until("As you like.")
    terminal.until(" s\n\n›")
    terminal.type("/quit" + ENTER)

    assert terminal.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("key", [ESC, ESC + ESC, CTRL_C])
def test_a_stop_keeps_the_draft_for_the_next_prompt(
    start_terminal: StartTerminal, key: str
) -> None:
    terminal = start_terminal("command")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.answer("y")
    terminal.until("running")
    terminal.type("be bri")
    terminal.until("› be bri")
    terminal.type(key)
    terminal.until("instead.\n\n› be bri")
    terminal.type("ef" + ENTER)
    terminal.until("As you like.")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0
    assert terminal.rows.count("› be brief") == 1


@pytest.mark.slow
def test_output_status_and_questions_appear_above_a_draft(
    start_terminal: StartTerminal, tmp_path: Path
) -> None:
    terminal = start_terminal("late")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.until("word word")
    terminal.type("please be")
    terminal.until("Esc: stop\n› please be")
    count = terminal.text.count("word")
    terminal.until("a question waits: Enter sends your message first\n› please be")
    assert terminal.text.count("word") > count
    assert "? Edit hello.py?" in terminal.text
    terminal.type(" quick" + ENTER)
    terminal.until("for the next step: please be quick\n")
    terminal.answer("y")
    terminal.until("\n› please be quick\n")
    terminal.until("Well.")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0
    assert "hello" in (tmp_path / "hello.py").read_text(encoding="utf-8")
    assert terminal.text.count("› please be quick") == 1


@pytest.mark.slow
def test_a_draft_is_at_the_prompt_when_the_turn_has_ended(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("busy")
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.answer("y")
    terminal.type("and the")
    terminal.until("There: one, two.")
    terminal.wait_for_prompt("› and the")
    terminal.type(" rest" + ENTER)
    terminal.until("› and the rest\n")


@pytest.mark.slow
def test_context_usage_is_shown_and_the_conversation_compacted(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("long", size=(60, 80))
    terminal.until("›")
    for words, answer in (("one", "First."), ("two", "Second.")):
        terminal.type(words + ENTER)
        terminal.until(answer)
        terminal.wait_for_prompt()
    terminal.type("/context" + ENTER)
    terminal.until("counted by the provider at its last answer")
    assert "script/one · about " in terminal.text
    assert re.search(r"tool results +\d+ ", terminal.text)
    terminal.wait_for_prompt()
    terminal.type("/compact the greeting" + ENTER)
    terminal.until("messages became a summary, ")
    terminal.wait_for_prompt()
    terminal.type("three" + ENTER)
    terminal.until("Third.")
    terminal.wait_for_prompt()
    terminal.type("/quit" + ENTER)

    assert terminal.end() == 0


@pytest.mark.slow
def test_a_turn_pauses_at_its_budget_and_continues_after_it_is_raised(
    start_terminal: StartTerminal,
) -> None:
    terminal = start_terminal("costly", size=(40, 100))
    terminal.until("›")
    terminal.type("go" + ENTER)
    terminal.until("/budget raises it; Enter continues with the same amount again.")
    terminal.wait_for_prompt()
    terminal.type("/budget 2" + ENTER)
    terminal.until("$2.00")
    terminal.wait_for_prompt()
    terminal.type(ENTER)
    terminal.until("So far.")
    terminal.wait_for_prompt()
    terminal.type("/quit" + ENTER)

    assert terminal.end() == 0


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
    terminal = start_terminal(
        "talk", TERM=term, TERM_PROGRAM=program, NOTIFY="0.000001", TMUX="", STY=""
    )
    terminal.until("›" if term != "dumb" else ">")
    terminal.type("go" + ENTER)
    terminal.until("One.")
    terminal.until(" s\n\n")
    terminal.type("/quit" + ENTER)

    assert terminal.end() == 0
    assert (
        (sent in terminal.raw)
        if sent
        else ("\x07" not in terminal.raw and "\x1b]" not in terminal.raw)
    )
