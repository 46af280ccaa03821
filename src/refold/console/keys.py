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
    """Deliver keys at once, without echo. A pipe is left as it is."""
    # With IEXTEN, Ctrl+O would stop all output on macOS and the BSDs.
    flags = termios.ECHO | termios.ICANON | termios.IEXTEN
    return _change_modes(source, lambda modes: modes & ~flags)


def disable_echo(source: int) -> AbstractContextManager[None]:
    """Turn the echo off, if the source is a terminal."""
    return _change_modes(source, lambda modes: (modes & ~termios.ECHO) | termios.ICANON)


def canonical_mode(source: int) -> AbstractContextManager[None]:
    """Deliver whole lines, with echo."""
    return _change_modes(source, lambda modes: modes | termios.ECHO | termios.ICANON)


def terminal_modes(source: int) -> list[Any]:
    """Return the terminal's modes, for `set_modes`; [] if it is not a terminal."""
    try:
        return termios.tcgetattr(source)
    except termios.error:
        return []


def set_modes(source: int, modes: list[Any]) -> None:
    if not modes:
        return
    with suppress(termios.error):  # the terminal is gone
        termios.tcsetattr(source, termios.TCSADRAIN, modes)


def suspend(modes: list[int] | None = None, group: int | None = None) -> None:
    """Stop the process as Ctrl+Z does, with these terminal modes; return when it continues.

    `group` 0 stops all processes that the shell started with us, None only this one.
    """
    current, handler = terminal_modes(0), signal.getsignal(signal.SIGTSTP)
    set_modes(0, modes or [])
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid() if group is None else group, signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)
    signal.siginterrupt(signal.SIGTSTP, False)
    set_modes(0, current)


@contextmanager
def _change_modes(source: int, change: Callable[[int], int]) -> Generator[None]:
    if not (before := terminal_modes(source)):
        yield
        return
    after = [*before]
    # At Ctrl+C the system would discard pending output, and it does so after the signal:
    # also what is printed in answer to it.
    after[3] = change(before[3]) | termios.NOFLSH
    set_modes(source, after)
    try:
        yield
    finally:
        set_modes(source, before)


async def wait_readable(source: int) -> None:
    """Wait for keys. If the wait is cancelled, they are left for the next reader."""
    await anyio.wait_readable(source)
    await checkpoint_if_cancelled()  # keys that are there already would win against it


async def read_key(source: int) -> str:
    """Return what is typed next, or "" at the end of input."""
    await wait_readable(source)
    try:
        return os.read(source, 4096).decode(errors="ignore")
    except OSError:
        return ""


def unread_input(source: int) -> bytes:
    """Return keys that arrived one by one and were not read.

    Call it before asking for whole lines: Linux would hold these keys back until the next
    Enter, even if one of them is Enter. After a change to single keys it returns what was
    typed before.
    """
    if not (settings := terminal_modes(source)) or settings[3] & termios.ICANON:
        return b""
    with suppress(OSError):  # the terminal is gone
        if is_readable(source):
            return os.read(source, 65_536)
    return b""


def is_readable(source: int) -> bool:
    """Whether a key, or in line mode a whole line, waits to be read."""
    return bool(select.select([source], [], [], 0)[0])


def discard_input(source: int) -> None:
    """Discard unread keys: they were not meant for the next question."""
    try:
        termios.tcflush(source, termios.TCIFLUSH)
    except termios.error:
        return
