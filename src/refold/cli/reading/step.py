"""`refold step N [NODE]`: what the model was sent and said at a step of a session."""

from argparse import Namespace

from refold.cli.reading import nodes
from refold.cli.subparsers import Subparsers
from refold.journal.tree import Node
from refold.views.step import step_document, step_lines, step_shown


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "step", help="what the model was sent and said at a step"
    )
    parser.add_argument(
        "number", type=int, metavar="N", help="from 1; -1 is the last, -2 the one before"
    )
    nodes.add_node(parser)
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(found: Namespace) -> int:
    node = nodes.only_node(nodes.read(nodes.place(found)))
    tell_step(node, found.number, as_json=found.json)
    return nodes.damages(node)


def tell_step(node: Node, number: int, *, as_json: bool) -> None:
    shown = step_shown(node, number, nodes.blobs(node))
    if as_json:
        nodes.tell(step_document(shown))
    else:
        nodes.show(step_lines(shown, nodes.room(), nodes.labels()))
