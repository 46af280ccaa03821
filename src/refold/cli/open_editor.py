"""A file of ours in the person's own editor, while they wait for nothing else.

A text that is no file, edited in the middle of a session, is `terminal.keyboard.editor`'s.
"""

import os
from pathlib import Path

from refold import programs
from refold.cli.output import somebody_is_here
from refold.errors import BadInput, said_by
from refold.programs import Programs
from refold.terminal.input.editor import editor_of

_COMMON = ("nano", "vim", "vi")  # where nobody said which


def editor(instead: str) -> list[str]:
    """The command that edits a file. `instead` is what a script can do. Raises `BadInput`."""
    if found := editor_of(os.environ):
        return list(found)
    if not somebody_is_here():  # who named a program may have named one that needs nobody
        raise BadInput(f"nobody is here to edit it: {instead}")
    known = Programs(os.environ)
    for name in _COMMON:
        if path := known.find(name):
            return [path]
    raise BadInput("there is no editor: say which in $EDITOR, as EDITOR=nano")


def edit(command: list[str], file: Path) -> None:
    """Returns when the editor has ended. Raises `BadInput` where it says that it failed."""
    try:
        program = Programs(os.environ).need(command[0])
        words, environ = [program, *command[1:], str(file)], programs.plain(os.environ)
        with programs.start(words, env=environ) as running:
            code = running.wait()
    except OSError as error:
        raise BadInput(f"{command[0]} cannot be run: {said_by(error)}") from error
    if code:
        raise BadInput(f"{command[0]} ended with exit code {code}")
