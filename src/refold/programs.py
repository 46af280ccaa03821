"""Finds and starts the programs that refold runs itself, outside any sandbox.

A workspace may be on the user's PATH: an activated `.venv/bin`, `node_modules/.bin`, or `.`. A
program that writes there could plant a `bwrap` or a `git` for refold to find. So a program is
trusted only if no other user, except root, can change it or the directories and links that lead
to it. A program in a workspace, or in another directory that commands can write, is never
trusted. No other module starts a program (`tests/test_house_rules.py` checks that). What a
command may run inside the sandbox is decided elsewhere.

A fixed system PATH instead would miss Homebrew, nix and `~/.local/bin`, and a check of `bwrap`
alone would not cover git, ripgrep and pagers.
"""

import os
import resource
import signal
import stat
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import IO, TYPE_CHECKING, Any, ClassVar, cast

from refold.errors import BadInput
from refold.values.path_names import below

SYSTEM = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
_MAX_LINKS = 40  # the kernel's limit
_FIRST_PEOPLE_GROUP = 1000  # the lowest number that systems give to the groups of people
_LOADER_PREFIXES = ("LD_", "DYLD_")  # of variables that the loader of libraries reads
_MAX_CPU_SECONDS = 120

TimedOut = subprocess.TimeoutExpired


class Programs:
    """Finds programs that can be trusted. `writable` are the directories of a workspace.

    Directories are absolute. A program is not trusted if it is in one of them, in the directory
    in which refold was started, or in a repository around these directories: its file has the
    same origin as the workspace. Each instance also distrusts the workspaces of all earlier
    instances, so a search for an editor or a pager does not have to name the workspace.
    """

    _every_writable: ClassVar[dict[str, None]] = {}

    def __init__(self, environ: Mapping[str, str], writable: Sequence[str] = ()) -> None:
        home = os.path.realpath(environ.get("HOME") or "/nonexistent")
        folders = list(writable)
        directory = _working_directory()
        if not below(home, directory):  # a directory around the home has ~/.local/bin
            folders.append(directory)
        folders += [_repository(path, home) for path in folders]
        self._writable = tuple(dict.fromkeys(p for p in folders if p and p != "/"))
        self._every_writable.update(dict.fromkeys(p for p in writable if p != "/"))
        entries = filter(os.path.isabs, environ.get("PATH", "").split(":"))
        self._folders = tuple(dict.fromkeys(entries)) or SYSTEM
        self._found = dict[str, str]()

    def find(self, name: str) -> str:
        """Return the absolute path of a program, or "" if none with this name can be trusted.

        The path is remembered until the program no longer exists. An absolute path is accepted
        unchanged, because the user named exactly this file.
        """
        known = self._found.get(name, "")
        if known and os.path.exists(known):
            return known
        trusted = (p for p in self._places(name) if p == name or not self.distrusted(p))
        self._found[name] = next(trusted, "")
        return self._found[name]

    def require(self, name: str) -> str:
        """Return the absolute path of a program. Raises `BadInput` with the reason if there is
        none.
        """
        if program := self.find(name):
            return program
        if skipped := self.skipped_programs(name):
            path, why = skipped[0]
            raise BadInput(
                f"{path} is not run, because {why}; give the path of another one"
            )
        raise BadInput(f"there is no program {name!r}: install it, or put it on your PATH")

    def skipped_programs(self, name: str) -> list[tuple[str, str]]:
        """Return the programs in PATH that `find` does not trust, each with the reason."""
        used, entries = self.find(name), list[tuple[str, str]]()
        for path in self._places(name):
            if path == used:
                break
            entries.append((path, self.distrusted(path)))
        return entries

    def _places(self, name: str) -> Iterator[str]:
        """Yield the executable files that `name` can mean, in the order of PATH."""
        if "/" in name:
            paths = [os.path.abspath(name)]
        else:
            paths = [os.path.join(folder, name) for folder in self._folders if name]
        return (p for p in paths if os.path.isfile(p) and os.access(p, os.X_OK))

    @property
    def path(self) -> str:
        """A PATH for the programs that are started, with only the trusted directories."""
        folders = dict.fromkeys((*self._folders, *SYSTEM))
        return ":".join(f for f in folders if os.path.isdir(f) and not self.distrusted(f))

    def distrusted(self, path: str) -> str:
        """Return why this file or directory cannot be trusted, or "" if it can.

        Each link in the path is checked as well, because a link that others can change may lead
        anywhere.
        """
        for _ in range(_MAX_LINKS):
            folder = os.path.realpath(os.path.dirname(path) or "/")
            entry = os.path.join(folder, os.path.basename(path))
            if why := self._in_workspace(entry) or _others_can_change(folder):
                return why
            try:
                path = os.path.join(folder, os.readlink(entry))
            except OSError:
                return self._in_workspace(entry) or _others_can_change(entry, parents=False)
        return f"{path} is behind too many links"

    def _in_workspace(self, path: str) -> str:
        """Return a reason that names the writable directory around the path, or ""."""
        for directory in dict.fromkeys((*self._writable, *self._every_writable)):
            if below(path, directory) or below(path, os.path.realpath(directory)):
                return f"it lies in {directory}, which commands or others can write"
        return ""


if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    from anyio.abc import Process

    class Start(TypedDict, total=False):
        """Options for starting a program, as in `subprocess.Popen`."""

        cwd: str | os.PathLike[str] | None
        env: Mapping[str, str] | None
        stdin: int | IO[bytes] | None
        stdout: int | IO[bytes] | None
        stderr: int | IO[bytes] | None
        start_new_session: bool
        pass_fds: Sequence[int]


def without_loader_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables that make the system load other libraries.

    Such a variable may name a workspace. If it is empty, it means the current directory.
    """
    return {n: value for n, value in environ.items() if not n.startswith(_LOADER_PREFIXES)}


def start(argv: Sequence[str], **options: "Unpack[Start]") -> "subprocess.Popen[bytes]":
    """Start a program. `argv[0]` must be an absolute path. Raises `OSError`."""
    untyped_options: dict[str, Any] = {**options}
    return cast(  # no option makes the streams text
        "subprocess.Popen[bytes]", subprocess.Popen(_absolute(argv), **untyped_options)
    )


def start_detached(
    arguments: Sequence[str], environ: Mapping[str, str]
) -> "subprocess.Popen[bytes] | None":
    """Start refold itself in a process that outlives this one. Return None if that fails.

    `arguments` are those of the command line. The output of the process is dropped.
    """
    if not sys.executable:
        return None
    # -P: no file in the current directory is taken for a module of refold.
    try:
        process = start(
            [sys.executable, "-P", "-m", "refold", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environ,
            start_new_session=True,
        )
    except OSError:
        return None
    Thread(target=process.wait, daemon=True).start()  # this avoids a zombie
    return process


def start_bounded(
    argv: Sequence[str],
    seconds: int = _MAX_CPU_SECONDS,
    memory: int = 0,
    **options: "Unpack[Start]",
) -> "subprocess.Popen[bytes]":
    """Start a program that the kernel kills when this process exits, even after kill -9.

    The kernel also kills it when it has used `seconds` of CPU time. It gets at most `memory`
    bytes of address space, unless that is 0.
    """
    reading, writing = os.pipe()
    try:
        try:
            passed = (*options.get("pass_fds", ()), reading)
            process = start(argv, **{**options, "pass_fds": passed})
        except BaseException:
            os.close(writing)
            raise
        weakref.finalize(process, os.close, writing)
        limit_resources(process.pid, seconds, memory)
        _kill_at_end_of(reading, process.pid)
    finally:
        os.close(reading)
    return process


def _kill_at_end_of(reading: int, pid: int) -> None:
    """Let the kernel kill the process `pid` when no process can write to a pipe any more.

    `reading` is the descriptor of the pipe's read end.
    """
    # the process has exited, or the system is not Linux
    with suppress(OSError, AttributeError):
        import fcntl

        fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(reading, fcntl.F_SETOWN, pid)
        flags = fcntl.fcntl(reading, fcntl.F_GETFL)
        fcntl.fcntl(reading, fcntl.F_SETFL, flags | os.O_ASYNC)


def run(
    argv: Sequence[str], seconds: float, *, memory: int = 0, **options: "Unpack[Start]"
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program until it exits, for at most `seconds`, and return its output.

    Its input is empty. It is killed when this process exits. It gets at most `memory` bytes of
    address space, unless that is 0. Raises `OSError`, or `TimedOut`.
    """
    pipe = subprocess.PIPE
    run_options: Start = {
        "stdin": subprocess.DEVNULL,
        "stdout": pipe,
        "stderr": pipe,
        **options,
    }
    with start_bounded(argv, int(seconds) + 1, memory, **run_options) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


async def open_process(argv: Sequence[str], **options: "Unpack[Start]") -> "Process":
    """Start a program in the event loop. `argv[0]` must be an absolute path.

    A caller that is cancelled while the program starts still gets the process, and must stop
    it.
    """
    import anyio

    untyped_options: dict[str, Any] = {**options}
    process: Process | None = None
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(_absolute(argv), **untyped_options)
    assert process is not None  # a scope that only shields suppresses nothing
    return process


def limit_resources(pid: int, seconds: int = _MAX_CPU_SECONDS, memory: int = 0) -> None:
    """Let the kernel kill a process after `seconds` of CPU time, even if refold has exited.

    The process gets at most `memory` bytes of address space, unless that is 0.
    """
    # the process has exited, or the system is not Linux
    with suppress(OSError, ValueError, AttributeError):
        resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds))
        if memory:
            resource.prlimit(pid, resource.RLIMIT_AS, (memory, memory))


def _absolute(argv: Sequence[str]) -> tuple[str, ...]:
    if not os.path.isabs(argv[0]):
        raise ValueError(f"{argv[0]!r} is not an absolute path: find it with Programs")
    return tuple(argv)


def _others_can_change(path: str, *, parents: bool = True) -> str:
    """Return why users other than root and this one may be able to change a path, or "".

    `path` has no links. With `parents`, all directories above it are checked as well.
    """
    while True:
        try:
            info = os.stat(path)
        except OSError as error:
            return f"{path} cannot be looked at ({os.strerror(error.errno or 0)})"
        if info.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to another user"
        # In a sticky directory only the owner can rename a file.
        sticky = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX
        if info.st_mode & stat.S_IWOTH and not sticky:
            return f"everybody can write {path}"
        foreign_group = info.st_gid >= _FIRST_PEOPLE_GROUP and info.st_gid != os.getegid()
        if info.st_mode & stat.S_IWGRP and foreign_group:
            return f"others of its group can write {path}"
        if path == "/" or not parents:
            return ""
        path = os.path.dirname(path)


def _working_directory() -> str:
    """Return the current directory; "" if it no longer exists."""
    try:
        return os.getcwd()
    except OSError:  # the directory was deleted
        return ""


def _repository(folder: str, home: str) -> str:
    """Return the root of the repository that contains `folder`.

    Return "" if there is none, or if the repository contains the home.
    """
    while folder not in ("", "/"):
        if os.path.lexists(os.path.join(folder, ".git")):
            return "" if below(home, folder) else folder
        folder = os.path.dirname(folder) or "/"
    return ""
