"""Runs the user's shell in a pseudo-terminal, outside of any sandbox, as `!command` does.

The shell leads a Unix session. When this process ends, even by kill -9, its end of the
terminal is closed, and the kernel sends the session a hangup. `end` also kills the
processes that remain. `shell_integration` makes the shell report the entered lines, and
`terminals` connects the shell to a page.
"""

import os
import secrets
import signal
import tempfile
import termios
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio import to_thread

from refold import programs
from refold.console.pty import start_in_terminal
from refold.errors import RefoldError
from refold.process_groups import signal_session
from refold.server.shell_integration import Mark, MarkReader, write_hooks

READ_BYTES = 64 * 1024  # that are read at once
_NONCE_BYTES = 16
_GRACE_SECONDS = 1.0  # between the hangup and SIGKILL
_POLL_SECONDS = 0.02  # between two checks for remaining processes


def find_shell(environ: Mapping[str, str], directory: str) -> str:
    """Return the path of the user's shell: $SHELL, or else bash or sh.

    No program in the workspace `directory` is used.
    """
    known_programs = programs.Programs(environ, (directory,))
    for name in (environ.get("SHELL", ""), "bash", "sh"):
        path = known_programs.find(name) if name else ""
        if path:
            return path
    return "/bin/sh"


class ShellProcess:
    """A running shell. `run_shell` makes it."""

    def __init__(
        self, process: anyio.abc.Process, our_end: int, nonce: str, hooks: Path
    ) -> None:
        self._process, self._our_end, self._hooks = process, our_end, hooks
        self._marks = MarkReader(nonce)
        self.reports_commands = False

    @property
    def code(self) -> int | None:
        """Return the exit code of the shell, negative for a signal; None while it runs."""
        return self._process.returncode

    async def read(self) -> tuple[bytes, list[Mark]]:
        """Wait for output. Return it, with reports of the command lines that were entered.

        Return (b"", []) at the end of the output.
        """
        while True:
            await anyio.wait_readable(self._our_end)
            try:
                piece = os.read(self._our_end, READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:  # no process has the other end of the terminal any more
                return b"", []
            if not piece:
                return b"", []
            shown, marks = self._marks.read(piece)
            if not self.reports_commands and marks:
                self.reports_commands = True
                _remove_hooks(self._hooks)  # the shell has read it
            commands = [mark for mark in marks if mark.entered]
            if shown or commands:
                return shown, commands

    async def write(self, data: bytes) -> None:
        """Write the keys that the user typed; wait while no program reads them."""
        while data:
            await anyio.wait_writable(self._our_end)
            with suppress(BlockingIOError):
                data = data[os.write(self._our_end, data) :]

    def resize(self, rows: int, columns: int) -> None:
        with suppress(OSError, termios.error):
            termios.tcsetwinsize(self._our_end, (rows, columns))

    async def wait(self) -> int:
        """Wait until the shell has exited, and return its exit code."""
        return await self._process.wait()

    async def end(self) -> None:
        """Send a hangup, and kill the remaining processes of the session."""
        leader = self._process.pid
        signal_session(leader, signal.SIGHUP)
        signal_session(leader, signal.SIGCONT)
        with anyio.move_on_after(_GRACE_SECONDS):
            await self._process.wait()
            while signal_session(leader, 0):  # noqa: ASYNC110 - not our children
                await anyio.sleep(_POLL_SECONDS)
        signal_session(leader, signal.SIGKILL)
        await self._process.wait()
        _remove_hooks(self._hooks)


@asynccontextmanager
async def run_shell(
    shell: str, directory: str, environ: Mapping[str, str], rows: int, columns: int
) -> AsyncGenerator[ShellProcess]:
    """Run a shell until the block ends. Raises `RefoldError` if it cannot be started."""
    nonce = secrets.token_hex(_NONCE_BYTES)
    directory_of_hooks = await to_thread.run_sync(
        lambda: tempfile.mkdtemp(prefix="refold-shell-")
    )
    hooks = Path(directory_of_hooks)
    our_end, shell_end = os.openpty()
    try:
        os.set_blocking(our_end, False)
        termios.tcsetwinsize(shell_end, (rows, columns))
        try:
            start = write_hooks(shell, nonce, hooks, environ)
            variables = {**environ, "SHELL": shell, **start.environ}
            process = await start_in_terminal(start.words, directory, variables, shell_end)
        except (OSError, ValueError) as error:
            _remove_hooks(hooks)
            raise RefoldError(
                f"{shell} could not be started in {directory}: {error}"
            ) from error
        finally:
            os.close(shell_end)
        running = ShellProcess(process, our_end, nonce, hooks)
        try:
            yield running
        finally:
            with anyio.CancelScope(shield=True):
                await running.end()
                await process.aclose()
    finally:
        os.close(our_end)


def _remove_hooks(hooks: Path) -> None:
    """Remove the directory with the files of a hook."""
    with suppress(OSError):
        for file in hooks.iterdir():
            file.unlink()
        hooks.rmdir()
