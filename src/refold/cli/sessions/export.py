"""`refold sessions export ID` and `import FILE`: their command lines and files.

Exporting takes no lock, so it works while the session runs. `client.export` writes and
`journal.bundle` reads; both are imported only when they are needed.
"""

import os
import sys
import time
from argparse import BooleanOptionalAction, Namespace
from pathlib import Path
from typing import BinaryIO

from refold.cli.parser import Subparsers
from refold.cli.session_argument import add_session, labels, named
from refold.config.paths import here, paths
from refold.errors import BadInput
from refold.headless.streams import complain, remark, write, write_bytes
from refold.journal.home import Home
from refold.views.export.formats import FORMS, form_by_name


def add_parsers(what: Subparsers) -> None:
    """`export` and `import`, below `refold sessions`."""
    out = what.add_parser(
        "export", help="export a session as Markdown, HTML, text or a tar archive"
    )
    add_session(out)
    add = out.add_argument
    add(
        "--format",
        choices=FORMS,
        help="the format (default: by the suffix of FILE, else md)",
    )
    add("-o", "--output", metavar="FILE", default="-", help="the output file; -: stdout")
    add("--force", action="store_true", help="overwrite an existing FILE")
    add("--children", action=BooleanOptionalAction, default=True, help="include subagents")
    add("--thoughts", action="store_true", help="include the model's thinking")
    into = what.add_parser("import", help="import a session from a tar archive")
    into.add_argument(
        "file", metavar="FILE", help="a file written by export --format tar; -: stdin"
    )
    into.add_argument(
        "--directory",
        metavar="DIR",
        help="directory of the imported session (default: the current one)",
    )


def export(found: Namespace) -> int:
    """Print or write the session; gives the exit code."""
    from refold.client.export import ExportChoice, check_free, exported, save
    from refold.views.number_format import in_bytes

    form = found.format or form_by_name(found.output)
    choice = ExportChoice(form, found.children, found.thoughts)
    session = named(_home(), found.id)
    path = Path(found.output).expanduser()
    if not found.output:
        raise BadInput("-o is empty: give the name of a file, or - to print")
    if found.output != "-":
        check_free(path, force=found.force)
    elif form == "tar" and sys.stdout.isatty():
        raise BadInput("a tar is binary: give -o FILE, or write to a pipe")
    made = exported(session, choice, labels())
    if found.output == "-":
        for piece in made.pieces:
            write_bytes(piece)
    else:
        size = save(path, made.pieces, force=found.force)
        remark(f"{found.output}: {made.told}, {in_bytes(size)}")
    for damage in made.damages:
        complain(f"left out of it: {damage}")
    return 1 if made.damages else 0


def import_(found: Namespace) -> int:
    """Make a session of FILE; gives the exit code."""
    directory = Path(found.directory).expanduser() if found.directory else here()
    if not directory.is_dir():
        raise BadInput(f"--directory {found.directory!r}: there is no such directory")
    if found.file == "-":
        return _taken(sys.stdin.buffer, "stdin", directory)
    try:
        file = Path(found.file).expanduser().open("rb")
    except OSError as error:
        name = found.file or "''"
        raise BadInput(f"{name} cannot be read: {error.strerror}") from error
    with file:
        return _taken(file, found.file, directory)


def _taken(file: BinaryIO, name: str, directory: Path) -> int:
    from refold.journal.bundle.unpack import unpack
    from refold.views.number_format import many

    made = unpack(_home(), file, name, time.time(), os.path.realpath(directory))
    if made.id != made.source:
        why = "is taken here" if made.taken else "is no id of ours"
        if "/" in made.source:
            why = "is that of a child"
        remark(f"the id {made.source} {why}, so this has a new one")
    if made.lacking:
        blobs = many(made.lacking, "blob")
        complain(f"{blobs} that its events name were not in {name}")
    sessions = many(made.sessions, "session")
    write(f"{made.id}: {sessions}, {many(made.events, 'event')}\n")
    remark(f"imported; to continue it in {directory}: refold -r {made.id}")
    return 0


def _home() -> Home:
    return Home(paths(os.environ).data / "sessions")
