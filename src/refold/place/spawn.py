"""Starts the first process of a command: bash, in the sandbox.

A sandbox waits at a gate until its mounts have been compared with the plan; only then the
command runs. `sandbox_ahead` sets up a sandbox before its command is known. No code of ours
runs between fork and exec. `supervise` watches and stops the process.
"""

import os
import re
import select
import shlex
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO

from msgspec import Struct

from refold import programs
from refold.errors import ToolFailed
from refold.place.bubblewrap import start_failure
from refold.place.command_output import open_pipe
from refold.place.landlock import restrict_thread
from refold.place.limits import Limits, set_limits, ulimit_words
from refold.place.port import NOTHING_MORE, CommandExtras
from refold.place.reaper import ENVIRONMENT_NAME, ProcessMark, new_mark
from refold.place.sandbox import Launch
from refold.place.sandbox_listener import SandboxListener
from refold.place.socket_guard import install
from refold.values.display import HostAttempt
from refold.values.printable_names import escape_name
from refold.values.tools import Confinement

_BASH_COMMAND = ("/bin/bash", "--noprofile", "--norc", "-c")
_STARTUP_VARIABLE = "BASH_ENV"  # bash runs the file in this variable before its command
_SH_COMMAND = ("/bin/sh", "-c")  # if /bin/sh is not bash, it starts in half the time
# A shell that is started ahead reads its command from a file in memory.
_READ_COMMAND_SCRIPT = (
    """IFS= read -r -d '' <&{file}; exec {file}<&-; set -- "$REPLY"; SHLVL=$((SHLVL-1)); """
)
_CHILD_PID = re.compile(rb'"child-pid": *(\d+)')
_CREDENTIALS_STRUCT = struct.Struct("@iII")  # the sender's process, user and group
# A constant of Linux that PyPy does not define.
_PASS_CREDENTIALS = getattr(socket, "SO_PASSCRED", 16)
_CREDENTIALS_KIND = getattr(socket, "SCM_CREDENTIALS", 2)
_MAX_NEWS_BYTES = 64 * 1024  # more than bubblewrap writes to its status descriptor
_SETUP_SECONDS = 5.0  # for setting up a sandbox

# When the first process exits, the kernel kills its PID namespace, including processes that
# still print. Its standard input is the gate until the command is released. It starts bash
# in a subshell, because otherwise it would report a signal that killed bash in the output
# of the command.
_FIRST_PROCESS_SCRIPT = """
exec 3>&2 2>/dev/null
echo >&0; read -r go || exit 1; {read_command}exec <{stdin}
(exec /bin/bash --noprofile --norc -c "$1" 2>&3 3>&-)
code=$? n=0
while set -- /proc/[0-9]*; [ $# -gt 2 ] && [ $n -lt 20 ]; do n=$((n+1)); sleep 0.01; done
exit $code
"""


class RunningCommand(Struct, frozen=True):
    """A command that was started. `first` is the first process inside its sandbox, or 0."""

    process: "subprocess.Popen[bytes]"
    reading: int  # the descriptor to read its output from
    mark: ProcessMark
    launch: Launch
    news: int = -1  # the descriptor to read bubblewrap's status from
    first: int = 0
    problem: str = ""  # why its sandbox could not be set up, so that it did not run
    # stops its network filter and returns the attempts; without a filter there are none
    attempts: Callable[[], tuple[HostAttempt, ...]] = tuple

    def setup_failure(self, output: bytes) -> str:
        """Return why the sandbox could not be set up; "" if it was.

        `output` is what was printed so far. Call this once, after the end.
        """
        if self.problem:
            return self.problem
        if self.launch.own_space:
            with suppress(OSError):
                return start_failure(os.read(self.news, _MAX_NEWS_BYTES), output)
        return ""


class SpawnRequest(Struct, frozen=True):
    """A command to start: its text, directory, permissions, variables and extras."""

    command: str
    cwd: str
    confines: Confinement
    environ: Mapping[str, str]
    extras: CommandExtras = NOTHING_MORE


def confine_thread(launch: Launch) -> ExitStack:
    """Permanently confine everything that this thread starts from now on.

    Close the returned stack when everything that the thread started has exited. Raises
    `OSError`, and `ToolFailed` if rights cannot be given up.
    """
    with ExitStack() as stack:
        if launch.guards_sockets:
            stack.callback(
                install(offline=launch.offline, reachable=launch.reachable_socket)
            )
        if launch.restrictions:
            try:
                restrict_thread(launch.restrictions)
            except OSError as error:
                raise ToolFailed(
                    "The sandbox for the command could not be set up: Landlock refuses. "
                    'Set sandbox.profile = "off" to run commands without one.'
                ) from error
        return stack.pop_all()


def start(request: SpawnRequest, launch: Launch, limits: Limits) -> RunningCommand:
    """Start the command as `launch` describes. Raises `ToolFailed`."""
    try:
        if launch.own_space:
            return GatedSandbox(request, launch).release(launch, limits)
        mark = new_mark(os.environ.get(ENVIRONMENT_NAME, ""))
        stdin = subprocess.DEVNULL if request.extras.stdin is None else request.extras.stdin
        environment = {**request.environ, **launch.environ, ENVIRONMENT_NAME: mark.token}
        with _startup_file(ulimit_words(mark.queues), environment) as (file, environ):
            words = (*launch.arguments, *_BASH_COMMAND, request.command)
            process, reading = _start_process(
                words, request.cwd, environ, stdin, descriptors=(file,)
            )
    except (OSError, ValueError) as error:
        why = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
        raise ToolFailed(
            f"The command could not be started in {escape_name(request.cwd)}: {why}."
        ) from error
    return RunningCommand(process, reading, mark, launch)


@contextmanager
def _startup_file(
    words: str, environ: Mapping[str, str]
) -> Generator[tuple[int, Mapping[str, str]]]:
    """Yield a file that bash reads before the command, and the variables that make it do so.

    The file contains `words`, which set limits, and then restores the variables. A second shell
    that sets the limits would take longer than most commands.
    """
    # bash would not read the file if POSIXLY_CORRECT or SHELLOPTS were set. So bash starts
    # without these variables, and the file sets them again.
    acted_on = (_STARTUP_VARIABLE, "POSIXLY_CORRECT", "SHELLOPTS")
    removed = {name: environ[name] for name in acted_on if name in environ}
    restoring = [f"unset {_STARTUP_VARIABLE}"]
    if options := removed.pop("SHELLOPTS", ""):  # bash does not let it be assigned
        restoring += (f"set -o {shlex.quote(option)}" for option in options.split(":"))
        restoring.append("export SHELLOPTS")
    restoring += (f"export {name}={shlex.quote(value)}" for name, value in removed.items())
    with _file_in_memory() as file:
        number = file.fileno()
        text = "\n".join((f"exec {number}<&-", words, *restoring, ""))
        file.write(os.fsencode(text))
        file.seek(0)
        # A system without /proc has /dev/fd.
        descriptor_directory = (
            "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
        )
        others = {name: value for name, value in environ.items() if name not in acted_on}
        yield number, {**others, _STARTUP_VARIABLE: f"{descriptor_directory}/{number}"}


def _file_in_memory() -> FileIO:
    """Return a file in memory. An old bash cannot read its startup file from a pipe."""
    if hasattr(os, "memfd_create"):
        return FileIO(os.memfd_create("limits"), "r+")
    from tempfile import TemporaryFile  # not needed on Linux

    with TemporaryFile(buffering=0) as file:
        return FileIO(os.dup(file.fileno()), "r+")


def _file_of(content: bytes) -> int:
    """Return a descriptor of a new file in memory with `content`; -1 if that is empty."""
    if not content:
        return -1
    number = os.memfd_create("filter")
    os.write(number, content)
    os.lseek(number, 0, os.SEEK_SET)
    return number


class GatedSandbox:
    """A sandbox that is set up and waits at its gate, before the command runs.

    Call either `release` or `end`. With `ahead` the command is not known yet, and `release`
    gets it. Raises `OSError`, and `ValueError` for arguments that cannot be passed to a
    program.
    """

    def __init__(
        self, request: SpawnRequest, launch: Launch, *, ahead: bool = False
    ) -> None:
        """Start the sandbox. Its shell waits at the gate until `release` lets it run the command.

        With `ahead`, the command is not known yet: the shell reads it from a file in memory.
        """
        self._mark = new_mark(os.environ.get(ENVIRONMENT_NAME, ""))
        self._ready = b""  # what the shell sends when it waits at the gate
        self._first = 0
        is_filtered = launch.hosts is not None
        self._listener = SandboxListener(request.environ) if is_filtered else None
        stdin = request.extras.stdin
        self._tell_attempt = request.extras.tell_attempt
        self._gate, child_end = socket.socketpair()
        self._gate.setsockopt(socket.SOL_SOCKET, _PASS_CREDENTIALS, 1)
        self._command_file = os.memfd_create("command") if ahead else -1
        self._news, status = os.pipe()
        filter_ = _file_of(launch.seccomp)
        filter_option = ("--seccomp", str(filter_)) if filter_ >= 0 else ()
        options = (*filter_option, "--json-status-fd", str(status), "--")
        variables = programs.without_loader_variables(request.environ)
        environ = {**variables, **launch.environ, ENVIRONMENT_NAME: self._mark.token}
        optional = (stdin, self._command_file, filter_)
        descriptors = (status, *(n for n in optional if n is not None and n >= 0))
        try:
            self._process, self._reading = _start_process(
                (*launch.arguments, *options, *self._shell(request)),
                cwd="/",
                env=environ,
                stdin=child_end.fileno(),
                descriptors=descriptors,
            )
        except BaseException:
            self._close_all()
            close_descriptors(self._news)
            raise
        finally:
            child_end.close()
            close_descriptors(status, filter_)
        self._first = _first_process(self._news)

    def wait(self) -> bool:
        """Wait until the sandbox is set up. Return False if it has exited or takes too long."""
        if self._first and not self._ready:
            self._gate.settimeout(_SETUP_SECONDS)
            with suppress(TimeoutError):
                size = socket.CMSG_SPACE(_CREDENTIALS_STRUCT.size)
                self._ready, self._ancillary_data, *_ = self._gate.recvmsg(1, size)
        return bool(self._ready)

    def shows(self, launch: Launch) -> bool:
        """Whether the mounts, which `launch` describes, still show the current files."""
        return launch.mounts is not None and launch.mounts.shows_current_files(self._first)

    def release(
        self, launch: Launch, limits: Limits, command: bytes | None = None
    ) -> RunningCommand:
        """Let the command run if the mounts are as planned.

        If they are not, the command does not run, and `problem` of the result says why.
        `command` is given for a sandbox that was set up ahead. Raises `ToolFailed`.
        """
        check_mounts = launch.mounts.prepare_mount_check() if launch.mounts else None
        problem = ""
        attempts: Callable[[], tuple[HostAttempt, ...]] = tuple  # returns none
        is_set_up = self.wait()
        if is_set_up and check_mounts is not None:
            problem = check_mounts(self._first)
        if is_set_up and not problem:
            for _, kind, sender in self._ancillary_data:
                if kind == _CREDENTIALS_KIND:
                    shell_pid, _user, _group = _CREDENTIALS_STRUCT.unpack(sender)
                    set_limits(shell_pid, limits, self._mark.queues)
            attempts = self._connect(launch)
            if command is not None:
                os.pwrite(self._command_file, command, 0)
            with suppress(OSError):  # it has exited
                self._gate.send(b"\n")
        self._close_all()
        return RunningCommand(
            self._process,
            self._reading,
            self._mark,
            launch,
            news=self._news,
            first=self._first,
            problem=problem,
            attempts=attempts,
        )

    def _connect(self, launch: Launch) -> Callable[[], tuple[HostAttempt, ...]]:
        """Start to serve the sandbox's network filter, if it has one. Raises `ToolFailed`.

        Return a function that stops serving and returns the attempts.
        """
        if self._listener is None or launch.hosts is None or launch.filter is None:
            return tuple  # called without arguments, it returns no attempts
        try:
            listening = self._listener.open(self._first)
        except BaseException:
            self.end()
            raise
        return launch.filter.open(listening, launch.hosts, self._tell_attempt)

    def end(self) -> None:
        """Stop the sandbox without having run a command in it."""
        self._close_all()  # closing its gate makes it exit
        try:
            self._process.wait(_SETUP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        close_descriptors(self._reading, self._news)

    def _shell(self, request: SpawnRequest) -> tuple[str, ...]:
        """Return the command line of a shell that waits at the gate and then runs the command."""
        is_ahead = self._command_file >= 0
        number = request.extras.stdin
        # Without an own stdin, the command reads nothing. Another one is copied and closed.
        stdin = "/dev/null" if number is None else f"&{number} {number}<&-"
        read_command = ""
        if is_ahead:
            read_command = _READ_COMMAND_SCRIPT.format(file=self._command_file)
        script = _FIRST_PROCESS_SCRIPT.replace("{stdin}", stdin)
        script = script.replace("{read_command}", read_command)
        # sh starts faster. But it may support no descriptor above 9, and drop variables with
        # unusual names.
        has_usual_names = all(name.isidentifier() for name in request.environ)
        can_use_sh = number is None and not is_ahead and has_usual_names
        shell = _SH_COMMAND if can_use_sh else _BASH_COMMAND
        return (*shell, _library_path_words(request) + script, "bash", request.command)

    def _close_all(self) -> None:
        """Close the gate, the file with the command, and the listener."""
        self._gate.close()
        close_descriptors(self._command_file)
        if self._listener is not None:
            self._listener.close()


def _start_process(
    words: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    stdin: int,
    descriptors: Sequence[int] = (),
) -> "tuple[subprocess.Popen[bytes], int]":
    """Start a process. Return it, and the descriptor to read its output from.

    The process inherits `descriptors`. Raises `OSError`.
    """
    reading, writing = open_pipe()
    try:
        process = programs.start(
            words,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
            pass_fds=descriptors,
        )
    except BaseException:
        close_descriptors(reading)
        raise
    finally:
        close_descriptors(writing)
    return process, reading


def _library_path_words(request: SpawnRequest) -> str:
    """Return shell words that set the command's library paths, which bubblewrap must not get."""
    environ = request.environ
    loader_names = environ.keys() - programs.without_loader_variables(environ).keys()
    words = (f"{name}={shlex.quote(environ[name])}" for name in sorted(loader_names))
    return "".join(f"export {word}; " for word in words)


def close_descriptors(*descriptors: int) -> None:
    """Close the `descriptors`, except for those that are -1."""
    for number in descriptors:
        if number >= 0:
            os.close(number)


def _first_process(news: int) -> int:
    """Return the id, in our namespace, of the first process in the sandbox; 0 if none.

    bubblewrap reports it through `news`.
    """
    os.set_blocking(news, False)
    ready = select.poll()
    ready.register(news, select.POLLIN)
    line = b""
    until = time.monotonic() + _SETUP_SECONDS
    while b"\n" not in line and (seconds_left := until - time.monotonic()) > 0:
        if not ready.poll(seconds_left * 1000):
            break
        piece = os.read(news, 4096)
        if not piece:  # bubblewrap has exited
            break
        line += piece
    match = _CHILD_PID.search(line)
    return int(match[1]) if match else 0
