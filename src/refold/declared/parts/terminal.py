"""Prints the text of a generated program, and shows what it is doing.

`show_state` is the display mode `plain`, `show_state_in_one_line` the display mode
`status`.
"""

import curses
import re
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager


def say(text: str) -> None:
    """Print text for the user."""
    # Text of a model or a file must not be able to control the terminal.
    print(re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", text), flush=True)


@contextmanager
def show_state(state: str) -> Generator[None, None, None]:
    """Print the state on its own line, which works in every terminal, pipe and log."""
    say(f"[{state} ...]")
    yield


@contextmanager
def show_state_in_one_line(state: str) -> Generator[None, None, None]:
    """Show the state and its seconds during the block, in a line that then disappears."""
    line_start, erase_line = terminal_codes()
    if not erase_line:
        say(f"[{state} ...]")
        yield
        return
    over, began = threading.Event(), time.monotonic()

    def show_seconds() -> None:
        while True:
            seconds = int(time.monotonic() - began)
            print(f"{line_start}{erase_line}[{state} {seconds} s]", end="", flush=True)
            if over.wait(1):
                return

    counter = threading.Thread(target=show_seconds)
    counter.start()
    try:
        yield
    finally:
        over.set()
        counter.join()
        print(f"{line_start}{erase_line}", end="", flush=True)


def terminal_codes() -> tuple[str, str]:
    """Return the codes that move to the line's start and erase it, or two times ""."""
    # From terminfo: fixed escape sequences do not work in every terminal.
    if not sys.stdout.isatty():
        return "", ""
    try:
        curses.setupterm()
    except curses.error:
        return "", ""
    codes = [curses.tigetstr(name) or b"" for name in ("cr", "el")]
    return codes[0].decode(), codes[1].decode()
