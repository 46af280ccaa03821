"""`refold timeline [NODE]`: every call of a session and its subagents, with times."""

import time
from argparse import ArgumentParser, Namespace

from refold.cli import session_argument
from refold.cli.parser import count
from refold.views.timeline import slowest, timeline, timeline_document, timeline_lines


def add_arguments(parser: ArgumentParser) -> None:
    session_argument.add_node(parser)
    parser.add_argument("--slow", type=count, metavar="N", help="only the N slowest calls")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


def run(found: Namespace) -> int:
    node = session_argument.only_node(session_argument.read(session_argument.place(found)))
    every = timeline(node, time.time(), session_argument.labels())
    shown = every if found.slow is None else slowest(every, found.slow)
    if found.json:
        for each in shown:
            session_argument.tell(timeline_document(each))
    elif shown:
        session_argument.show(timeline_lines(shown, session_argument.room()))
    return session_argument.damages(node)
