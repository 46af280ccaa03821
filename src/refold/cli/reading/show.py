"""`refold show NODE`: one session of a tree, one leaf, one step or one call, whole."""

import time
from argparse import Namespace

from refold.cli.out import signs
from refold.cli.reading import nodes
from refold.cli.reading.nodes import FoundNode
from refold.cli.reading.step import tell_step
from refold.cli.subparsers import Subparsers
from refold.errors import BadInput
from refold.views.call import call_document, call_lines, call_shown
from refold.views.deeds import Aside, Deed, ModelStep, ToolStep, deeds
from refold.views.node import (
    leaf_lines,
    leaf_shown,
    leaf_shown_document,
    node_document,
    node_lines,
)
from refold.views.tree import rows


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "show", help="a session, a leaf, a step or a call, whole"
    )
    nodes.add_node(parser)
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(found: Namespace) -> int:
    meant = nodes.read(nodes.place(found))
    if not meant.rest:
        return _session(meant, as_json=found.json)
    match _deed(meant):
        case ToolStep() as made:
            call = call_shown(meant.node, made, nodes.blobs(meant.node))
            if found.json:
                nodes.tell(call_document(call))
            else:
                nodes.show(call_lines(call))
        case Aside() as aside:
            leaf = leaf_shown(meant.node, aside, nodes.blobs(meant.node))
            if found.json:
                nodes.tell(leaf_shown_document(leaf))
            else:
                nodes.show(leaf_lines(leaf))
        case ModelStep(number):
            tell_step(meant.node, number, as_json=found.json)
        case _:
            raise BadInput(_nothing(meant))
    return nodes.damages(meant.node)


def _session(meant: FoundNode, *, as_json: bool) -> int:
    row = rows(meant.node, time.time(), nodes.labels())
    if as_json:
        nodes.tell(node_document(row))
    else:
        nodes.show(node_lines(row, nodes.room(), signs=signs()))
    return nodes.damages(meant.node)


def _deed(meant: FoundNode) -> Deed | None:
    """What bears that name; c7 is short for call-7."""
    did = deeds(meant.node.entries)
    name = meant.rest
    return did.named(name) or did.named(f"call-{name[1:]}" if name[:1] == "c" else name)


def _nothing(meant: FoundNode) -> str:
    return (
        f"{meant.node.address} has no {meant.rest!r}: in it are leaf-N, call-N, step-N and "
        f"child-N (refold trace {meant.node.address} lists them)"
    )
