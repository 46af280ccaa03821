"""`refold step N [NODE]`: what the model was sent and said at a step of a session."""

from argparse import ArgumentParser, Namespace

from refold.cli import session_argument
from refold.journal.state.session_tree import Node
from refold.views.model_step import step_document, step_lines, step_shown


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "number", type=int, metavar="N", help="number of the step, from 1; -1: the last"
    )
    session_argument.add_node(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(found: Namespace) -> int:
    node = session_argument.only_node(session_argument.read(session_argument.place(found)))
    tell_step(node, found.number, as_json=found.json)
    return session_argument.damages(node)


def tell_step(node: Node, number: int, *, as_json: bool) -> None:
    shown = step_shown(node, number, session_argument.blobs(node))
    if as_json:
        session_argument.tell(step_document(shown))
    else:
        session_argument.show(
            step_lines(shown, session_argument.room(), session_argument.labels())
        )
