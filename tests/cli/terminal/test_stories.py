"""Stories in a real terminal: every key goes through a pty, every byte onto a screen."""

import re
import signal
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pty_terminal import CTRL_C, ENTER, ESC, STAGE, Terminal

HELLO = 'def greet():\n    return "hi"\n\nprint(greet())\n'
# What we and the line editor write: colours, the cursor, what is erased, paste mode, titles
# and marks of nobody.
OURS = re.compile(r"\x1b\[[?0-9;]*[A-HJKhlmnu]|\x1b\[[0-9 ]*q|\x1b[=>]|\r|\x08|\x07?$")
Starts = Callable[..., Terminal]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def starts(tmp_path: Path, compiled: Path) -> Iterator[Starts]:
    (tmp_path / "hello.py").write_text(HELLO, encoding="utf-8")
    begun: list[Terminal] = []

    def start(*arguments: str, program: Path = STAGE, **more: object) -> Terminal:
        terminal = Terminal(program, *arguments, here=tmp_path, compiled=compiled, **more)  # type: ignore[arg-type]
        begun.append(terminal)
        return terminal

    yield start
    for terminal in begun:
        terminal.child.close(force=True)


def test_an_edit_is_allowed_and_a_command_is_not(starts: Starts, tmp_path: Path) -> None:
    at = starts("edit")
    at.until("›")
    at.type("be friendly" + ENTER)
    at.until("May edit_file change a file?")
    at.until("s this session: edit_file(hello.py)")
    at.type("y")
    at.until("May bash run this?")
    at.until("n no, and why")
    at.type("n")
    at.until("why not?")
    at.type("not now" + ENTER)
    at.until("12% of window")
    at.type("/quit" + ENTER)

    assert at.end() == 0
    assert "  └ changed hello.py +1 -1" in at.rows
    assert "  └ no: not now" in at.rows
    assert "Now hello.py says hello." in at.rows
    assert at.rows[at.rows.index("To go on later: refold -c") + 1 :] == [""] * (
        39 - at.rows.index("To go on later: refold -c")
    )
    assert (tmp_path / "hello.py").read_text(encoding="utf-8") == HELLO.replace(
        "hi", "hello"
    )
    # The questions and what was going on were taken back: only what was decided stays.
    assert "y once" not in at.text
    assert "why not?" not in at.text
    assert "thinking" not in at.text


def test_no_order_of_a_model_or_a_tool_reaches_the_terminal(starts: Starts) -> None:
    at = starts("hostile", NO_COLOR="1")
    at.until("›")
    at.type("go" + ENTER)
    at.until("n no, and why")
    at.type("y")
    at.until("red\\x9b1m")
    at.type("/quit" + ENTER)

    assert at.end() == 0
    assert "see \\x1b]0;me\\x07\\u202e" in at.rows
    assert "\\x1b[31mred\\x9b1m" in at.rows
    assert not re.search("[\x00-\x06\x0b-\x1f\x7f-\x9f\u202e]", OURS.sub("", at.raw))
    assert "\x1b]" not in at.raw


@pytest.mark.slow
def test_ctrl_c_asks_what_to_do_instead(starts: Starts) -> None:
    at = starts("slow", size=(20, 60))
    at.until("›")
    at.type("go" + ENTER)
    at.until("word word")
    at.type(CTRL_C)
    at.until("instead ›")
    at.type("be short" + ENTER)
    at.until("As you like.")
    at.until("$0.0002")

    assert at.rows[at.rows.index("› be short") - 2].endswith(" s")
    assert "instead ›" not in at.text


@pytest.mark.slow
def test_ctrl_c_twice_stops_streaming_and_commands(starts: Starts) -> None:
    for story in ("slow", "command"):
        at = starts(story)
        at.until("›")
        at.type("go" + ENTER)
        if story == "command":
            at.until("n no, and why")
            at.type("y")
            at.until("running")
        else:
            at.until("word word")
        at.type(CTRL_C)
        at.until("instead ›")
        at.type(CTRL_C)
        at.until("stopped")
        at.until(" s\n\n›")
        at.type("\x04")

        assert at.end() == 0


@pytest.mark.slow
def test_words_typed_while_it_works_are_heard(starts: Starts) -> None:
    at = starts("command")
    at.until("›")
    at.type("go" + ENTER)
    at.until("n no, and why")
    at.type("y")
    at.until("running")
    at.type("hurry up")
    at.until("› hurry up")
    at.type(ENTER)
    at.until_gone("heard at the next step")
    at.until("running")
    at.type("/quit" + ENTER)
    at.until("after this turn: /quit")
    at.type(ESC)
    at.until("instead ›")
    at.type(ENTER)
    at.until("stopped")

    assert at.end() == 0
    assert at.text.count("hurry up") == 1


@pytest.mark.slow
def test_what_was_typed_before_a_question_is_no_answer_to_it(
    starts: Starts, tmp_path: Path
) -> None:
    at = starts("late")
    at.until("›")
    at.type("go" + ENTER)
    at.until("word word")
    at.type("y")
    at.until("› y")
    at.type(ESC)
    at.until("n no, and why")
    at.type(CTRL_C)
    at.until("stopped: stopped at a question")

    assert (tmp_path / "hello.py").read_text(encoding="utf-8") == HELLO


@pytest.mark.slow
def test_ctrl_c_at_a_question_stops_the_turn(starts: Starts) -> None:
    at = starts("command")
    at.until("›")
    at.type("go" + ENTER)
    at.until("n no, and why")
    at.type(CTRL_C)
    at.until("stopped: stopped at a question")


@pytest.mark.slow
def test_a_narrow_terminal_breaks_nothing(starts: Starts) -> None:
    at = starts("edit", size=(60, 24))
    at.until("›")
    at.type("be friendly" + ENTER)
    at.until("stop")
    at.type("y")
    at.until("python3 hello.py")
    at.until("stop")
    at.type("y")
    at.until("says hello.")

    assert "I will look first." in at.rows
    assert '    +    return "hello"' in at.rows
    assert "Now hello.py says hello." in at.rows


@pytest.mark.slow
def test_an_unknown_command_names_the_nearest(starts: Starts) -> None:
    at = starts("talk")
    at.until("›")
    at.type("/csot" + ENTER)
    at.until("There is no command /csot. Did you mean /cost?")
    at.type("/h")
    at.until("/help  what can be typed here")
    at.type("\t")
    at.until("› /help")
    at.type(ENTER)
    at.until("a new line; so does")
    at.type(CTRL_C)
    at.until("Ctrl+C again leaves")
    at.type(CTRL_C)

    assert at.end() == 0


@pytest.mark.slow
def test_several_lines_and_history(starts: Starts) -> None:
    for keys in ("one\\" + ENTER + "two" + ENTER, "\x1b[A" + ENTER):
        at = starts("talk")
        at.until("›")
        at.type(keys)
        at.until(" s\n\n›")
        at.type("\x04")

        assert at.end() == 0
        assert at.rows[at.rows.index("› one") + 1] == "  two"


@pytest.mark.slow
def test_a_dumb_terminal_gets_nothing_but_text(starts: Starts) -> None:
    at = starts("edit", TERM="dumb")
    at.until("›")
    at.type("be friendly\n")
    at.until("n no, and why")
    at.type("y\n")
    at.until("May bash")
    at.until("bash(python3 hello.py)")
    at.type("n\nno time\n")
    at.until("says hello.")
    at.until("$0.0054")
    at.type("exit\n")

    assert at.end() == 0
    assert "\x1b" not in at.raw
    assert "Now `hello.py` says hello." in at.rows


@pytest.mark.slow
def test_ctrl_c_in_a_dumb_terminal_asks_too(starts: Starts, tmp_path: Path) -> None:
    at = starts("command", TERM="dumb")
    at.until("›")
    at.type("go\n")
    at.until("n no, and why")
    at.type("y\n")
    at.until("yes, once")
    at.until_there(tmp_path / "begun")
    at.type(CTRL_C)
    at.until("instead ›")
    at.type("be short\n")
    at.until("As you like.")
    at.until("$0.0002")
    at.type(CTRL_C)
    at.until("Ctrl+C again leaves")
    at.type("\x04")

    assert at.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_is_left_as_it_was_found(starts: Starts, number: signal.Signals) -> None:
    at = starts("slow")
    at.until("›")
    at.type("go" + ENTER)
    at.until("word word")
    at.child.kill(number)

    assert at.end() == 128 + number
    assert at.modes & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON


@pytest.mark.slow
def test_the_first_run_leads_to_the_tour(starts: Starts) -> None:
    at = starts(program=STAGE.with_name("stage_tour.py"), size=(70, 90))
    at.until("or q to leave")
    at.type("2")
    at.until("the model cannot be fetched: no network")
    at.type("1")
    at.until("The key")
    at.type("sk-ant-wrong" + ENTER)
    at.until("anthropic does not know this key")
    at.type("4")
    at.until("Enter begins")
    at.type(ENTER)
    at.until("May edit_file change a file?")
    at.until("n no, and why")
    at.type("y")
    at.until("May bash run this?")
    at.until("n no, and why")
    at.type("n")
    at.until("why not?")
    at.type(ENTER)
    at.until("Enter shows the journal")
    at.type(ENTER)
    at.until("That was the tour.")

    assert at.end() == 0
    assert "sk-ant" not in at.raw
    assert any(row.split()[1:2] == ["TurnEnded"] for row in at.rows)


@pytest.mark.slow
def test_the_tour_can_be_left_at_any_time(starts: Starts) -> None:
    tour = STAGE.with_name("stage_tour.py")
    for left in ("at the start", "at a question"):
        at = starts("tour", program=tour)
        at.until("Enter begins")
        if left == "at a question":
            at.type(ENTER)
            at.until("n no, and why")
            at.type(CTRL_C)
        else:
            at.type("q")

        assert at.end() == 0
        assert "That was the tour." not in at.text
