"""`refold sessions`: its command line, and those of its commands that read one journal.

Lists and searches are `listing`, names and tags `naming`, deleting `deleting`, going out
and coming in `export`. What is here writes nothing and takes no pen.
"""

import os
from argparse import REMAINDER, ArgumentTypeError, Namespace

import msgspec

from refold.cli.out import complain, write
from refold.cli.reading.journal import entries, named
from refold.cli.sessions.export import add_parsers
from refold.cli.subparsers import Subparsers
from refold.config.paths import paths
from refold.journal.home import Home, StoredSession

SORTS = ("changed", "began", "cost", "tokens", "events", "title")
_ID = "its id or name, or the beginning of one; last: the newest of this directory"


def add_parser(commands: Subparsers) -> None:
    sessions = commands.add_parser("sessions", help="list, find, name and delete sessions")
    what: Subparsers = sessions.add_subparsers(dest="what", metavar="WHAT", required=True)
    _add_lists(what)
    _add_one(what)
    _add_changes(what)
    add_parsers(what)


def _add_lists(what: Subparsers) -> None:
    listing = what.add_parser("list", help="the sessions, newest first")
    search = what.add_parser("search", help="what was said and done, by its words")
    search.add_argument("text", nargs="+", metavar="TEXT",
        help='words, "words as they stand", or the beginning of one with a star')  # fmt: skip
    for one in (listing, search):
        one.add_argument("--all", action="store_true", help="of every directory")
        one.add_argument("--json", action="store_true", help="as JSON, one a line")
        one.add_argument("--tag", action="append", default=[], metavar="T",
            help="only those with this tag; can be given again")  # fmt: skip
    listing.add_argument("--limit", type=_count, metavar="N", help="at most so many")
    listing.add_argument("--sort", choices=SORTS, default="changed", help="the most first")
    search.add_argument("--limit", type=_count, default=20, metavar="N",
        help="at most so many places (20)")  # fmt: skip
    again = what.add_parser("reindex", help="make the catalogue of all sessions anew")
    again.add_argument("--json", action="store_true", help="as JSON")


def _add_one(what: Subparsers) -> None:
    for name, about in (
        ("show", "what was said and done"),
        ("check", "is the journal whole? exit 1 if not"),
        ("requests", "model calls as they went over the wire, where --trace kept them"),
    ):
        one = what.add_parser(name, help=about)
        one.add_argument("id", metavar="ID", help=_ID)
        if name == "requests":
            one.add_argument("number", nargs="?", type=_count, metavar="N",
                help="only this one, whole")  # fmt: skip
        one.add_argument("--json", action="store_true", help="as JSON")


def _add_changes(what: Subparsers) -> None:
    rename = what.add_parser("rename", help="give a session a name")
    rename.add_argument("id", metavar="ID", help=_ID)
    rename.add_argument("name", metavar="NAME", help='the name; "" takes it away')
    tag = what.add_parser("tag", help="give a session tags, or take them away")
    tag.add_argument("id", metavar="ID", help=_ID)
    tag.add_argument("tags", nargs=REMAINDER, metavar="+TAG|-TAG",
        help="what to add and what to take away; without any, they are shown")  # fmt: skip
    delete = what.add_parser("delete", help="delete sessions for good")
    delete.add_argument("ids", nargs="+", metavar="ID", help=_ID)
    delete.add_argument("-y", "--yes", action="store_true", help="without asking")
    delete.add_argument("--json", action="store_true", help="as JSON, one a line")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def run(found: Namespace) -> int:
    home = Home(paths(os.environ).data / "sessions")
    match found.what:
        case "list" | "search" | "reindex":
            from refold.cli.sessions import listing

            return listing.run(home, found)
        case "rename" | "tag":
            from refold.cli.sessions import naming

            return naming.run(home, found)
        case "delete":
            from refold.cli.sessions import deleting

            return deleting.run(home, found)
        case _:
            return _of_one(home, found)


def _of_one(home: Home, found: Namespace) -> int:
    match found.what:
        case "export" | "import":
            from refold.cli.sessions import export

            return export.export(found) if found.what == "export" else export.import_(found)
        case "show":
            return show(named(home, found.id), as_json=found.json)
        case "requests":
            return _requests(named(home, found.id), found.number, as_json=found.json)
        case _:
            return _check(named(home, found.id), as_json=found.json)


def show(session: StoredSession, *, as_json: bool) -> int:
    """Print its talk, or its events; gives the exit code."""
    # Listing thousands of sessions shall not wait for what shows one.
    from refold.cli.reading.nodes import labels
    from refold.journal.frame import Frame
    from refold.views.screen.screen import screen_of
    from refold.views.stream import documents
    from refold.views.transcript import transcript

    found, damage = entries(session)
    if as_json:
        for entry in found:
            for document in documents(Frame(entry.seq, 0, entry), live=False):
                _line({"at": entry.at, "by": entry.by, "cause": entry.cause, **document})
    else:
        write(transcript(screen_of(found), labels()) + "\n")
    if damage:
        complain(damage)
    return 1 if damage else 0


def _requests(session: StoredSession, number: int | None, *, as_json: bool) -> int:
    from refold.cli.sessions import requests

    found, damage = entries(session)
    code = requests.show(session, found, number, as_json=as_json)
    if damage:
        complain(damage)
    return 1 if damage else code


def _check(session: StoredSession, *, as_json: bool) -> int:
    from refold.journal.check import check

    report = check(session.path)
    if as_json:
        damages = [
            {"file": str(d.file), "line": d.line, "what": d.what, "lost": d.lost}
            for d in report.damages
        ]
        _line({"id": session.id, "events": report.events, "blobs": report.blobs,
               "damages": damages})  # fmt: skip
    else:
        for damage in report.damages:
            write(f"{damage}\n")
        state = f"{len(report.damages)} damages" if report.damages else "whole"
        write(f"{session.id}: {state}, {report.events} good events, {report.blobs} blobs\n")
    return 1 if report.damages else 0


def _line(document: dict[str, object]) -> None:
    write(msgspec.json.encode(document).decode() + "\n")
