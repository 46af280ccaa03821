"""`refold trace [NODE]`: all that a session and those below it did, with times."""

import time
from argparse import ArgumentTypeError, Namespace

from refold.cli.reading import nodes
from refold.cli.subparsers import Subparsers
from refold.views.trace import slowest, trace, trace_document, trace_lines


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("trace", help="each call, with its time and its cost")
    nodes.add_node(parser)
    parser.add_argument("--slow", type=_count, metavar="N", help="only the slowest N")
    parser.add_argument("--json", action="store_true", help="as JSON, one a line")


def run(found: Namespace) -> int:
    node = nodes.only_node(nodes.read(nodes.place(found)))
    every = trace(node, time.time(), nodes.labels())
    shown = every if found.slow is None else slowest(every, found.slow)
    if found.json:
        for each in shown:
            nodes.tell(trace_document(each))
    elif shown:
        nodes.show(trace_lines(shown, nodes.room()))
    return nodes.damages(node)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)
