"""Measures what it costs to show a session: to fold its blocks, and to print an answer.

The fold of the blocks is compared with the fold of the view, which the engine needs anyway. To
print an answer in pieces is compared with writing the pieces. The answer is printed to a terminal
with colours and a status line, and to a plain one. The output is checked: no line of the answer
occurs twice in it.

Usage: python -m bench.screens [-n 5] [--blocks 10000] [--letters 23000] [--pieces 5000]
"""

import argparse
import io
import re
import time
from collections.abc import Sequence

from bench import table
from bench.journal import entries
from bench.wires import time_in_turn
from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.journal.events.kinds import (
    Delivered,
    Entry,
    Frame,
    ModelAnswered,
    ModelAsked,
    Said,
    SessionStarted,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.fold import fold
from refold.terminal.screen.transcript import TranscriptPrinter
from refold.values.live import TextCame
from refold.values.messages import Message, Text
from refold.views.screen.screen import screen_of

OPENING = (
    SessionStarted("/"),
    Said("Tell me."),
    TurnStarted(2),
    Delivered((2,)),
    ModelAsked(),
)
ORDER = re.compile("\x1b\\[[0-9;]*[A-Za-z]|\r")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=5, help="runs of each (5)")
    parser.add_argument("--blocks", type=int, default=10_000, help="to fold (10000)")
    parser.add_argument("--letters", type=int, default=23_000, help="of an answer (23000)")
    parser.add_argument("--pieces", type=int, default=5_000, help="it comes in (5000)")
    chosen = parser.parse_args()
    report(chosen.n, chosen.blocks, chosen.letters, chosen.pieces)


def report(times: int, blocks: int, letters: int, pieces: int) -> None:
    report_folding(times, blocks)
    report_printing(times, letters, pieces)


def report_folding(times: int, blocks: int) -> None:
    many = list(entries(blocks * 3))
    while len(screen_of(many).done) < blocks:
        many = list(entries(len(many) * 2))
    count = len(screen_of(many).done)
    bare, ours = time_in_turn(
        [lambda: _ignore(fold(many)), lambda: _ignore(screen_of(many))], times
    )
    table.show(
        f"CPU to fold {len(many)} events, {count} blocks, best of {times}",
        ["took", "an event", "to the view"],
        [
            _row("view", bare, len(many), bare),
            _row("view and screen", ours, len(many), bare),
        ],
    )


def report_printing(times: int, letters: int, pieces: int) -> None:
    text = answer(letters)
    came = split_evenly(text, pieces)
    plain, full = TerminalCapabilities(), TerminalCapabilities(color=True, moves=True)
    for look in (plain, full):
        check_not_repeated(render_transcript(came, text, look, ticks=False), text)
    bare, to_plain, to_full = time_in_turn(
        [
            lambda: write_plain(came),
            lambda: _ignore(render_transcript(came, text, plain)),
            lambda: _ignore(render_transcript(came, text, full)),
        ],
        times,
    )
    table.show(
        f"CPU to print {len(text)} letters in {len(came)} pieces, best of {times}",
        ["took", "a piece", "to writing"],
        [
            _row("written", bare, len(came), bare),
            _row("plain", to_plain, len(came), bare),
            _row("colours, status", to_full, len(came), bare),
        ],
    )


def answer(letters: int) -> str:
    """Return headings, paragraphs, lists and code, in which each line has a number."""
    rows, size, n = list[str](), 0, 0
    while size < letters:
        n += 1
        row = (
            f"## Part {n}\n", f"Line {n} says **something** of `value_{n}`, and goes on for a while.\n",
            f"- item {n} of a list\n", f"```python\nvalue_{n} = {n}\n```\n", f"And {n} ends it.\n",
        )[n % 5]  # fmt: skip
        rows.append(row + "\n")
        size += len(rows[-1])
    return "".join(rows)[:letters]


def split_evenly(text: str, pieces: int) -> list[str]:
    size = len(text) / pieces
    return [text[round(n * size) : round((n + 1) * size)] for n in range(pieces)]


def render_transcript(
    received: Sequence[str], text: str, look: TerminalCapabilities, *, ticks: bool = True
) -> str:
    out = io.StringIO()
    paper = Printer(out, look)
    showing = TranscriptPrinter(paper, time.monotonic)
    result = (
        *OPENING,
        ModelAnswered(Message("assistant", (Text(text),))),
        TurnEnded("answered"),
    )
    for seq, event in enumerate(result, start=1):
        if isinstance(event, ModelAnswered):
            for n, piece in enumerate(received, start=1):
                showing.show(Frame(seq - 1, n, TextCame(piece)))
                # A clock redraws the status about as often while pieces arrive fast.
                if ticks and look.moves and not n % 100:
                    paper.show_status(showing.status())
        showing.show(Frame(seq, 0, Entry(seq, event)))
    return out.getvalue()


def check_not_repeated(out: str, text: str) -> None:
    rows = [row.strip() for row in ORDER.sub("", out).splitlines()]
    for n in range(1, text.count("\n")):
        matching_rows = [
            row for row in rows if re.search(rf"\b(Part|Line|item|And) {n}\b", row)
        ]
        if len(matching_rows) > 1:
            raise RuntimeError(f"printed more than once: {matching_rows}")


def write_plain(received: Sequence[str]) -> None:
    out = io.StringIO()
    for piece in received:
        out.write(piece)


def _row(name: str, seconds: float, count: int, measure: float) -> tuple[str, ...]:
    return (
        name,
        table.ms(seconds),
        f"{seconds / count * 1e6:.2f} µs",
        table.times(seconds, measure),
    )


def _ignore(value: object) -> None:
    """Do nothing with the value: only the call that returned it is measured."""


if __name__ == "__main__":
    main()
