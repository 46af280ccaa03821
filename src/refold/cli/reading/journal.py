"""A session's journal, read without its pen: for doors that only show or judge it."""

from argparse import ArgumentParser
from typing import TYPE_CHECKING

from refold.cli.sessions.waiting import Waiting
from refold.cli.standing import here
from refold.journal.events import Entry
from refold.journal.home import Home, StoredSession
from refold.journal.naming import LAST

if TYPE_CHECKING:
    from refold.journal.fold import View


def add_session(parser: ArgumentParser) -> None:
    """The session that a command is about: `found.id`, for `named`."""
    about = (
        "a session's id or name, or the beginning of one; without it, the newest of this "
        "directory"
    )
    parser.add_argument("id", nargs="?", default=LAST, metavar="ID", help=about)


def named(home: Home, text: str) -> StoredSession:
    """The session with this id or name; of `last`, the newest that was started here."""
    return home.named(text, here(), Waiting())


def folded(session: StoredSession) -> "tuple[View, str]":
    """What it knows, and what is wrong with its journal, if anything."""
    from refold.journal.fold import fold

    found, damage = entries(session)
    return fold(found), damage


def entries(session: StoredSession) -> tuple[list[Entry], str]:
    """The good entries from the start, and what is wrong with the next, if anything."""
    # The folds take a moment to load, and whoever lists sessions needs none.
    from refold.journal.tree_files import entries_in

    return entries_in(session.path)
