"""`refold init`: a first AGENTS.md for this folder, from what can be seen without a model.

What is there already is never lost: it is added to, or replaced when a person says so.
In a session `/init` lets the model write it, which knows more.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path

from refold.cli.output import somebody_is_here
from refold.cli.survey.findings import Facts
from refold.cli.survey.survey import survey
from refold.config.folder_settings import untrusted
from refold.config.paths import here, paths
from refold.config.trusted_folders import Folders
from refold.errors import BadInput
from refold.headless.streams import write
from refold.views.agents_md import Section, added, bullets, missing, table, whole
from refold.views.escape import on_one_line

NAME = "AGENTS.md"


def add_arguments(init: ArgumentParser) -> None:
    how = init.add_mutually_exclusive_group()
    how.add_argument(
        "--print", action="store_true", help="print the text, and write nothing"
    )
    how.add_argument(
        "--add", action="store_true", help="add missing sections to the existing file"
    )
    how.add_argument("--force", action="store_true", help="replace the existing file")


def run(found: Namespace) -> int:
    folder = here()
    facts = survey(folder)
    new, file = _written(facts), folder / NAME
    if found.print:
        write(new)
        return 0
    there = _there(file)
    if not _sections(facts):
        raise BadInput(
            f"there is nothing here yet that {NAME} could say: no command, no directory "
            "with files, no convention"
        )
    if there is None:
        _write(file, new)
        write(f"{NAME} is written: {_told(facts)}. Read it, and say what is missing.\n")
        write(_counts(folder))
        return 0
    lacks = missing(there, _sections(facts))
    how = "replace" if found.force else "add" if found.add else _asked(lacks)
    if how == "replace":
        _write(file, new)
        write(f"{NAME} is replaced.\n")
    elif how == "add" and lacks:
        _write(file, added(there, lacks))
        write(f"{NAME} has more now: {', '.join(each.heading for each in lacks)}.\n")
    else:
        write(f"{NAME} stays as it is.\n")
    return 0


def _asked(lacks: tuple[Section, ...]) -> str:
    """What to do with a file that is there. Raises `BadInput` where nobody can say."""
    if not somebody_is_here():
        raise BadInput(
            f"{NAME} is there already: --add adds what it lacks, --force replaces it, "
            "--print only shows what would be written"
        )
    if lacks:
        write("".join(f"{line}\n" for each in lacks for line in each.text.splitlines()))
        write(f"\n{NAME} is there. [a]dd this, [r]eplace all of it, or leave it? ")
    else:
        write(f"{NAME} is there and says all of this. [r]eplace it, or leave it? ")
    said = sys.stdin.readline().strip().lower()
    return {"a": "add", "add": "add", "r": "replace", "replace": "replace"}.get(said, "")


def _written(facts: Facts) -> str:
    kind = f"{', '.join(facts.kinds)}." if facts.kinds else ""
    return whole(facts.name, (facts.about, kind), _sections(facts))


def _sections(facts: Facts) -> tuple[Section, ...]:
    rows = [(each.what, each.words) for each in facts.commands]
    layout = [
        f"`{part.name}/`" + (f": {part.language}" if part.language else "")
        for part in facts.parts
    ]
    found = [table(rows)] if rows else []
    found += [bullets("Layout", layout)] if layout else []
    found += [bullets("Conventions", facts.conventions)] if facts.conventions else []
    if facts.read:
        found.append(bullets("More", [f"See {', '.join(f'`{n}`' for n in facts.read)}."]))
    return tuple(found)


def _told(facts: Facts) -> str:
    kinds = ", ".join(facts.kinds) or "no kind of project that is known"
    number = len(facts.commands)
    return on_one_line(f"{kinds}, {number} {'command' if number == 1 else 'commands'}")


def _counts(folder: Path) -> str:
    """That it is told to no model yet; "" where it is."""
    try:
        found = untrusted(folder, Folders(paths(os.environ).folders)).found
    except BadInput:
        return ""
    return "It counts once you have said so: refold trust add.\n" if found else ""


def _there(file: Path) -> str | None:
    try:
        if file.exists() and not file.is_file():
            raise BadInput(f"{file} is there and is no file")
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise BadInput(f"{file} is there and is no UTF-8") from error
    except OSError as error:
        raise BadInput(f"{file} is there and cannot be read: {error.strerror}") from error


def _write(file: Path, text: str) -> None:
    """A link stays one; what a folder of somebody's links to elsewhere is not ours to write."""
    try:
        real = file.resolve()
    except RuntimeError as error:
        raise BadInput(f"{file} cannot be written: it is a link to itself") from error
    if not real.is_relative_to(file.parent.resolve()):
        raise BadInput(
            f"{file} is a link to {real}, outside of this folder: remove it first"
        )
    beside = real.with_name(f".{real.name}.new")
    try:
        beside.unlink(missing_ok=True)  # a link that somebody put there
        with beside.open("x", encoding="utf-8", newline="") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(real)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise BadInput(f"{file} cannot be written: {error.strerror}") from error
