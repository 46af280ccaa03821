"""`refold tree [NODE]`: a session and all below it, running or not."""

import time
from argparse import ArgumentParser, Namespace

from refold.cli import session_argument
from refold.cli.output import signs
from refold.views.session_tree import rows, tree_document, tree_lines


def add_arguments(parser: ArgumentParser) -> None:
    session_argument.add_node(parser)
    parser.add_argument("--leaves", action="store_true", help="list every leaf call, too")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(found: Namespace) -> int:
    node = session_argument.only_node(session_argument.read(session_argument.place(found)))
    root = rows(node, time.time(), session_argument.labels())
    if found.json:
        session_argument.tell(
            {"type": "tree", **tree_document(root, every_leaf=found.leaves)}
        )
    else:
        session_argument.show(
            tree_lines(
                root, session_argument.room(), every_leaf=found.leaves, signs=signs()
            )
        )
    return session_argument.damages(node)
