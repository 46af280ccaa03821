"""`refold logs`: shows the newest lines of refold's log, and new lines as they are written.

The package `logs` writes the log and limits its size.
"""

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from refold.cli.output import wait_for_poll
from refold.config.paths import paths
from refold.headless.streams import print_error, write
from refold.logs.logbook import LOG_NAME, Entry, Tail, at_least, entries
from refold.values.log_level import LOG_LEVELS, Level
from refold.views.escape import escape_to_one_line, visible


def add_arguments(logs: ArgumentParser) -> None:
    add = logs.add_argument
    add("-f", "--follow", action="store_true", help="wait for new lines, until Ctrl+C")
    add("-n", "--number", type=_number, default=50, metavar="N",
        help="print the newest N lines (default: 50); 0: all")  # fmt: skip
    add(
        "--level",
        choices=LOG_LEVELS,
        default="debug",
        help="lowest level to print",
    )
    add("--path", action="store_true", help="print the path of the log")


def run(args: Namespace) -> int:
    """Print the newest lines of the log, and with --follow also new ones until Ctrl+C."""
    state = paths(os.environ).state
    if args.path:
        write(f"{escape_to_one_line(str(state / LOG_NAME))}\n")
        return 0
    level: Level = args.level
    tail = Tail(state) if args.follow else None
    lines = at_least(entries(state), level)
    newest = lines[-args.number :] if args.number else lines  # 0: all
    _show(newest)
    if tail is None:
        if not lines:
            print_error(f"there is nothing in {escape_to_one_line(str(state / LOG_NAME))}")
        return 0
    while True:
        _show(at_least(tail.news(), level))
        wait_for_poll()


def _show(records: "list[Entry]") -> None:
    if records:
        write("".join(f"{visible(entry.text)}\n" for entry in records))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ArgumentTypeError(f"{text!r} is not a number of lines: give 0 or more")
    return int(text)
