"""Sets the terminal's modes of input (single keys or whole lines, echo), and restores them.

While the model works, keys arrive one by one without echo, and Ctrl+C sends a signal. At a
prompt of the line editor, prompt_toolkit sets the modes. Otherwise only this module changes
them.
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
    """In the block, deliver each key at once, without echo. A pipe is not changed."""
    # With IEXTEN, Ctrl+O would stop all output on macOS and the BSDs.
    flags = termios.ECHO | termios.ICANON | termios.IEXTEN
    return _change_modes(source, lambda modes: modes & ~flags)


def disable_echo(source: int) -> AbstractContextManager[None]:
    """In the block, deliver whole lines, without echo. A pipe is not changed."""
    return _change_modes(source, lambda modes: (modes & ~termios.ECHO) | termios.ICANON)


def canonical_mode(source: int) -> AbstractContextManager[None]:
    """In the block, deliver whole lines, with echo. A pipe is not changed."""
    return _change_modes(source, lambda modes: modes | termios.ECHO | termios.ICANON)


def terminal_modes(source: int) -> list[Any]:
    """Return the terminal's modes, for `set_modes`; [] if it is not a terminal."""
    try:
        return termios.tcgetattr(source)
    except termios.error:
        return []


def set_modes(source: int, modes: list[Any]) -> None:
    """Set the modes that `terminal_modes` returned. [] means no terminal: change nothing."""
    if not modes:
        return
    with suppress(termios.error):  # the terminal was closed
        termios.tcsetattr(source, termios.TCSADRAIN, modes)


def suspend(modes: list[int] | None = None, group: int | None = None) -> None:
    """Suspend this process as Ctrl+Z does. Return when it continues.

    `modes` are the terminal modes while it is suspended. With `group` 0, all processes of the
    shell's job are suspended; with None, only this one.
    """
    current_modes = terminal_modes(0)
    handler = signal.getsignal(signal.SIGTSTP)
    set_modes(0, modes or [])
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    target = os.getpid() if group is None else group
    os.kill(target, signal.SIGTSTP)  # returns when the process continues
    signal.signal(signal.SIGTSTP, handler)
    # `signal.signal` has set it to True: system calls would be interrupted.
    signal.siginterrupt(signal.SIGTSTP, False)
    set_modes(0, current_modes)


@contextmanager
def _change_modes(source: int, change: Callable[[int], int]) -> Generator[None]:
    """In the block, apply `change` to the local mode flags of the terminal. Ignore a pipe."""
    old_modes = terminal_modes(source)
    if not old_modes:
        yield
        return
    input_flags, output_flags, control_flags, local_flags, *rest = old_modes
    # At Ctrl+C the system would discard pending output. It does so after the signal, so
    # output in response to Ctrl+C would be lost, too.
    local_flags = change(local_flags) | termios.NOFLSH
    set_modes(source, [input_flags, output_flags, control_flags, local_flags, *rest])
    try:
        yield
    finally:
        set_modes(source, old_modes)


async def wait_readable(source: int) -> None:
    """Wait until input can be read, but do not read it."""
    await anyio.wait_readable(source)
    # without this check, waiting keys would take precedence over a cancellation
    await checkpoint_if_cancelled()


async def read_key(source: int) -> str:
    """Wait for input, and return what was typed; "" at the end of input."""
    await wait_readable(source)
    try:
        return os.read(source, 4096).decode(errors="ignore")
    except OSError:
        return ""


def unread_input(source: int) -> bytes:
    """Read and return the unread single keys; b"" if the terminal delivers whole lines.

    Call this function before a change to whole lines, because Linux would then hold these
    keys back until the next Enter. Call it also after a change to single keys, to get what
    was typed before.
    """
    modes = terminal_modes(source)
    if not modes:
        return b""
    _, _, _, local_flags, *_ = modes
    if local_flags & termios.ICANON:
        return b""
    with suppress(OSError):  # the terminal was closed
        if is_readable(source):
            return os.read(source, 65_536)
    return b""


def is_readable(source: int) -> bool:
    """Return whether input can be read now: a key, or in line mode a whole line."""
    readable, _, _ = select.select([source], [], [], 0)
    return bool(readable)


def discard_input(source: int) -> None:
    """Discard unread keys, so that they do not answer the next question."""
    try:
        termios.tcflush(source, termios.TCIFLUSH)
    except termios.error:
        return
