"""Answers, questions and the editor of subcommands, with a terminal or without one.

`headless.streams` writes to the streams. `terminal.input.editor` edits a message.
"""

import os
import select
import sys
from pathlib import Path

from refold import programs
from refold.console.editor import editor_command
from refold.errors import BadInput, reason_of
from refold.headless.streams import ReaderGone, answer_text, write
from refold.programs import Programs

_DEFAULT_COLUMNS = 80  # of a terminal that does not report them
_PAUSE_SECONDS = 0.2  # between two looks at what is followed


def print_answer(text: str) -> None:
    """Write a model's text: to a program as it is, to a terminal without control characters."""
    write(answer_text(text))


def terminal_columns(otherwise: int) -> int:
    """The width of the terminal; `otherwise` if there is none."""
    if not sys.stdout.isatty():
        return otherwise
    import shutil  # only who fits lines needs it

    return shutil.get_terminal_size((otherwise or _DEFAULT_COLUMNS, 24)).columns


def has_unicode() -> bool:
    """Return True if the output may contain symbols outside ASCII."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def is_interactive() -> bool:
    """Return True if there is a terminal, so that a person can answer a question."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout))


def confirm(question: str) -> bool:
    """Ask for a yes. Raises `BadInput` without a terminal: no answer counts as a no."""
    if not is_interactive():
        raise BadInput(
            f"{question} There is no terminal to answer at: repeat the command with --yes"
        )
    write(f"{question} [y/N] ")
    return read_yes()


def read_yes() -> bool:
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        write("\n")  # the shell's prompt gets a line of its own
        raise


_EDITOR_PROGRAMS = ("nano", "vim", "vi")  # if none is set


def wait_for_poll() -> None:
    """Wait a little. Raises `ReaderGone` if the output was closed, which no write would show."""
    output = select.poll()
    output.register(sys.stdout, 0)  # a closed pipe is reported without being asked for
    if output.poll(_PAUSE_SECONDS * 1000):
        raise ReaderGone


def find_editor(instead: str) -> list[str]:
    """The command that edits a file. `instead`: what a script can do. Raises `BadInput`."""
    if words := editor_command(os.environ):
        return list(words)
    if not is_interactive():  # an editor that was named may need no terminal
        raise BadInput(f"there is no terminal to edit it in: {instead}")
    known = Programs(os.environ)
    for name in _EDITOR_PROGRAMS:
        if path := known.find(name):
            return [path]
    raise BadInput("no editor was found: name one in $EDITOR, such as EDITOR=nano")


def edit(command: list[str], file: Path) -> None:
    """Wait until the editor has ended. Raises `BadInput` if it failed."""
    try:
        program = Programs(os.environ).require(command[0])
        words, environ = (
            [program, *command[1:], str(file)],
            programs.without_loader_variables(os.environ),
        )
        with programs.start(words, env=environ) as running:
            code = running.wait()
    except OSError as error:
        raise BadInput(f"{command[0]} cannot be run: {reason_of(error)}") from error
    if code:
        raise BadInput(f"{command[0]} ended with exit code {code}")
