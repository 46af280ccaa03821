"""`refold sessions`: defines its parsers, and runs the commands that read one journal.

This module writes nothing and takes no lock. `list_sessions` lists and searches, `changes`
renames, tags and deletes, and `export` exports and imports.
"""

from argparse import REMAINDER, ArgumentParser, Namespace
from functools import partial

from refold.cli.parser import Subparsers, count
from refold.cli.session_argument import find_session_id, print_conversation, user_sessions
from refold.cli.sessions.export import add_parsers
from refold.headless.streams import print_document, print_error, write
from refold.journal.session_index import SessionIndex

SORT_KEYS = ("changed", "began", "cost", "tokens", "events", "title")
_ID_HELP = "id or name of a session, or a prefix; last: the newest of this directory"


def add_arguments(sessions: ArgumentParser) -> None:
    subparsers = sessions.add_subparsers(dest="what", metavar="WHAT", required=True)
    _add_list_commands(subparsers)
    _add_report_commands(subparsers)
    _add_change_commands(subparsers)
    add_parsers(subparsers)


def _add_list_commands(subparsers: Subparsers) -> None:
    listing = subparsers.add_parser("list", help="list sessions, newest first")
    search = subparsers.add_parser("search", help="search messages and calls")
    search.add_argument("text", nargs="+", metavar="TEXT",
        help='words, "an exact phrase", or a prefix with a star')  # fmt: skip
    for subparser in (listing, search):
        subparser.add_argument(
            "--all", action="store_true", help="include sessions of all directories"
        )
        subparser.add_argument("--json", action="store_true", help="print JSON lines")
        subparser.add_argument("--tag", action="append", default=[], metavar="T",
            help="only sessions with this tag; repeatable")  # fmt: skip
    listing.add_argument("--limit", type=count, metavar="N",
        help="list at most N sessions (default on a terminal: 50)")  # fmt: skip
    listing.add_argument(
        "--sort", choices=SORT_KEYS, default="changed", help="sort order, highest first"
    )
    search.add_argument("--limit", type=count, default=20, metavar="N",
        help="print at most N matches (default: 20)")  # fmt: skip
    reindex = subparsers.add_parser("reindex", help="rebuild the index of sessions")
    reindex.add_argument("--json", action="store_true", help="print JSON")


def _add_report_commands(subparsers: Subparsers) -> None:
    for name, about in (
        ("show", "print the conversation"),
        ("check", "check the journal for damage; exit code 1 if there is any"),
        ("requests", "list saved model requests (see --log-requests)"),
    ):
        subparser = subparsers.add_parser(name, help=about)
        subparser.add_argument("id", metavar="ID", help=_ID_HELP)
        if name == "requests":
            subparser.add_argument("number", nargs="?", type=count, metavar="N",
                help="print this one in full")  # fmt: skip
        subparser.add_argument("--json", action="store_true", help="print JSON")


def _add_change_commands(subparsers: Subparsers) -> None:
    rename = subparsers.add_parser("rename", help="rename a session")
    rename.add_argument("id", metavar="ID", help=_ID_HELP)
    rename.add_argument("name", metavar="NAME", help='the new name; "" removes it')
    tag = subparsers.add_parser("tag", help="add, remove or list the tags of a session")
    tag.add_argument("id", metavar="ID", help=_ID_HELP)
    tag.add_argument("tags", nargs=REMAINDER, metavar="+TAG|-TAG",
        help="tags to add and to remove; none: list them")  # fmt: skip
    delete = subparsers.add_parser("delete", help="delete sessions permanently")
    delete.add_argument("ids", nargs="+", metavar="ID", help=_ID_HELP)
    delete.add_argument(
        "-y", "--yes", action="store_true", help="do not ask for confirmation"
    )
    delete.add_argument("--json", action="store_true", help="print JSON lines")

    move = subparsers.add_parser(
        "move", help="move sessions to a database, or back to files"
    )
    move.add_argument("ids", nargs="*", metavar="ID", help=_ID_HELP)
    move.add_argument("--all", action="store_true", help="move every session")
    move.add_argument("--to", required=True, metavar="URL",
        help="postgresql://user@host/database, or: files")  # fmt: skip
    move.add_argument("--dry-run", action="store_true", help="only list what would move")


def run(args: Namespace) -> int:
    index = user_sessions()
    match args.what:
        case "move":
            from refold.cli.sessions import move

            return move.run(index, args)
        case "list" | "search" | "reindex":
            from refold.cli.sessions import list_sessions

            return list_sessions.run(index, args)
        case "rename" | "tag" | "delete":
            from refold.cli.sessions import changes

            return changes.run(index, args)
        case _:
            return _run_on_one_session(index, args)


def _run_on_one_session(index: SessionIndex, args: Namespace) -> int:
    match args.what:
        case "export" | "import":
            from refold.cli.sessions import export

            return export.export(args) if args.what == "export" else export.import_(args)
        case "show":
            session = find_session_id(index, args.id)
            return print_conversation(index, session, as_json=args.json)
        case "requests":
            return _requests(index, find_session_id(index, args.id), args)
        case _:
            return _check(index, find_session_id(index, args.id), as_json=args.json)


def _requests(index: SessionIndex, session: str, args: Namespace) -> int:
    """Print saved model requests. Return 1 if the journal or the request is incomplete."""
    from refold.cli.sessions import requests
    from refold.journal.store.logged_requests import wire_calls

    entries, damage = index.entries(session)
    calls = list(wire_calls(entries, partial(index.blob, session)))
    code = requests.show(session, calls, args.number, as_json=args.json)
    if damage:
        print_error(damage)
    return 1 if damage else code


def _check(index: SessionIndex, session: str, *, as_json: bool) -> int:
    """Print the damage of a session. Return 1 if there is any, otherwise 0."""
    report = index.check(session)
    if as_json:
        damages = [
            {
                "file": str(damage.file),
                "line": damage.line,
                "what": damage.what,
                "lost": damage.lost,
            }
            for damage in report.damages
        ]
        print_document({"id": session, "events": report.events, "blobs": report.blobs,
               "damages": damages})  # fmt: skip
    else:
        for damage in report.damages:
            write(f"{damage}\n")
        state = f"{len(report.damages)} damages" if report.damages else "whole"
        write(f"{session}: {state}, {report.events} good events, {report.blobs} blobs\n")
    return 1 if report.damages else 0
