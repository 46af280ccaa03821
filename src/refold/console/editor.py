"""Edits a text in the user's editor ($VISUAL or $EDITOR).

The editor uses the terminal until it exits.
"""

import os
import shlex
from collections.abc import Mapping
from tempfile import TemporaryDirectory

import anyio

from refold import programs
from refold.errors import RefoldError
from refold.programs import Programs


def editor_command(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command that starts the user's editor; () if none is set."""
    for name in ("VISUAL", "EDITOR"):
        try:
            if words := shlex.split(environ.get(name, "")):
                return tuple(words)
        except ValueError as error:
            raise RefoldError(f"${name} is not a command: {error}") from error
    return ()


async def edit_text(text: str, command: tuple[str, ...], name: str) -> str:
    """Let the user edit `text` in a file named `name`, and return the edited text.

    Raises `RefoldError` if the editor fails.
    """
    with TemporaryDirectory(prefix="refold-") as directory:
        file = anyio.Path(directory, name)
        await file.write_text(text, encoding="utf-8")
        try:
            program = Programs(os.environ).require(command[0])
            async with await programs.open_process(
                [program, *command[1:], str(file)],
                stdin=None,
                stdout=None,
                stderr=None,
                env=programs.without_loader_variables(os.environ),
            ) as running:
                code = await running.wait()
            if code:
                raise RefoldError(f"{command[0]} ended with exit code {code}")
            return await file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RefoldError(f"{command[0]} could not edit it: {error}") from error
