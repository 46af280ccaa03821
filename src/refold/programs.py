"""Finds and starts the programs that refold runs itself, outside any sandbox.

A workspace may be on the user's PATH: an activated `.venv/bin`, `node_modules/.bin`, or
`.`. A program that writes there could plant a `bwrap` or a `git` for refold to find. So a
program is accepted only if no one but root and the user can change it or what leads to it,
and never below a directory that the workspace or a command can write. No other module
starts a program (`tests/test_house_rules.py` checks that); what a command may run inside
the sandbox is not decided here.

A fixed system PATH instead would miss Homebrew, nix and `~/.local/bin`, and a check of
`bwrap` alone would leave git, ripgrep and pagers.
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
_MOST_LINKS = 40  # as the kernel counts
_OF_PEOPLE = 1000  # the first number that systems give to the groups of people
_OF_LIBRARIES = ("LD_", "DYLD_")
_LONGEST = 120  # seconds that a bounded program may compute

TimedOut = subprocess.TimeoutExpired


class Programs:
    """Finds programs that can be trusted while `writable` are the directories of a
    workspace.

    Directories are absolute. The one that refold was started in counts as well, and the
    repository around each: they came from where the workspace came from. Later searches,
    for an editor or a pager, need not know of the workspace: it counts for all.
    """

    _of_all: ClassVar[dict[str, None]] = {}

    def __init__(self, environ: Mapping[str, str], writable: Sequence[str] = ()) -> None:
        home = os.path.realpath(environ.get("HOME") or "/nonexistent")
        directory = _working_directory()
        folders = [*writable, *([] if below(home, directory) else [directory])]
        folders += [_repository(path, home) for path in folders]
        self._writable = tuple(dict.fromkeys(p for p in folders if p and p != "/"))
        self._of_all.update(dict.fromkeys(p for p in writable if p != "/"))
        entries = filter(os.path.isabs, environ.get("PATH", "").split(":"))
        self._folders = tuple(dict.fromkeys(entries)) or SYSTEM
        self._found = dict[str, str]()

    def find(self, name: str) -> str:
        """The absolute path of the program; "" if there is none to trust.

        It is looked up once, and again when it no longer exists. An absolute path is
        accepted as it is: the user named this very file.
        """
        known = self._found.get(name, "")
        if not known or not os.path.exists(known):
            trusted = (p for p in self._places(name) if p == name or not self.distrusted(p))
            known = self._found[name] = next(trusted, "")
        return known

    def require(self, name: str) -> str:
        """Find the program. Raises `BadInput` that says why there is none."""
        if program := self.find(name):
            return program
        for path, why in self.skipped_programs(name):
            raise BadInput(
                f"{path} is not run, because {why}; give the path of another one"
            )
        raise BadInput(f"there is no program {name!r}: install it, or put it on your PATH")

    def skipped_programs(self, name: str) -> list[tuple[str, str]]:
        """Programs of this name that come before the one used, each with why it is not."""
        used, entries = self.find(name), list[tuple[str, str]]()
        for path in self._places(name):
            if path == used:
                break
            entries.append((path, self.distrusted(path)))
        return entries

    def _places(self, name: str) -> Iterator[str]:
        if "/" in name:
            paths = [os.path.abspath(name)]
        else:
            paths = [os.path.join(folder, name) for folder in self._folders if name]
        return (p for p in paths if os.path.isfile(p) and os.access(p, os.X_OK))

    @property
    def path(self) -> str:
        """A PATH for what these programs start: its directories can be trusted alike."""
        folders = dict.fromkeys((*self._folders, *SYSTEM))
        return ":".join(f for f in folders if os.path.isdir(f) and not self.distrusted(f))

    def distrusted(self, path: str) -> str:
        """Why this file or directory cannot be trusted; "" if it can.

        Every link on the way is checked where it is: one that others can change leads
        wherever they want.
        """
        for _ in range(_MOST_LINKS):
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
        for directory in dict.fromkeys((*self._writable, *self._of_all)):
            if below(path, directory) or below(path, os.path.realpath(directory)):
                return f"it lies in {directory}, which commands or others can write"
        return ""


if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    from anyio.abc import Process

    class Start(TypedDict, total=False):
        """How a program is started: as in `subprocess.Popen`."""

        cwd: str | os.PathLike[str] | None
        env: Mapping[str, str] | None
        stdin: int | IO[bytes] | None
        stdout: int | IO[bytes] | None
        stderr: int | IO[bytes] | None
        start_new_session: bool
        pass_fds: Sequence[int]


def without_loader_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that make the system load libraries from
    elsewhere.

    They may name a workspace, or be empty: that means the current directory.
    """
    return {n: value for n, value in environ.items() if not n.startswith(_OF_LIBRARIES)}


def start(argv: Sequence[str], **how: "Unpack[Start]") -> "subprocess.Popen[bytes]":
    """Start a program. `argv[0]` is absolute. Raises `OSError`."""
    options: dict[str, Any] = {**how, "text": False}
    return cast("subprocess.Popen[bytes]", subprocess.Popen(_absolute(argv), **options))


def start_detached(
    arguments: Sequence[str], environ: Mapping[str, str]
) -> "subprocess.Popen[bytes] | None":
    """Start refold itself, in a process that outlives this one; None if that is impossible.

    Nothing waits for the process, and its output is dropped.
    """
    if not sys.executable:
        return None
    # -P: nothing that lies in a directory somewhere is taken for a module of ours.
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
    Thread(target=process.wait, daemon=True).start()  # so that it leaves no zombie
    return process


def start_bounded(
    argv: Sequence[str],
    seconds: int = _LONGEST,
    memory: int = 0,
    **options: "Unpack[Start]",
) -> "subprocess.Popen[bytes]":
    """Like `start`, but the kernel kills the process when this one has exited, even by kill
    -9, or when it has used `seconds` of CPU time. It gets at most `memory` bytes, if given.
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
    """Have the kernel kill `pid`, which has this pipe open, when no process can write to it."""
    with suppress(OSError, AttributeError):  # gone, or no Linux
        import fcntl

        fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(reading, fcntl.F_SETOWN, pid)
        flags = fcntl.fcntl(reading, fcntl.F_GETFL)
        fcntl.fcntl(reading, fcntl.F_SETFL, flags | os.O_ASYNC)


def run(
    argv: Sequence[str], seconds: float, *, memory: int = 0, **options: "Unpack[Start]"
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program to its end, for at most `seconds`, and return its output. Its input is
    empty.

    It ends with this process, and has no more than
    `memory` bytes of address space, if that is given. Raises `OSError`, and `TimedOut`.
    """
    pipe = subprocess.PIPE
    reading: Start = {
        "stdin": subprocess.DEVNULL,
        "stdout": pipe,
        "stderr": pipe,
        **options,
    }
    with start_bounded(argv, int(seconds) + 1, memory, **reading) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


async def open_process(argv: Sequence[str], **how: "Unpack[Start]") -> "Process":
    """Like `start`, for callers in the event loop. `argv[0]` is absolute.

    A caller that is cancelled meanwhile gets the process, too, and ends it.
    """
    import anyio

    options: dict[str, Any] = {**how}
    process: Process | None = None
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(_absolute(argv), **options)
    assert process is not None  # a scope that only shields suppresses nothing
    return process


def limit_resources(pid: int, seconds: int = _LONGEST, memory: int = 0) -> None:
    """The kernel ends a process that computes longer, even if refold has ended."""
    with suppress(OSError, ValueError, AttributeError):  # gone, or no Linux
        resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds))
        if memory:
            resource.prlimit(pid, resource.RLIMIT_AS, (memory, memory))


def _absolute(argv: Sequence[str]) -> tuple[str, ...]:
    if not os.path.isabs(argv[0]):
        raise ValueError(f"{argv[0]!r} is not an absolute path: find it with Programs")
    return tuple(argv)


def _others_can_change(path: str, *, parents: bool = True) -> str:
    """Whether other users can change a path. `path` is real. With `parents` all directories
    above it are checked as well.
    """
    while True:
        try:
            info = os.stat(path)
        except OSError as error:
            return f"{path} cannot be looked at ({os.strerror(error.errno or 0)})"
        if info.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to another user"
        # In a sticky directory only the owner renames a file.
        sticky = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX
        if info.st_mode & stat.S_IWOTH and not sticky:
            return f"everybody can write {path}"
        theirs = info.st_gid >= _OF_PEOPLE and info.st_gid != os.getegid()
        if info.st_mode & stat.S_IWGRP and theirs:
            return f"others of its group can write {path}"
        if path == "/" or not parents:
            return ""
        path = os.path.dirname(path)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _repository(folder: str, home: str) -> str:
    """The root of the repository of `folder`; "" if there is none, or if home is in it."""
    while folder not in ("", "/"):
        if os.path.lexists(os.path.join(folder, ".git")):
            return "" if below(home, folder) else folder
        folder = os.path.dirname(folder) or "/"
    return ""
