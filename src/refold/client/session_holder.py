"""Finds the process that has a session open, checks whether it responds, and can stop it.

A process with a socket (`session_socket`) is asked for a response. For any other process, the
only check is whether the process is suspended. Every function blocks, some of them for
seconds: call them in a thread. `cli.steal` decides whether the user is asked before a process
is stopped.

A holder is stopped only if it does not respond and the kernel lists its lock
(`/proc/PID/fdinfo`). This is checked while a pidfd is open, so no other process that got its
id is stopped. There is no heartbeat, because that would write to the disk continually. On
systems without /proc or pidfd (macOS) no process is stopped, and the error says how to
continue.
"""

import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec import Struct

from refold.client.session_socket import Hello, socket_path
from refold.errors import BadInput, Held
from refold.journal.events.kinds import HolderEnded
from refold.journal.session_index import SessionIndex

ANSWER_SECONDS = 5.0
END_SECONDS = 8.0  # after SIGTERM: a terminal gives its turn 5 seconds to end
_POLL_SECONDS = 0.5  # between two checks whether the lock was released
_KILL_SECONDS = 5.0  # after SIGKILL, until the kernel has removed the process
_MAX_COMMAND_CHARS = 60

HolderState = Literal["answers", "silent", "stopped", "unknown"]
_STATE_TEXTS: Mapping[HolderState, str] = MappingProxyType(
    {
        "answers": "answers",
        "silent": f"has not answered for {ANSWER_SECONDS:g} s",
        "stopped": "is stopped (Ctrl+Z or SIGSTOP)",
        "unknown": "takes no clients, so it is not known whether it works",
    }
)
_STATE_REASONS: Mapping[HolderState, str] = MappingProxyType(
    {
        "answers": "it answered",
        "silent": f"it had not answered for {ANSWER_SECONDS:g} s",
        "stopped": "it was stopped",
        "unknown": "it took no clients",
    }
)


class SessionHolder(Struct, frozen=True):
    """A process of this machine that holds the writer lock of `session`."""

    session: str
    pid: int
    command: str
    state: HolderState

    @property
    def hangs(self) -> bool:
        """Whether the process certainly does not respond."""
        return self.state in ("silent", "stopped")

    @property
    def name(self) -> str:
        return f"the process {self.pid} (`{self.command}`)"

    @property
    def state_text(self) -> str:
        return _STATE_TEXTS[self.state]

    @property
    def end_event(self) -> HolderEnded:
        """The event that records that the process was stopped."""
        host = os.uname().nodename
        reason = _STATE_REASONS[self.state]
        return HolderEnded(self.pid, host, self.command, reason)


def find_holder(
    index: SessionIndex, session: str, environ: Mapping[str, str] = os.environ
) -> SessionHolder | None:
    """Return the process of this machine that holds the lock of a session, and its state.

    Return None if no process of this machine holds it. It waits some seconds for a
    response.
    """
    writer = index.writer(session)
    if writer is None or writer.host != os.uname().nodename:
        return None
    if not index.is_locked_by(session, writer.pid):
        return None
    state = _state(writer.pid, socket_path(index.path(session), environ))
    return SessionHolder(session, writer.pid, _command(writer.pid), state)


def end_holder(
    index: SessionIndex, holder: SessionHolder, seconds: float = END_SECONDS
) -> None:
    """Stop the process: by SIGTERM, then by SIGKILL after `seconds`.

    Raises `BadInput` if it may not or cannot be stopped, or no longer holds the lock. The
    signals are sent through a pidfd, so that no other process that got its id receives
    them.
    """
    try:
        process = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError) as error:
        raise BadInput(
            f"--steal cannot end {holder.name} on this system: end it, and resume then"
        ) from error
    try:
        _check_holds(index, holder)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGTERM)
            # A suspended process does not handle SIGTERM.
            signal.pidfd_send_signal(process, signal.SIGCONT)
            if _wait_for_end(process, index, holder, seconds):
                return
            signal.pidfd_send_signal(process, signal.SIGKILL)
        if not _has_ended(process, _KILL_SECONDS):
            raise BadInput(
                f"{holder.name} does not end, not even by SIGKILL: it waits for a device"
            )
    finally:
        os.close(process)


def explain_held(index: SessionIndex, session: str, error: Held) -> Held:
    """Return the error with advice for the user.

    The user can stop a process that hangs, or use the machine on which the process runs.
    """
    writer = index.writer(session)
    if writer is not None and writer.host != os.uname().nodename:
        return Held(
            f"{session} is being written by {writer.text}, and a process of another "
            "machine cannot be stopped from here: stop it there"
        )
    holder = find_holder(index, session)
    if holder is None or not holder.hangs:
        return error
    return Held(
        f"{session} is being written by {holder.name}, which {holder.state_text}: "
        "add --steal to end it and continue here"
    )


def _check_holds(index: SessionIndex, holder: SessionHolder) -> None:
    """Raise `BadInput` if the process belongs to another user, or no longer holds the lock."""
    try:
        owner = os.stat(f"/proc/{holder.pid}").st_uid
    except FileNotFoundError:
        return  # it has exited
    if owner != os.getuid():
        raise BadInput(f"{holder.name} belongs to another user: only that user can stop it")
    if not index.is_locked_by(holder.session, holder.pid):
        raise BadInput(
            f"{holder.name} does not hold {holder.session} any more, and was not ended: try again"
        )


def _wait_for_end(
    process: int, index: SessionIndex, holder: SessionHolder, seconds: float
) -> bool:
    """Wait for the end of the process, and return whether it exited.

    Once it has released the lock, the wait is short.
    """
    until = time.monotonic() + seconds
    while (remaining := until - time.monotonic()) > 0:
        if _has_ended(process, min(_POLL_SECONDS, remaining)):
            return True
        if not index.is_locked_by(holder.session, holder.pid):
            return _has_ended(process, _POLL_SECONDS)
    return False


def _has_ended(process: int, seconds: float) -> bool:
    """Whether the process with the pidfd `process` exits within `seconds`."""
    readable, _, _ = select.select([process], [], [], seconds)
    return bool(readable)


def _state(pid: int, path: Path) -> HolderState:
    """Return the state of a process: whether it is suspended, and whether it responds.

    A process that is not suspended is asked for a response at the socket `path`.
    """
    with suppress(OSError):
        status = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        _, _, fields = status.rpartition(") ")  # after the name in parentheses
        if fields.startswith("T"):  # the state of a process that Ctrl+Z or SIGSTOP stopped
            return "stopped"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(msgspec.json.encode(Hello()) + b"\n")
            return "answers" if connection.recv(1) else "unknown"
        except TimeoutError:
            return "silent"
        except OSError:
            return "unknown"


def _command(pid: int) -> str:
    """Return the command line of a process, short, on one line, and without the interpreter.

    Return "refold" if it cannot be read.
    """
    from refold.views.escape import escape_to_one_line
    from refold.views.wrap import cut

    try:
        command_line = Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
        words = command_line.split("\0")[:-1]  # each word ends with a NUL
    except OSError:
        words = []
    if len(words) > 1 and os.path.basename(words[0]).startswith("python"):
        words = words[1:]
    if words[:2] == ["-m", "refold"]:
        words = words[1:]
    if words:
        words[0] = os.path.basename(words[0])
    command = escape_to_one_line(" ".join(words)) or "refold"
    return cut(command, _MAX_COMMAND_CHARS)
