"""The keyboard while the model works: keys are not echoed, and come one by one.

Ctrl+C stays a signal here. No other module changes the terminal's modes while
it works; at a prompt they are the prompt's own.
"""

import os
import termios
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

import anyio


def one_by_one(source: int) -> AbstractContextManager[None]:
    """Keys are neither echoed nor held until Enter. A pipe is left as it is."""
    return _without(source, termios.ECHO | termios.ICANON)


def unseen(source: int) -> AbstractContextManager[None]:
    """What is typed is not shown, where the source is a terminal."""
    return _without(source, termios.ECHO)


@contextmanager
def _without(source: int, modes: int) -> Generator[None]:
    try:
        before = termios.tcgetattr(source)
    except termios.error:
        yield
        return
    after = [*before]
    after[3] = before[3] & ~modes
    termios.tcsetattr(source, termios.TCSADRAIN, after)
    try:
        yield
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)


async def pressed(source: int) -> str:
    """What is typed next. "" if nothing will ever come any more."""
    await anyio.wait_readable(source)
    try:
        return os.read(source, 4096).decode(errors="ignore")
    except OSError:
        return ""


def forget(source: int) -> None:
    """Throw away what was typed before it could be meant for this question."""
    try:
        termios.tcflush(source, termios.TCIFLUSH)
    except termios.error:
        return
