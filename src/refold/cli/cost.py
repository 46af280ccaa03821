"""`refold cost [ID]`: what a session has cost, by turn, by model and by what for."""

import os
import sys
from argparse import Namespace

import msgspec

from refold.cli.out import write
from refold.cli.reading import add_session, entries, named
from refold.cli.subparsers import Subparsers
from refold.config.paths import paths
from refold.journal.home import Home
from refold.views.spending import spending, spending_document, spending_lines
from refold.views.styled import bare

_ROOM = 100  # cells of a line where nobody says how many there are


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("cost", help="what a session has cost")
    add_session(parser)
    parser.add_argument("--turns", action="store_true", help="turn by turn, too")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(found: Namespace) -> int:
    session = named(Home(paths(os.environ).data / "sessions"), found.id)
    read, damage = entries(session)
    used = spending(read)
    if found.json:
        document = spending_document(used, turns=found.turns)
        write(msgspec.json.encode({"session_id": session.id, **document}).decode() + "\n")
    else:
        write(bare(spending_lines(used, room=_ROOM, turns=found.turns)) + "\n")
    if damage:
        sys.stderr.write(f"refold: {damage}\n")
    return 1 if damage else 0
