"""`refold show|step|tree|timeline|cost|context`: prints reports on one session.

The commands only read journals, so they also work while the session runs.
`cli.session_argument` finds the session, and `refold.views` renders the report.
"""

import os
import time
from argparse import ArgumentParser, Namespace

from msgspec.structs import replace

from refold.app.session_index import session_index
from refold.cli import session_argument
from refold.cli.output import has_unicode
from refold.cli.parser import count
from refold.cli.session_argument import FoundNode
from refold.cli.subcommands import SubcommandEntry
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import current_directory, paths
from refold.errors import BadInput
from refold.headless.streams import print_document, print_error, write
from refold.journal.state.session_tree import Node
from refold.views.activity import ModelStep, SideCall, Span, ToolStep, activity_of
from refold.views.context import context_document, context_lines, context_usage
from refold.views.cost import spending_document, spending_lines, tree_spending
from refold.views.model_step import step_detail, step_document, step_lines
from refold.views.node_detail import (
    call_detail,
    call_document,
    call_lines,
    leaf_detail,
    leaf_detail_document,
    leaf_lines,
    node_document,
    node_lines,
)
from refold.views.session_tree import agent_of, tree_document, tree_lines, tree_row
from refold.views.styled import plain_text
from refold.views.timeline import slowest, timeline, timeline_lines


def _show_arguments(parser: ArgumentParser) -> None:
    session_argument.add_node_argument(parser)
    _add_json(parser)


def _show(args: Namespace) -> int:
    """Print a session, a subagent, a leaf, a step or a call in full. Return the exit code."""
    found = session_argument.find_node(session_argument.node_path(args))
    if not found.rest:
        row = tree_row(found.node, time.time(), session_argument.call_labeler())
        if args.json:
            print_document(node_document(row))
        else:
            session_argument.print_lines(
                node_lines(row, session_argument.terminal_width(), symbols=has_unicode())
            )
        return session_argument.report_damage(found.node)
    match _find_span(found):
        case ToolStep() as done:
            call = call_detail(found.node, done, session_argument.blob_reader(found.node))
            if args.json:
                print_document(call_document(call))
            else:
                session_argument.print_lines(call_lines(call))
        case SideCall() as side:
            leaf = leaf_detail(found.node, side, session_argument.blob_reader(found.node))
            if args.json:
                print_document(leaf_detail_document(leaf))
            else:
                session_argument.print_lines(leaf_lines(leaf))
        case ModelStep(number):
            _show_step(found.node, number, as_json=args.json)
        case _:
            address = found.node.address
            raise BadInput(
                f"{address} has no {found.rest!r}: give leaf-N, call-N, step-N or "
                f"child-N (refold timeline {address} lists them)"
            )
    return session_argument.report_damage(found.node)


def _find_span(found: FoundNode) -> Span | None:
    """Return the step, call or leaf that `found.rest` names, or None.

    `c7` is short for `call-7`.
    """
    activity = activity_of(found.node.entries)
    name = found.rest
    full_name = f"call-{name[1:]}" if name[:1] == "c" else name
    return activity.find_span(name) or activity.find_span(full_name)


def _step_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "number", type=int, metavar="N", help="number of the step, from 1; -1: the last"
    )
    session_argument.add_node_argument(parser)
    _add_json(parser)


def _step(args: Namespace) -> int:
    node = _node(args)
    _show_step(node, args.number, as_json=args.json)
    return session_argument.report_damage(node)


def _show_step(node: Node, number: int, *, as_json: bool) -> None:
    shown = step_detail(node, number, session_argument.blob_reader(node))
    if as_json:
        print_document(step_document(shown))
        return
    lines = step_lines(
        shown, session_argument.terminal_width(), session_argument.call_labeler()
    )
    session_argument.print_lines(lines)


def _tree_arguments(parser: ArgumentParser) -> None:
    session_argument.add_node_argument(parser)
    parser.add_argument("--leaves", action="store_true", help="list every leaf call, too")
    _add_json(parser)


def _tree(args: Namespace) -> int:
    node = _node(args)
    root = tree_row(node, time.time(), session_argument.call_labeler())
    if args.json:
        document = tree_document(root, every_leaf=args.leaves)
        print_document(replace(document, type="tree"))
    else:
        width = session_argument.terminal_width()
        lines = tree_lines(root, width, every_leaf=args.leaves, symbols=has_unicode())
        session_argument.print_lines(lines)
    return session_argument.report_damage(node)


def _timeline_arguments(parser: ArgumentParser) -> None:
    session_argument.add_node_argument(parser)
    parser.add_argument("--slow", type=count, metavar="N", help="only the N slowest calls")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


def _timeline(args: Namespace) -> int:
    """Print all calls of a session, or the slowest. Return 1 if it is damaged, otherwise 0."""
    node = _node(args)
    calls = timeline(node, time.time(), session_argument.call_labeler())
    shown = calls if args.slow is None else slowest(calls, args.slow)
    if args.json:
        for item in shown:
            print_document(item)
    elif shown:
        session_argument.print_lines(
            timeline_lines(shown, session_argument.terminal_width())
        )
    return session_argument.report_damage(node)


def _cost_arguments(parser: ArgumentParser) -> None:
    session_argument.add_node_argument(parser)
    parser.add_argument(
        "--turns", action="store_true", help="list the cost of each turn, too"
    )
    _add_json(parser)


def _cost(args: Namespace) -> int:
    node = _node(args)
    spent = tree_spending(node, agent_of)
    if args.json:
        print_document(spending_document(spent, turns=args.turns, session_id=node.session))
    else:
        width = session_argument.terminal_width()
        session_argument.print_lines(spending_lines(spent, width=width, turns=args.turns))
    return session_argument.report_damage(node)


def _context_arguments(parser: ArgumentParser) -> None:
    session_argument.add_session_argument(parser)
    _add_json(parser)


def _context(args: Namespace) -> int:
    places = paths(os.environ)
    index = session_index(places)
    session = session_argument.find_session_id(index, args.id)
    settings = load_folder_settings(current_directory(), places, os.environ, {}).settings
    view, damage = session_argument.load_view(index, session)
    usage = context_usage(view, settings.context.default_window_tokens)
    if args.json:
        print_document({"session_id": session, **context_document(usage)})
    else:
        write(plain_text(context_lines(usage, symbols=has_unicode())) + "\n")
    if damage:
        print_error(damage)
    return 1 if damage else 0


def _add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _node(args: Namespace) -> Node:
    return session_argument.only_node(
        session_argument.find_node(session_argument.node_path(args))
    )


SHOW = SubcommandEntry(_show_arguments, _show)
STEP = SubcommandEntry(_step_arguments, _step)
TREE = SubcommandEntry(_tree_arguments, _tree)
TIMELINE = SubcommandEntry(_timeline_arguments, _timeline)
COST = SubcommandEntry(_cost_arguments, _cost)
CONTEXT = SubcommandEntry(_context_arguments, _context)
