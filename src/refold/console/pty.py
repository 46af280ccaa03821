"""Runs a command in a pseudo-terminal of its own and connects it to the user's terminal.

The command leads a session there, so it gets Ctrl+C and changes of the window size, and the modes
it sets do not affect the user's terminal.
"""

import os
import re
import signal
import sys
import termios
import tty
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from typing import Any, Protocol

import anyio
from msgspec import Struct

from refold import programs
from refold.errors import RefoldError
from refold.values.kept_output import Printed
from refold.views.strip_escapes import render_lines

_READ_BYTES = 65_536  # bytes read at once
_KEPT_BYTES = 256 * 1024  # bytes of output that are kept
_TAIL_BYTES = 4_096  # of output that show where the cursor is
_SCREEN_LEFT = re.compile("\x1b\\[\\?(?:47|1047|1049)l")
_MODES_SECONDS = 0.1  # between two looks at the modes of the command's terminal
_DRAIN_SECONDS = 0.2  # seconds for the rest of the output after the command has ended
# Takes the terminal, and becomes the command: no Python code runs in a fork of this process.
# Signals that Python ignores are reset, or `yes | head` would report an error.
_EXEC_PROGRAM = (
    "import fcntl,os,signal,sys,termios;fcntl.ioctl(0,termios.TIOCSCTTY,0);"
    "[signal.signal(n,signal.SIG_DFL)for n in(signal.SIGPIPE,signal.SIGXFSZ)];"
    "os.execvp(sys.argv[1],sys.argv[1:])"
)
_MODES_PATTERN = re.compile(rb"\x1b\[\?([0-9;]{1,64})([hl])")
_INITIAL_MODES = frozenset({b"7", b"12", b"25"})  # wrapping, blinking, the cursor
_SCREEN_MODES = frozenset({b"47", b"1047", b"1049"})
_MAX_SEQUENCE_BYTES = 80  # of a sequence that arrives in two pieces
# Sequences that set other modes, and those that reset them.
_RESETS = (
    (re.compile(rb"\x1b\[[0-9;:]*m"), b"\x1b[0m"),
    (re.compile(rb"\x1b="), b"\x1b>"),
    (re.compile(rb"\x1b[()][^B]"), b"\x1b(B\x1b)B"),
    (re.compile(rb"\x0e"), b"\x0f"),
    (re.compile(rb"\x1b\[[0-9;]*r"), b"\x1b7\x1b[r\x1b8"),  # it moves the cursor home
    (re.compile(rb"\x1b\[>[0-9;]*u"), b"\x1b[<u"),
    (re.compile(rb"\x1b\[>4;[12]m"), b"\x1b[>4m"),
)


class CommandDone(Struct, frozen=True):
    code: int
    printed: Printed
    full_screen: bool


class CommandDisplay(Protocol):
    """Shows the output of a command that does not have the user's terminal."""

    def note_start(self, running: "PtyCommand") -> None: ...

    def columns(self) -> int: ...

    def show(self, piece: bytes) -> None: ...

    def lend_terminal(self) -> AbstractAsyncContextManager[object]:
        """Leave the user's terminal to the command until the block ends."""
        ...


async def run_in_pty(
    command: Sequence[str],
    directory: str,
    environ: Mapping[str, str],
    display: CommandDisplay | None = None,
) -> CommandDone:
    """Run the command until it ends. Raises `RefoldError` if it cannot be started.

    With `display`, it gets the user's terminal only if it switches to the alternate screen,
    reads keys or hides what is typed, or after `PtyCommand.attach` is called.
    """
    master_fd, terminal_fd = os.openpty()
    try:
        _copy_settings(terminal_fd, display)
        os.set_blocking(master_fd, False)
        try:
            process = await start_in_terminal(command, directory, environ, terminal_fd)
        except (OSError, ValueError) as error:
            raise RefoldError(f"{command[0]} could not be started: {error}") from error
        finally:
            os.close(terminal_fd)
        running, code = PtyCommand(master_fd, display), 0

        async def wait() -> None:
            nonlocal code
            code = await process.wait()
            with anyio.move_on_after(_DRAIN_SECONDS):
                await running.output_closed.wait()
            running.note_end()

        async with process, anyio.create_task_group() as group:
            group.start_soon(running.copy_output)
            group.start_soon(running.follow_size)
            group.start_soon(wait)
            group.start_soon(running.watch_modes)
            await running.wait_until_attached()
            if running.needs_terminal:
                async with nullcontext() if display is None else display.lend_terminal():
                    await _connect_to_terminal(running)
            group.cancel_scope.cancel()
        return CommandDone(code, running.printed, running.modes.full_screen)
    finally:
        os.close(master_fd)


async def _connect_to_terminal(running: "PtyCommand") -> None:
    """Connect the command and the user's terminal until the command has ended."""
    with _raw_mode():
        running.take_terminal()
        async with anyio.create_task_group() as group:
            group.start_soon(running.copy_input)
            await running.ended.wait()
            group.cancel_scope.cancel()
        _write(1, running.modes.restore_sequences())
        if _is_within_line(running):
            _write(1, b"\r\n")


class PtyCommand:
    """A running command in its pseudo-terminal, shown by a display or connected to the
    user's terminal.
    """

    def __init__(self, master_fd: int, display: CommandDisplay | None) -> None:
        self._master_fd, self._display = master_fd, display
        self.printed, self.modes = Printed(_KEPT_BYTES), TerminalModes()
        self.output_closed, self.ended = anyio.Event(), anyio.Event()
        self._attached = anyio.Event()
        if display is None:
            self._attached.set()
        else:
            display.note_start(self)

    @property
    def needs_terminal(self) -> bool:
        return self._attached.is_set() and not self.ended.is_set()

    async def wait_until_attached(self) -> None:
        """Wait until the command needs the user's terminal, or has ended."""
        await self._attached.wait()

    def attach(self) -> None:
        """Connect the command to the user's terminal."""
        self._attached.set()

    def interrupt(self) -> None:
        """Send what Ctrl+C sends."""
        with suppress(OSError):
            os.write(self._master_fd, b"\x03")

    def note_end(self) -> None:
        self.ended.set()
        self._attached.set()

    def take_terminal(self) -> None:
        """Write to the user's terminal, first what the display showed."""
        if self._display is not None:
            self._display = None
            self._copy_size()
            _write(1, self.printed.start + self.printed.end)

    async def copy_output(self) -> None:
        while True:
            await anyio.wait_readable(self._master_fd)
            try:
                piece = os.read(self._master_fd, _READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:  # the other end is closed
                piece = b""
            if not piece:
                self.output_closed.set()
                return
            self.printed.add(piece)
            self.modes.add(piece)
            if self._display is None:
                _write(1, piece)
            elif self.modes.full_screen:
                self._attached.set()
            else:
                self._display.show(piece)

    async def copy_input(self) -> None:
        while True:
            await anyio.wait_readable(0)
            try:
                keys = os.read(0, _READ_BYTES)
            except OSError:
                keys = b""
            if not keys:  # the terminal is gone; a signal reports that, too
                return
            while keys:
                await anyio.wait_writable(self._master_fd)
                with suppress(BlockingIOError):
                    keys = keys[os.write(self._master_fd, keys) :]

    async def watch_modes(self) -> None:
        """Attach a command that reads keys. It polls, because changes of modes are not announced."""
        while self._display is not None and not _reads_keys(self._master_fd):  # noqa: ASYNC110
            await anyio.sleep(_MODES_SECONDS)
        self._attached.set()

    async def follow_size(self) -> None:
        with anyio.open_signal_receiver(signal.SIGWINCH) as signals:
            async for _ in signals:
                self._copy_size()

    def _copy_size(self) -> None:
        with suppress(OSError, termios.error):
            termios.tcsetwinsize(self._master_fd, _command_size(self._display))


def _is_within_line(running: PtyCommand) -> bool:
    """Return True if the cursor is within a line, after any alternate screen is left."""
    output = running.printed.start + running.printed.end
    tail = output[-_TAIL_BYTES:].decode(errors="replace")
    *screens, behind = _SCREEN_LEFT.split(tail)
    if running.modes.full_screen and not screens:
        return False
    return render_lines(behind).rpartition("\n")[2].strip() != ""


async def start_in_terminal(
    command: Sequence[str], directory: str, environ: Mapping[str, str], terminal_fd: int
) -> anyio.abc.Process:
    """Start a command that leads a session in the terminal `terminal_fd`. Raises `OSError`."""
    return await programs.open_process(
        (sys.executable, "-I", "-S", "-c", _EXEC_PROGRAM, *command),
        cwd=directory, env=environ, stdin=terminal_fd, stdout=terminal_fd, stderr=terminal_fd,
        start_new_session=True,
    )  # fmt: skip


def _command_size(display: CommandDisplay | None) -> tuple[int, int]:
    """Return the rows and columns for the command."""
    rows, columns = termios.tcgetwinsize(0)
    return rows, columns if display is None else display.columns()


def _reads_keys(master_fd: int) -> bool:
    """Return True if the command reads single keys, or hides what is typed."""
    try:
        local = termios.tcgetattr(master_fd)[3]
    except termios.error:
        return False
    return not (local & termios.ICANON and local & termios.ECHO)


def _copy_settings(terminal_fd: int, display: CommandDisplay | None) -> None:
    """Copy the size and modes of the person's terminal, for whole lines with echo."""
    with suppress(termios.error):
        termios.tcsetwinsize(terminal_fd, _command_size(display))
        modes = termios.tcgetattr(0)
        modes[0] |= termios.ICRNL
        modes[1] |= termios.OPOST | termios.ONLCR
        modes[3] |= termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN
        termios.tcsetattr(terminal_fd, termios.TCSANOW, modes)


@contextmanager
def _raw_mode() -> Generator[None]:
    """Pass every key on unchanged: the command's own terminal interprets it."""
    before: list[Any] = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def _write(target: int, data: bytes) -> None:
    with suppress(OSError):  # the terminal is gone; the command's own reports that
        while data:
            data = data[os.write(target, data) :]


# The terminal modes that a program has set, and the sequences that reset them. Pure. A
# program that is killed leaves its modes behind: a hidden cursor, mouse reports, line-drawing
# characters.
class TerminalModes:
    """Tracks the modes. `full_screen`: it used the alternate screen at some time."""

    def __init__(self) -> None:
        self.full_screen = False
        self._modes = dict[bytes, bool]()
        self._others = set[int]()
        self._before = b""

    def add(self, piece: bytes) -> None:
        text = self._before + piece
        self._before = text[-_MAX_SEQUENCE_BYTES:]
        for match in _MODES_PATTERN.finditer(text):
            for mode in match[1].split(b";"):
                enabled = self._modes[mode] = match[2] == b"h"
                self.full_screen = self.full_screen or (enabled and mode in _SCREEN_MODES)
        for number, (order, _) in enumerate(_RESETS):
            if number not in self._others and order.search(text):
                self._others.add(number)

    def restore_sequences(self) -> bytes:
        """Return the sequences that restore the terminal."""
        left = [
            b"\x1b[?" + mode + (b"h" if mode in _INITIAL_MODES else b"l")
            for mode, enabled in self._modes.items()
            if enabled != (mode in _INITIAL_MODES)
        ]
        others = [undone for n, (_, undone) in enumerate(_RESETS) if n in self._others]
        return b"".join((*others, *left))
