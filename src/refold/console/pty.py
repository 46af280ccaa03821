"""Runs a command in a pseudo-terminal that is connected to the user's terminal.

The command is the session leader of the pseudo-terminal, so it gets Ctrl+C and changes of the
window size. Terminal modes that the command sets do not affect the user's terminal.
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

_READ_BYTES = 65_536  # read at the same time
_KEPT_BYTES = 256 * 1024  # of output that are stored
_TAIL_BYTES = 4_096  # of output that show where the cursor is
# the sequence that leaves the alternate screen
_SCREEN_LEFT = re.compile("\x1b\\[\\?(?:47|1047|1049)l")
_MODES_SECONDS = 0.1  # between two checks of the modes of the command's terminal
_DRAIN_SECONDS = 0.2  # for the rest of the output after the command has exited
# This program takes the terminal and executes the command, so that no Python code runs in a
# fork of this process. Signals that Python ignores are reset, or `yes | head` would report an
# error.
_EXEC_PROGRAM = (
    "import fcntl,os,signal,sys,termios;fcntl.ioctl(0,termios.TIOCSCTTY,0);"
    "[signal.signal(n,signal.SIG_DFL)for n in(signal.SIGPIPE,signal.SIGXFSZ)];"
    "os.execvp(sys.argv[1],sys.argv[1:])"
)
# a sequence that turns modes on (h) or off (l)
_MODES_PATTERN = re.compile(rb"\x1b\[\?([0-9;]{1,64})([hl])")
_INITIAL_MODES = frozenset({b"7", b"12", b"25"})  # wrapping, blinking, the cursor
_SCREEN_MODES = frozenset({b"47", b"1047", b"1049"})
_MAX_SEQUENCE_BYTES = 80  # the length of a sequence that arrives in two pieces
# Sequences that set other modes, and those that reset them.
_RESETS = (
    (re.compile(rb"\x1b\[[0-9;:]*m"), b"\x1b[0m"),
    (re.compile(rb"\x1b="), b"\x1b>"),
    (re.compile(rb"\x1b[()][^B]"), b"\x1b(B\x1b)B"),
    (re.compile(rb"\x0e"), b"\x0f"),
    # this reset moves the cursor, so its position is saved
    (re.compile(rb"\x1b\[[0-9;]*r"), b"\x1b7\x1b[r\x1b8"),
    (re.compile(rb"\x1b\[>[0-9;]*u"), b"\x1b[<u"),
    (re.compile(rb"\x1b\[>4;[12]m"), b"\x1b[>4m"),
)


class CommandDone(Struct, frozen=True):
    code: int
    printed: Printed
    full_screen: bool


class CommandDisplay(Protocol):
    """Shows the output of a command while it is not connected to the user's terminal."""

    def note_start(self, running: "PtyCommand") -> None:
        """Remember the command, which is starting now."""
        ...

    def columns(self) -> int:
        """Return the width for the output, in cells."""
        ...

    def show(self, piece: bytes) -> None:
        """Show the next piece of the output."""
        ...

    def lend_terminal(self) -> AbstractAsyncContextManager[object]:
        """In the block, let the command use the user's terminal."""
        ...


async def run_in_pty(
    command: Sequence[str],
    directory: str,
    environ: Mapping[str, str],
    display: CommandDisplay | None = None,
) -> CommandDone:
    """Run the command until it exits. Raises `RefoldError` if it cannot be started.

    With `display`, the display shows the output. The command is then connected to the user's
    terminal only if it uses the alternate screen, reads single keys or turns the echo off, or
    if `PtyCommand.attach` is called.
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
        running = PtyCommand(master_fd, display)
        code = 0

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
                terminal = nullcontext() if display is None else display.lend_terminal()
                async with terminal:
                    await _connect_to_terminal(running)
            group.cancel_scope.cancel()
        return CommandDone(code, running.printed, running.modes.full_screen)
    finally:
        os.close(master_fd)


async def _connect_to_terminal(running: "PtyCommand") -> None:
    """Pass input and output between the command and the user's terminal until it exits."""
    with _raw_mode():
        running.take_terminal()
        async with anyio.create_task_group() as group:
            group.start_soon(running.copy_input)
            await running.ended.wait()
            group.cancel_scope.cancel()
        # The command may have left modes changed, and the cursor within a line.
        _write(1, running.modes.restore_sequences())
        if _is_within_line(running):
            _write(1, b"\r\n")


class PtyCommand:
    """A running command in its pseudo-terminal.

    Either a display shows the output, or the command is connected to the user's terminal.
    """

    def __init__(self, master_fd: int, display: CommandDisplay | None) -> None:
        self._master_fd, self._display = master_fd, display
        self.printed, self.modes = Printed(_KEPT_BYTES), TerminalModes()
        self.output_closed, self.ended = anyio.Event(), anyio.Event()
        self._attached = anyio.Event()
        if display is None:  # it is connected to the user's terminal from the start
            self._attached.set()
        else:
            display.note_start(self)

    @property
    def needs_terminal(self) -> bool:
        return self._attached.is_set() and not self.ended.is_set()

    async def wait_until_attached(self) -> None:
        """Wait until the command must be connected to the user's terminal, or has exited."""
        await self._attached.wait()

    def attach(self) -> None:
        """Cause the command to be connected to the user's terminal."""
        self._attached.set()

    def interrupt(self) -> None:
        """Send the key Ctrl+C to the command."""
        with suppress(OSError):
            os.write(self._master_fd, b"\x03")

    def note_end(self) -> None:
        self.ended.set()
        self._attached.set()

    def take_terminal(self) -> None:
        """Write the output to the user's terminal from now on, and the earlier output first."""
        if self._display is not None:
            self._display = None
            self._copy_size()
            _write(1, self.printed.start + self.printed.end)

    async def copy_output(self) -> None:
        """Copy the output to the display or to the user's terminal, until the output ends."""
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
        """Pass the user's keys to the command, until the terminal is closed."""
        while True:
            await anyio.wait_readable(0)
            try:
                keys = os.read(0, _READ_BYTES)
            except OSError:
                keys = b""
            if not keys:  # the terminal was closed, which a signal reports, too
                return
            while keys:
                await anyio.wait_writable(self._master_fd)
                with suppress(BlockingIOError):
                    keys = keys[os.write(self._master_fd, keys) :]

    async def watch_modes(self) -> None:
        """Attach the command when it reads keys. This polls, because no event reports modes."""
        while self._display is not None and not _reads_keys(self._master_fd):  # noqa: ASYNC110
            await anyio.sleep(_MODES_SECONDS)
        self._attached.set()

    async def follow_size(self) -> None:
        """Give the command's terminal the size of the user's terminal whenever that changes."""
        with anyio.open_signal_receiver(signal.SIGWINCH) as signals:
            async for _ in signals:
                self._copy_size()

    def _copy_size(self) -> None:
        with suppress(OSError, termios.error):
            termios.tcsetwinsize(self._master_fd, _command_size(self._display))


def _is_within_line(running: PtyCommand) -> bool:
    """Return whether the command's output ends within a line.

    Output on the alternate screen does not count.
    """
    output = running.printed.start + running.printed.end
    tail = output[-_TAIL_BYTES:].decode(errors="replace")
    *alternate_screens, last_output = _SCREEN_LEFT.split(tail)
    if running.modes.full_screen and not alternate_screens:
        return False  # the alternate screen was left before `tail`, or is still shown
    _, _, last_line = render_lines(last_output).rpartition("\n")
    return last_line.strip() != ""


async def start_in_terminal(
    command: Sequence[str], directory: str, environ: Mapping[str, str], terminal_fd: int
) -> anyio.abc.Process:
    """Start a command as the session leader of the terminal `terminal_fd`.

    Raises `OSError` if it cannot be started.
    """
    return await programs.open_process(
        (sys.executable, "-I", "-S", "-c", _EXEC_PROGRAM, *command),
        cwd=directory, env=environ, stdin=terminal_fd, stdout=terminal_fd, stderr=terminal_fd,
        start_new_session=True,
    )  # fmt: skip


def _command_size(display: CommandDisplay | None) -> tuple[int, int]:
    """Return the number of rows and columns of the command's terminal."""
    rows, columns = termios.tcgetwinsize(0)
    return rows, columns if display is None else display.columns()


def _reads_keys(master_fd: int) -> bool:
    """Return whether the command reads single keys, or has turned the echo off."""
    try:
        _, _, _, local_flags, *_ = termios.tcgetattr(master_fd)
    except termios.error:
        return False
    return not (local_flags & termios.ICANON and local_flags & termios.ECHO)


def _copy_settings(terminal_fd: int, display: CommandDisplay | None) -> None:
    """Set the size and the modes of the command's terminal `terminal_fd`.

    The modes are copied from the user's terminal, but whole lines and echo are turned on.
    """
    with suppress(termios.error):
        termios.tcsetwinsize(terminal_fd, _command_size(display))
        input_flags, output_flags, control_flags, local_flags, *rest = termios.tcgetattr(0)
        input_flags |= termios.ICRNL
        output_flags |= termios.OPOST | termios.ONLCR
        local_flags |= termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN
        modes = [input_flags, output_flags, control_flags, local_flags, *rest]
        termios.tcsetattr(terminal_fd, termios.TCSANOW, modes)


@contextmanager
def _raw_mode() -> Generator[None]:
    """In the block, put the user's terminal into raw mode.

    The command's terminal interprets the keys instead.
    """
    old_modes: list[Any] = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(0, termios.TCSADRAIN, old_modes)


def _write(target: int, data: bytes) -> None:
    """Write all of the data, also if the terminal takes it only in parts."""
    # the terminal was closed; the command's own terminal reports that
    with suppress(OSError):
        while data:
            data = data[os.write(target, data) :]


# The terminal modes that a program has set, and the sequences that reset them. Pure. A
# program that is killed leaves its modes set: a hidden cursor, mouse reports, line-drawing
# characters.
class TerminalModes:
    """Tracks the terminal modes that the output of a program turns on and off.

    `full_screen` is true if the program has used the alternate screen.
    """

    def __init__(self) -> None:
        self.full_screen = False  # whether the alternate screen was used
        self._modes = dict[bytes, bool]()  # by number: whether the mode is set now
        self._other_resets = set[int]()  # indexes of the `_RESETS` that are needed
        self._last_bytes = b""

    def add(self, piece: bytes) -> None:
        """Track the modes that `piece` of the output sets.

        A sequence may begin in the piece before.
        """
        output = self._last_bytes + piece
        self._last_bytes = output[-_MAX_SEQUENCE_BYTES:]
        for match in _MODES_PATTERN.finditer(output):
            modes, is_enabled = match[1].split(b";"), match[2] == b"h"
            for mode in modes:
                self._modes[mode] = is_enabled
                if is_enabled and mode in _SCREEN_MODES:
                    self.full_screen = True
        for index, (set_pattern, _) in enumerate(_RESETS):
            if index not in self._other_resets and set_pattern.search(output):
                self._other_resets.add(index)

    def restore_sequences(self) -> bytes:
        """Return the sequences that set the changed modes to their initial values."""
        sequences = [
            reset for index, (_, reset) in enumerate(_RESETS) if index in self._other_resets
        ]
        for mode, is_enabled in self._modes.items():
            was_enabled = mode in _INITIAL_MODES
            if is_enabled != was_enabled:
                sequences.append(b"\x1b[?" + mode + (b"h" if was_enabled else b"l"))
        return b"".join(sequences)
