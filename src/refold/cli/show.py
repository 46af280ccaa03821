"""`refold show NODE`: one session of a tree, one leaf, one step or one call, whole."""

import time
from argparse import ArgumentParser, Namespace

from refold.cli import session_argument
from refold.cli.output import signs
from refold.cli.session_argument import FoundNode
from refold.cli.step import tell_step
from refold.errors import BadInput
from refold.views.activity import ModelStep, SideCall, Span, ToolStep, activity_of
from refold.views.node_detail import (
    call_document,
    call_lines,
    call_shown,
    leaf_lines,
    leaf_shown,
    leaf_shown_document,
    node_document,
    node_lines,
)
from refold.views.session_tree import rows


def add_arguments(parser: ArgumentParser) -> None:
    session_argument.add_node(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(found: Namespace) -> int:
    meant = session_argument.read(session_argument.place(found))
    if not meant.rest:
        return _session(meant, as_json=found.json)
    match _deed(meant):
        case ToolStep() as made:
            call = call_shown(meant.node, made, session_argument.blobs(meant.node))
            if found.json:
                session_argument.tell(call_document(call))
            else:
                session_argument.show(call_lines(call))
        case SideCall() as aside:
            leaf = leaf_shown(meant.node, aside, session_argument.blobs(meant.node))
            if found.json:
                session_argument.tell(leaf_shown_document(leaf))
            else:
                session_argument.show(leaf_lines(leaf))
        case ModelStep(number):
            tell_step(meant.node, number, as_json=found.json)
        case _:
            raise BadInput(_nothing(meant))
    return session_argument.damages(meant.node)


def _session(meant: FoundNode, *, as_json: bool) -> int:
    row = rows(meant.node, time.time(), session_argument.labels())
    if as_json:
        session_argument.tell(node_document(row))
    else:
        session_argument.show(node_lines(row, session_argument.room(), signs=signs()))
    return session_argument.damages(meant.node)


def _deed(meant: FoundNode) -> Span | None:
    """What bears that name; c7 is short for call-7."""
    did = activity_of(meant.node.entries)
    name = meant.rest
    return did.named(name) or did.named(f"call-{name[1:]}" if name[:1] == "c" else name)


def _nothing(meant: FoundNode) -> str:
    return (
        f"{meant.node.address} has no {meant.rest!r}: in it are leaf-N, call-N, step-N and "
        f"child-N (refold timeline {meant.node.address} lists them)"
    )
