"""`refold context [ID]`: what fills the model's window in a session, running or not."""

import os
from argparse import ArgumentParser, Namespace

import msgspec

from refold.cli.output import signs
from refold.cli.session_argument import add_session, folded, named
from refold.config.folder_settings import load_here
from refold.config.paths import here, paths
from refold.headless.streams import complain, write
from refold.journal.home import Home
from refold.views.context import context_document, context_lines, context_usage
from refold.views.styled import bare


def add_arguments(parser: ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(found: Namespace) -> int:
    places = paths(os.environ)
    session = named(Home(places.data / "sessions"), found.id)
    settings = load_here(here(), places, os.environ, {}).settings
    view, damage = folded(session)
    filled = context_usage(view, settings.context.window)
    if found.json:
        document = {"session_id": session.id, **context_document(filled)}
        write(msgspec.json.encode(document).decode() + "\n")
    else:
        write(bare(context_lines(filled, signs=signs())) + "\n")
    if damage:
        complain(damage)
    return 1 if damage else 0
