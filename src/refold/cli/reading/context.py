"""`refold context [ID]`: what fills the model's window in a session, running or not."""

import os
from argparse import Namespace

import msgspec

from refold.cli.out import complain, signs, write
from refold.cli.reading.journal import add_session, folded, named
from refold.cli.standing import here
from refold.cli.subparsers import Subparsers
from refold.config.here import load_here
from refold.config.paths import paths
from refold.journal.home import Home
from refold.views.context import context_document, context_lines, filling
from refold.views.styled import bare


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("context", help="what fills the model's window, by part")
    add_session(parser)
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(found: Namespace) -> int:
    places = paths(os.environ)
    session = named(Home(places.data / "sessions"), found.id)
    settings = load_here(here(), places, os.environ, {}).settings
    view, damage = folded(session)
    filled = filling(view, settings.context.window)
    if found.json:
        document = {"session_id": session.id, **context_document(filled)}
        write(msgspec.json.encode(document).decode() + "\n")
    else:
        write(bare(context_lines(filled, signs=signs())) + "\n")
    if damage:
        complain(damage)
    return 1 if damage else 0
