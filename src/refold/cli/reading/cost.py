"""`refold cost [NODE]`: what a session and all below it have cost, and what for."""

from argparse import Namespace

from refold.cli.reading import nodes
from refold.cli.subparsers import Subparsers
from refold.views.spending import spending_document, spending_lines, tree_spending
from refold.views.tree import agent_of


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("cost", help="what a session has cost")
    nodes.add_node(parser)
    parser.add_argument("--turns", action="store_true", help="turn by turn, too")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(found: Namespace) -> int:
    node = nodes.only_node(nodes.read(nodes.place(found)))
    used = tree_spending(node, agent_of)
    if found.json:
        document = spending_document(used, turns=found.turns)
        nodes.tell({"session_id": node.session, **document})
    else:
        nodes.show(spending_lines(used, room=nodes.room(), turns=found.turns))
    return nodes.damages(node)
