"""Starts the first process of a command: bash, in the sandbox.

No code of ours runs between fork and exec. `supervise` watches and ends the process.
"""

import os
import re
import select
import shlex
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from refold import programs
from refold.errors import ToolFailed
from refold.place.bubblewrap import failed
from refold.place.command_output import pipe
from refold.place.limits import Limits, hold, set_first
from refold.place.port import NOTHING_MORE, CommandExtras
from refold.place.reaper import NAME, Mark, new_mark
from refold.place.sandbox import Launch
from refold.values.printable_names import escaped
from refold.values.tools import Confines

_BASH = ("/bin/bash", "--noprofile", "--norc", "-c")
_SH = ("/bin/sh", "-c")  # where it is no bash, it starts in half the time
_FIRST = re.compile(rb'"child-pid": *(\d+)')
_SENDER = struct.Struct("@iII")  # who sent something: process, user, group
_PATIENCE = 5.0  # seconds for a sandbox to be set up

# Outside there is nobody: bash takes the place of the shell that set the limits.
_ALONE = 'exec /bin/bash --noprofile --norc -c "$1"'
# The space of processes ends with its first one, and so would what still prints. What it
# reads from is the gate, until it is let go. It starts bash in a subshell, or it would say
# of what ended bash where the command prints.
_FIRST_OF_ALL = """
exec 3>&2 2>/dev/null
echo >&0; read -r go || exit 1; exec <{stdin}
(exec /bin/bash --noprofile --norc -c "$1" 2>&3 3>&-)
code=$? n=0
while set -- /proc/[0-9]*; [ $# -gt 2 ] && [ $n -lt 20 ]; do n=$((n+1)); sleep 0.01; done
exit $code
"""


class RunningCommand(Struct, frozen=True):
    """A command that was started. `first` is the first process inside a sandbox."""

    process: "subprocess.Popen[bytes]"
    reading: int  # the descriptor that all it prints comes out of
    mark: Mark
    held: Launch
    news: int  # the descriptor that news of bubblewrap come out of
    first: int = 0
    problem: str = ""  # why its walls do not stand; then nothing of it has run

    def broken(self, printed: bytes) -> str:
        """Why the sandbox could not be set up; "" if it was."""
        if self.problem:
            return self.problem
        if self.held.own_space:
            with suppress(OSError):
                return failed(os.read(self.news, 65536), printed)
        return ""


class Order(Struct, frozen=True):
    """What is to be started."""

    command: str
    cwd: str
    confines: Confines
    environ: Mapping[str, str]
    given: CommandExtras = NOTHING_MORE


def shell(order: Order, held: Launch, queues: int) -> tuple[str, ...]:
    """The shell that gives the line to bash: with limits, or when it is let go."""
    if not held.own_space:
        return (*_BASH, set_first(queues) + _ALONE, "bash", order.command)
    number = order.given.stdin
    stdin = "/dev/null" if number is None else f"&{number} {number}<&-"
    # Other shells know no descriptor above 9, and drop names that are none to them.
    plain = number is None and all(name.isidentifier() for name in order.environ)
    body = _libraries(order) + _FIRST_OF_ALL.replace("{stdin}", stdin)
    return (*(_SH if plain else _BASH), body, "bash", order.command)


def _libraries(order: Order) -> str:
    """Where a command finds libraries is not where bubblewrap does: the workspace, maybe."""
    left = order.environ.keys() - programs.plain(order.environ).keys()
    words = (f"{name}={shlex.quote(order.environ[name])}" for name in sorted(left))
    return "".join(f"export {word}; " for word in words)


def start(
    order: Order, held: Launch, limits: Limits, ends: tuple[int, int]
) -> RunningCommand:
    """`ends` are those of a pipe into which the sandbox of `held` writes its status.

    From here on they are closed when the call is closed, also if it was not started.
    """
    mark = new_mark(os.environ.get(NAME, ""))
    news, told = ends
    reading = writing = -1
    stdin, passed = order.given.stdin, ()
    ours = its = None
    environ = programs.plain(order.environ) if held.own_space else order.environ
    try:
        reading, writing = pipe()
        if held.own_space:
            ours, its = socket.socketpair()
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            passed = (told,) if stdin is None else (told, stdin)
            stdin = its.fileno()
        process = programs.start(
            (*held.words, *shell(order, held, mark.queues)),
            cwd="/" if held.own_space else order.cwd,
            env={**environ, **held.environ, NAME: mark.token},
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
            pass_fds=passed,
        )
    except (OSError, ValueError) as error:
        close(reading, news)
        if ours:
            ours.close()
        raise cannot(order.cwd, error) from error
    finally:
        close(writing, told)
        if its:
            its.close()
    if not ours:
        return RunningCommand(process, reading, mark, held, news)
    with ours:
        first = _first(news)
        problem = _let_go(held, first, ours, (limits, mark.queues)) if first else ""
    return RunningCommand(process, reading, mark, held, news, first, problem)


def _let_go(
    held: Launch, first: int, gate: socket.socket, limits: tuple[Limits, int]
) -> str:
    """Let the command run if its mounts are right; otherwise return the reason."""
    compared = held.mounts.comparison() if held.mounts else None
    gate.settimeout(_PATIENCE)
    try:
        ready, about, *_ = gate.recvmsg(1, socket.CMSG_SPACE(_SENDER.size))
    except TimeoutError:
        ready, about = b"", []
    if not ready:
        return ""  # it has ended: bubblewrap says why
    if compared and (problem := compared(first)):
        return problem
    for _, kind, sender in about:
        if kind == socket.SCM_CREDENTIALS:
            hold(_SENDER.unpack(sender)[0], *limits)
    with suppress(OSError):  # it has ended
        gate.send(b"\n")
    return ""


def close(*descriptors: int) -> None:
    for number in descriptors:
        if number >= 0:
            os.close(number)


def cannot(cwd: str, error: Exception) -> ToolFailed:
    why = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
    return ToolFailed(f"The command could not be started in {escaped(cwd)}: {why}.")


def _first(news: int) -> int:
    """The number of the first process inside, seen from outside; 0: there is none."""
    os.set_blocking(news, False)
    ready = select.poll()
    ready.register(news, select.POLLIN)
    said, until = b"", time.monotonic() + _PATIENCE
    while (left := until - time.monotonic()) > 0 and b"\n" not in said:
        piece = os.read(news, 4096) if ready.poll(left * 1000) else b""
        if not piece:
            break
        said += piece
    found = _FIRST.search(said)
    return int(found[1]) if found else 0
