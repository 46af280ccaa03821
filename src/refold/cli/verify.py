"""`refold verify [NODE]`: what a session claims, held against its journal and its files.

Reads only, also while the session runs. With `--deep`, another agent is asked to refute
what is left (`verify_deep`). The exit code says whether the answer can be relied on.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from refold.app.workspace import Where, Workspace
from refold.claims.check import check
from refold.claims.observed import seen_in
from refold.claims.sources import Today, records
from refold.cli import session_argument
from refold.cli.parser import dollars, seconds
from refold.client.verify import VerifyReport, document, lines, told_of
from refold.config.folder_settings import load_here
from refold.config.paths import here, paths
from refold.headless.streams import complain
from refold.journal.home import works_in
from refold.journal.state.session_tree import Node
from refold.place.port import Files


def add_arguments(parser: ArgumentParser) -> None:
    session_argument.add_node(parser)
    add = parser.add_argument
    add(
        "--turn",
        type=int,
        default=0,
        metavar="N",
        help="check the claims of turn N, counted from 1",
    )
    add(
        "--strict",
        action="store_true",
        help="also fail if a claim is unsupported, or if there is none",
    )
    add(
        "--deep",
        action="store_true",
        help="let another agent try to refute the remaining claims",
    )
    add("-m", "--model", metavar="PROVIDER/MODEL", help="model of --deep")
    add("--max-budget-usd", type=dollars, metavar="USD", help="limit of what --deep costs")
    add("--timeout", type=seconds, metavar="SECONDS", help="time limit of --deep")
    add(
        "--script",
        metavar="FILE",
        help="take the model's responses of --deep from a script",
    )
    add("--json", action="store_true", help="print one JSON document")


def run(found: Namespace) -> int:
    node = session_argument.only_node(session_argument.read(session_argument.place(found)))
    told = told_of(node.entries, found.turn)
    folder = _folder(node)
    with _files(folder) as files:
        today = Today(files)
        journals = records(node.path, told.entries)
        checked = check(told.claims, seen_in(journals), today)
        second = None
        if found.deep and checked:
            from refold.cli.verify_deep import look_again

            checked, second = look_again(found, folder, checked, today)
    report = VerifyReport(node.session, told, checked, found.strict, second)
    if found.json:
        session_argument.tell(document(report))
    else:
        session_argument.show(lines(report))
    damages = [*filter(None, (node.damage, *(each.damage for each in journals)))]
    for damage in damages:
        complain(damage)
    return report.code or bool(damages)


def _folder(node: Node) -> Path:
    return Path(works_in(node.path) or here())


@contextmanager
def _files(folder: Path) -> Generator[Files]:
    """The files there, without those that a rule keeps from being read."""
    places = paths(os.environ)
    settings = load_here(folder, places, os.environ, {}).settings
    workspace = Workspace(settings, places, os.environ, Where(folder))
    try:
        yield workspace.files
    finally:
        workspace.close()
