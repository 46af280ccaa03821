"""`refold tree [NODE]`: a session and all below it, running or not."""

import time
from argparse import Namespace

from refold.cli.out import signs
from refold.cli.reading import nodes
from refold.cli.subparsers import Subparsers
from refold.views.tree import rows, tree_document, tree_lines


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("tree", help="a session and all below it")
    nodes.add_node(parser)
    parser.add_argument("--leaves", action="store_true", help="each leaf, too")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(found: Namespace) -> int:
    node = nodes.only_node(nodes.read(nodes.place(found)))
    root = rows(node, time.time(), nodes.labels())
    if found.json:
        nodes.tell({"type": "tree", **tree_document(root, every_leaf=found.leaves)})
    else:
        nodes.show(tree_lines(root, nodes.room(), every_leaf=found.leaves, signs=signs()))
    return nodes.damages(node)
