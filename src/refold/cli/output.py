"""Prints answers, asks questions and opens the editor, for subcommands.

`headless.streams` writes to stdout and stderr. `console.editor` edits a message.
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

_DEFAULT_COLUMNS = 80  # for a terminal that does not report its width
_DEFAULT_ROWS = 24
_PAUSE_SECONDS = 0.2  # between two checks of a file that is followed


def print_answer(text: str) -> None:
    """Print a text of a model. On a terminal, control characters are escaped."""
    write(answer_text(text))


def terminal_columns(otherwise: int) -> int:
    """Return the width of the terminal, or `otherwise` if there is no terminal."""
    if not sys.stdout.isatty():
        return otherwise
    import shutil  # only needed for fitting lines

    fallback = (otherwise or _DEFAULT_COLUMNS, _DEFAULT_ROWS)
    return shutil.get_terminal_size(fallback).columns


def has_unicode() -> bool:
    """Return whether stdout can show characters outside of ASCII."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def is_interactive() -> bool:
    """Return whether the user can answer questions at a terminal."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout))


def confirm(question: str) -> bool:
    """Ask `question`, and return whether the user says yes. An empty answer means no.

    Raises `BadInput` without a terminal.
    """
    if not is_interactive():
        raise BadInput(
            f"{question} There is no terminal to answer at: repeat the command with --yes"
        )
    write(f"{question} [y/N] ")
    return read_yes()


def read_yes() -> bool:
    """Read a line, and return whether it means yes."""
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        write("\n")  # the shell's prompt gets a line of its own
        raise


_EDITOR_PROGRAMS = ("nano", "vim", "vi")  # tried if no editor is set


def wait_for_poll() -> None:
    """Wait until the next poll is due. Raises `ReaderGone` if stdout is closed meanwhile."""
    output = select.poll()
    # poll reports a closed pipe without being asked for events
    output.register(sys.stdout, 0)
    if output.poll(_PAUSE_SECONDS * 1000):
        raise ReaderGone


def find_editor(instead: str) -> list[str]:
    """Return the command of the user's editor, or of an installed editor.

    Raises `BadInput` if no editor is found. Without a terminal, only an editor that the user
    has set is found, and the error advises `instead`.
    """
    if words := editor_command(os.environ):
        return list(words)
    if not is_interactive():  # an editor that was set may need no terminal
        raise BadInput(f"there is no terminal to edit it in: {instead}")
    installed = Programs(os.environ)
    for name in _EDITOR_PROGRAMS:
        if path := installed.find(name):
            return [path]
    raise BadInput("no editor was found: name one in $EDITOR, such as EDITOR=nano")


def edit(command: list[str], file: Path) -> None:
    """Run the editor `command` with `file`, and wait until it exits.

    Raises `BadInput` if the editor fails.
    """
    try:
        program = Programs(os.environ).require(command[0])
        words = [program, *command[1:], str(file)]
        environ = programs.without_loader_variables(os.environ)
        with programs.start(words, env=environ) as running:
            code = running.wait()
    except OSError as error:
        raise BadInput(f"{command[0]} cannot be run: {reason_of(error)}") from error
    if code:
        raise BadInput(f"{command[0]} ended with exit code {code}")
