"""`refold cost [NODE]`: what a session and all below it have cost, and what for."""

from argparse import ArgumentParser, Namespace

from refold.cli import session_argument
from refold.views.cost import spending_document, spending_lines, tree_spending
from refold.views.session_tree import agent_of


def add_arguments(parser: ArgumentParser) -> None:
    session_argument.add_node(parser)
    parser.add_argument(
        "--turns", action="store_true", help="list the cost of each turn, too"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(found: Namespace) -> int:
    node = session_argument.only_node(session_argument.read(session_argument.place(found)))
    used = tree_spending(node, agent_of)
    if found.json:
        document = spending_document(used, turns=found.turns)
        session_argument.tell({"session_id": node.session, **document})
    else:
        session_argument.show(
            spending_lines(used, room=session_argument.room(), turns=found.turns)
        )
    return session_argument.damages(node)
