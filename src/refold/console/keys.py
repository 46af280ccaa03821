"""Terminal modes of the keyboard: raw or by line, echo or not; and how to restore them.

While the model works, keys arrive one by one without echo, and Ctrl+C stays a signal. At a prompt
of the line editor prompt_toolkit sets the modes. In all other cases only this module changes them.
"""

import os
import select
import signal
import termios
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import anyio
from anyio.lowlevel import checkpoint_if_cancelled


def cbreak_mode(source: int) -> AbstractContextManager[None]:
    """Keys are neither echoed nor held until Enter. A pipe is left as it is."""
    # With IEXTEN, Ctrl+O would stop all output on a Mac and a BSD.
    held = termios.ECHO | termios.ICANON | termios.IEXTEN
    return _with(source, lambda modes: modes & ~held)


def no_echo(source: int) -> AbstractContextManager[None]:
    """What is typed is not shown, where the source is a terminal."""
    return _with(source, lambda modes: (modes & ~termios.ECHO) | termios.ICANON)


def canonical_mode(source: int) -> AbstractContextManager[None]:
    """Whole lines come, and are seen while they are typed."""
    return _with(source, lambda modes: modes | termios.ECHO | termios.ICANON)


def modes(source: int) -> list[Any]:
    """How the terminal is set, for `set_modes`; [] for what is no terminal."""
    try:
        return termios.tcgetattr(source)
    except termios.error:
        return []


def set_modes(source: int, wanted: list[Any]) -> None:
    if not wanted:
        return
    with suppress(termios.error):  # it is gone by now
        termios.tcsetattr(source, termios.TCSADRAIN, wanted)


def suspend(found: list[int] | None = None, group: int | None = None) -> None:
    """Stop as Ctrl+Z does, with the terminal set as it was `found`; return when we go on.

    `group` is who stops: 0 for all that the shell started with us, None for us alone.
    """
    now, hears = modes(0), signal.getsignal(signal.SIGTSTP)
    set_modes(0, found or [])
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid() if group is None else group, signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, hears)
    signal.siginterrupt(signal.SIGTSTP, False)
    set_modes(0, now)


@contextmanager
def _with(source: int, change: Callable[[int], int]) -> Generator[None]:
    if not (before := modes(source)):
        yield
        return
    after = [*before]
    # At Ctrl+C the system would drop what waits to be shown, and it does so after the signal:
    # also what we print in answer to it.
    after[3] = change(before[3]) | termios.NOFLSH
    set_modes(source, after)
    try:
        yield
    finally:
        set_modes(source, before)


async def wait_readable(source: int) -> None:
    """Wait for keys. If the wait is cancelled, they are left for the next reader."""
    await anyio.wait_readable(source)
    await checkpoint_if_cancelled()  # which keys that have come get ahead of


async def read_key(source: int) -> str:
    """What is typed next. "" if nothing will ever come any more."""
    await wait_readable(source)
    try:
        return os.read(source, 4096).decode(errors="ignore")
    except OSError:
        return ""


def unread_input(source: int) -> bytes:
    """Keys that came one by one and were not read.

    To be taken before whole lines are asked for: Linux would keep them back until the
    next Enter, even where one is among them.
    """
    if not (found := modes(source)) or found[3] & termios.ICANON:
        return b""
    with suppress(OSError):  # it is gone by now
        if select.select([source], [], [], 0)[0]:
            return os.read(source, 65_536)
    return b""


def discard_input(source: int) -> None:
    """Throw away what was typed and not read: it was not meant for what is asked next."""
    try:
        termios.tcflush(source, termios.TCIFLUSH)
    except termios.error:
        return
