"""Errors on the command line are named, with what may have been meant."""

import subprocess
from pathlib import Path

import pexpect
import pytest

from refold.cli.flags import parse
from refold.errors import BadInput
from tests.cli.running import LONG, command, script

HOW = "--help)"
ALL = "--help all)"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fix the test",
         'a message is one argument, in quotation marks: refold "fix the test"'),
        ("sesions list", 'a message is one argument, in quotation marks: refold "sesions list"'
         "; or did you mean the subcommand sessions?"),
        ("doctr", "'doctr' is not a subcommand: did you mean refold doctor? "
         "To send it as a message: refold -- doctr"),
        ("resume", "'resume' is not a subcommand: did you mean refold -r? "
         "To send it as a message: refold -- resume"),
        ("logout", "'logout' is not a subcommand: did you mean refold auth remove? "
         "To send it as a message: refold -- logout"),
        ("upgrade", "'upgrade' is not a subcommand: did you mean refold update? "
         "To send it as a message: refold -- upgrade"),
        ("help sesions", f"'sesions' is not a subcommand (see refold {ALL}"),
        ("--yolo sessions list",
         "the subcommand goes before all flags: refold sessions …"),
        ("-p hi --modle openai/x",
         f"unknown option --modle; did you mean --model? (see refold {ALL}"),
        ("fix it --modle x",
         f"unknown option --modle; did you mean --model? (see refold {ALL}"),
        ("doctor --ofline",
         f"unknown option --ofline; did you mean --offline? (see refold doctor {HOW}"),
        ("sessions list --jsn",
         f"unknown option --jsn; did you mean --json? (see refold sessions list {HOW}"),
        ("config", "the following arguments are required: WHAT: show, get, set, unset, path, "
         f"edit (see refold config {HOW}"),
        ("memory", "the following arguments are required: WHAT: show, edit, forget, update, diff, "
         f"path (see refold memory {HOW}"),
        ("schema", "the following arguments are required: which: stream, orders "
         f"(see refold schema {HOW}"),
        ("sessions rename a",
         f"the following arguments are required: NAME (see refold sessions rename {HOW}"),
        ("-p hi -c -r 2026",
         f"argument -r/--resume: not allowed with argument -c/--continue (see refold {ALL}"),
        ("-p hi --script a --replay b",
         f"argument --replay: not allowed with argument --script/--fake-script (see refold {ALL}"),
        ("-p hi --max-turns 0",
         f"argument --max-turns: '0' is not a number of model responses: 1 or more (see refold {ALL}"),
        ("-p hi --max-turns many",
         f"argument --max-turns: 'many' is not a number of model responses: 1 or more (see refold {ALL}"),
        ("-p hi --allow=", "argument --allow/--allowedTools: '' is not a rule; "
         f"write 'bash(git status *)' (see refold {ALL}"),
    ],
)  # fmt: skip
def test_a_misspelt_flag_or_command_is_an_error_with_a_suggestion(
    line: str, message: str
) -> None:
    with pytest.raises(BadInput) as error:
        parse(line.split(" "))

    assert str(error.value) == message


@pytest.mark.parametrize(
    ("line", "text"),
    [("hi", "hi"), ("-- doctr", "doctr"), ("Resume", "Resume"), ("doctr!", "doctr!")],
)
def test_words_unlike_any_command_are_parsed_as_a_message(line: str, text: str) -> None:
    assert parse(line.split(" ")).text == text


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [("--output-format", "json"), ("--timeout", "9"), ("--verify",), ("--include-partial-messages",)],
    ids=lambda flags: flags[0],
)  # fmt: skip
def test_a_flag_of_print_mode_without_p_is_refused_at_a_terminal(
    flags: tuple[str, ...],
) -> None:
    program, *arguments = command("Hi", *flags)

    with pexpect.spawn(program, arguments, timeout=LONG, encoding="utf-8") as terminal:
        screen_text = terminal.read()

    assert (
        screen_text == f"refold: {flags[0]} is for one task without a terminal: add -p\r\n"
    )
    assert terminal.exitstatus == 1


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--version",), ("--help",), ("config", "--help")])
def test_help_and_version_report_a_full_disk(
    words: tuple[str, ...],
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command(*words), stdout=full, stderr=subprocess.PIPE, text=True, timeout=LONG,
            check=False,
        )  # fmt: skip

    text = "refold: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("--version",), ("--help",), ("context",), ("tree",), ("sessions", "search", "Hi")],
)
def test_with_closed_stdout_nothing_is_written_to_stderr_instead(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    answers = script(tmp_path, {"text": "Hello."})
    hello = command("-p", "Hi", "--script", answers)
    subprocess.run(hello, cwd=tmp_path, stdin=subprocess.DEVNULL, timeout=LONG, check=True)

    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command(*words)], cwd=tmp_path,
        stderr=subprocess.PIPE, timeout=LONG, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (1, b"")
