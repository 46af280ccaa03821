"""`refold config edit`: a file of settings in the person's editor, and checked after.

What is wrong never replaces what was right: it goes back into the editor, or is kept
beside the file.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from refold.cli.confirming import somebody_is_here
from refold.cli.editing import edit, editor
from refold.cli.out import complain, write
from refold.config.writing import File, put
from refold.errors import BadInput, said_by
from refold.place.private import write as keep
from refold.views.escape import on_one_line

_EMPTY = "# docs/settings.md says what can stand here.\n"


def run(file: File) -> int:
    """Exit code 1 if nothing new counts. Raises `BadInput`."""
    command, there = editor("say refold config set KEY VALUE"), file.text()
    before = there or _EMPTY
    aside = file.path.with_name(f"{file.path.stem}.edited{file.path.suffix}")
    if os.path.lexists(aside) and (aside.is_symlink() or not _holds(aside, before)):
        raise BadInput(
            f"{aside} is there from an edit before: take from it what you need, and remove it"
        )
    _keep(aside, before)
    while True:
        try:
            edit(command, aside)
            after = _read(aside)
        except BadInput as error:
            if _holds(aside, before):
                aside.unlink(missing_ok=True)
            raise BadInput(f"{error}; nothing was changed") from error
        if after == before:
            aside.unlink(missing_ok=True)
            write(f"{on_one_line(str(file.path))} stays as it was.\n")
            return 0
        try:
            put(file, after, instead=there)
        except BadInput as error:
            complain(on_one_line(str(error)))
            if _again():
                continue
            where = on_one_line(str(aside))
            complain(f"nothing was changed; what you wrote is in {where}")
            return 1
        aside.unlink(missing_ok=True)
        write(f"{on_one_line(str(file.path))} is written.\n")
        return 0


def _keep(aside: Path, text: str) -> None:
    try:
        keep(aside, text)
    except OSError as error:
        raise BadInput(f"{aside} cannot be written: {said_by(error)}") from error


def _holds(aside: Path, text: str) -> bool:
    with suppress(OSError, UnicodeDecodeError):
        return aside.read_bytes().decode("utf-8") == text
    return False


def _read(aside: Path) -> str:
    try:
        return aside.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{aside} cannot be read: {said_by(error)}") from error


def _again() -> bool:
    if not somebody_is_here():
        return False
    write("Edit it again? [Y/n] ")
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")
