"""Starts the first process of a command: bash, behind walls.

Nothing of ours ever runs between fork and exec. `supervise` watches and ends what was
started here.
"""

import os
import re
import select
import shlex
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from refold import programs
from refold.errors import ToolFailed
from refold.place.bubblewrap import failed
from refold.place.command_output import pipe
from refold.place.limits import Limits, set_first
from refold.place.port import NOTHING_MORE, CommandExtras
from refold.place.reaper import NAME, Mark, new_mark
from refold.place.sandbox import Launch
from refold.values.printable_names import escaped
from refold.values.tools import Confines

_BASH = ("/bin/bash", "--noprofile", "--norc", "-c")
_FIRST = re.compile(rb'"child-pid": *(\d+)')
_PATIENCE = 5.0  # seconds for a sandbox to be set up

# Outside there is nobody: bash takes the place of the shell that set the limits.
_ALONE = 'exec /bin/bash --noprofile --norc -c "$1"'
# The space of processes ends with its first one, and so would what still prints.
_FIRST_OF_ALL = """
exec 3>&2 2>/dev/null
echo >&{ready}; read -r -n 1 <&{go} || exit 1; exec {ready}>&- {go}<&-
/bin/bash --noprofile --norc -c "$1" 2>&3 3>&-
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


def shell(
    order: Order, held: Launch, limits: Limits, queues: int, gate: tuple[int, int] = (1, 0)
) -> tuple[str, ...]:
    """The shell that sets limits, waits at the gate, and then gives the line to bash."""
    first = set_first(limits, queues, own_users=held.own_space and os.geteuid() != 0)
    ready, go = gate
    waiting = _FIRST_OF_ALL.replace("{ready}", str(ready)).replace("{go}", str(go))
    body = waiting if held.own_space else _ALONE
    return (*_BASH, first + _libraries(order, held) + body, "bash", order.command)


def _libraries(order: Order, held: Launch) -> str:
    """Where a command finds libraries is not where bubblewrap does: the workspace, maybe."""
    if not held.own_space:
        return ""
    left = order.environ.keys() - programs.plain(order.environ).keys()
    words = (f"{name}={shlex.quote(order.environ[name])}" for name in sorted(left))
    return "".join(f"export {word}; " for word in words)


def start(
    order: Order, held: Launch, limits: Limits, ends: tuple[int, int]
) -> RunningCommand:
    """`ends` are those of a pipe that the walls of `held` tell their news into.

    From here on they are closed by whoever closes the call, also if there is none.
    """
    mark = new_mark(os.environ.get(NAME, ""))
    news, told = ends
    reading = writing = -1
    gate = [-1, -1, -1, -1]  # ready: ours, its; go: its, ours
    environ = programs.plain(order.environ) if held.own_space else order.environ
    try:
        reading, writing = pipe()
        if held.own_space:
            gate = [*os.pipe(), *os.pipe()]
        process = programs.start(
            (*held.words, *shell(order, held, limits, mark.queues, (gate[1], gate[2]))),
            cwd="/" if held.own_space else order.cwd,
            env={**environ, **held.environ, NAME: mark.token},
            stdin=subprocess.DEVNULL if order.given.stdin is None else order.given.stdin,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
            pass_fds=(told, gate[1], gate[2]) if held.own_space else (),
        )
    except (OSError, ValueError) as error:
        close(reading, news, gate[0], gate[3])
        raise cannot(order.cwd, error) from error
    finally:
        close(writing, told, gate[1], gate[2])
    try:
        first = _first(news) if held.own_space else 0
        problem = _let_go(held, first, gate[0], gate[3]) if first else ""
    finally:
        close(gate[0], gate[3])
    return RunningCommand(process, reading, mark, held, news, first, problem)


def _let_go(held: Launch, first: int, ready: int, go: int) -> str:
    """Let the command run when its walls stand as they should. Else why they do not."""
    compared = held.mounts.comparison() if held.mounts else None
    waiting = select.poll()
    waiting.register(ready, select.POLLIN)
    if not waiting.poll(_PATIENCE * 1000) or not os.read(ready, 1):
        return ""  # it has ended: bubblewrap says why
    if compared and (problem := compared(first)):
        return problem
    with suppress(BrokenPipeError):
        os.write(go, b"!")
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
