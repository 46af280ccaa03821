"""A session's journal, read without its pen: for doors that only show or judge it."""

from argparse import ArgumentParser

from refold.cli.standing import here
from refold.errors import BadInput
from refold.journal.events import Entry
from refold.journal.fold import View, fold
from refold.journal.home import Home, Session
from refold.journal.tree_files import entries_in


def add_session(parser: ArgumentParser) -> None:
    """The session that a command is about: `found.id`, for `named`."""
    about = (
        "a session, or the beginning of its id; without it, the newest of this directory"
    )
    parser.add_argument("id", nargs="?", default="last", metavar="ID", help=about)


def named(home: Home, text: str) -> Session:
    """The session of this id or of one that begins so; of `last`, the newest started here."""
    if text != "last":
        return home.find(text)
    found = home.newest_of(here())
    if found is None:
        raise BadInput(
            f"no session was started in {here()} yet: name one (refold sessions list --all)"
        )
    return found


def folded(session: Session) -> tuple[View, str]:
    """What it knows, and what is wrong with its journal, if anything."""
    found, damage = entries(session)
    return fold(found), damage


def entries(session: Session) -> tuple[list[Entry], str]:
    """The good entries from the start, and what is wrong with the next, if anything."""
    return entries_in(session.path)
