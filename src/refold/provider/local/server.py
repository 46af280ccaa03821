"""Finds or starts the server of an embedded model, which all sessions of a user share.

The first session that needs the server starts it. `serve` is its process, which exits some time
after the last use. A running server is found by its record, a file that only the user can read;
it has the address, and the key that each request must have. `embedded` sends the requests.

Sharing saves time: of the 34 seconds of a small task, 18 were spent on loading the model and
reading the same instructions. Sessions hold a shared lock, and the server exits when it gets
the exclusive lock. Unlike a count of sessions, a lock is correct even after `kill -9`.
"""

import fcntl
import hashlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio
import msgspec
from msgspec import Struct

from refold import programs
from refold.errors import Refused
from refold.provider.local.serve import ServeRequest, ServerRecord, process_start
from refold.safe_open import open_checked

if TYPE_CHECKING:
    from refold.provider.local.models import LocalModel

# -P: modules in the directory in which refold was started are not imported.
SERVE_COMMAND = (sys.executable, "-P", "-m", "refold.provider.local.serve")
DEFAULT_CONTEXT_TOKENS = 8192  # each token takes 28 kB of memory with the larger model
MAX_CONTEXT_TOKENS = 32_768  # reading more takes minutes without a GPU
_MEMORY_SHARE = 0.6  # the share of the machine's memory for a model and its conversations
_MAX_LONG_REQUESTS = 2  # at the same time; `serve` reserves room for them
_MAX_STEM_CHARS = 60  # of the model's file in the names of our files
_MAX_SLOTS = 4
_MAX_THREADS = 16  # of llama.cpp, even if there are more cores
_SLOTS_MEMORY_BYTES = 5_500_000_000  # a machine with less memory gets one slot
_MAX_SAVED_PREFIXES = 6  # each of about 10 MB
_LOAD_TIMEOUT_SECONDS = 600.0  # a cold disk is slow
_END_TIMEOUT_SECONDS = 5.0  # for a server to exit by itself
_POLL_SECONDS = 0.02
_LOG_TAIL_LINES = 3  # the lines of the log in an error message
_MAX_LOG_TAIL_CHARS = 500  # at most so long is their text
_PASSED_VARIABLES = (
    "HOME", "LANG", "PATH", "TMPDIR", "LD_LIBRARY_PATH",
    "PYTHONPATH", "PYTHONUSERBASE", "VIRTUAL_ENV",
)  # fmt: skip

_TRUNCATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Address(Struct, frozen=True):
    url: str
    key: str


class Server(Protocol):
    """The server of one model. It does not exit by itself while a session holds a `lease`.

    `lease` starts it if necessary, and yields its address. A new server first reads `prefix`.
    """

    @property
    def running(self) -> bool: ...
    def lease(self, prefix: str = "") -> AbstractAsyncContextManager[Address]: ...


class Serving(Struct, frozen=True, kw_only=True):
    """Options with which a model is served."""

    keep: float = 600.0  # seconds after the last use
    context: int = DEFAULT_CONTEXT_TOKENS
    template: str = ""  # the chat template; "": the model's own, if it has one


class SharedServer:
    """The server of a model file with certain options. Its record is in `directory`."""

    def __init__(
        self,
        model: Path,
        directory: Path,
        options: Serving | None = None,
        *,
        command: Sequence[str] = SERVE_COMMAND,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._model, self._directory = model, directory
        self._serving_options = options or Serving()
        self._command, self._environ = tuple(command), environ
        name = f"{model.stem[:_MAX_STEM_CHARS]}-{self._fingerprint()}"
        self._record_path = directory / f"{name}.json"
        self._use_path = directory / f"{name}.use"
        self.log = directory / f"{name}.log"

    @property
    def running(self) -> bool:
        return _running_record(self._record_path) is not None

    @asynccontextmanager
    async def lease(self, prefix: str = "") -> AsyncGenerator[Address, None]:
        """Yield the address of a server that has loaded the model, starting it if necessary.

        A new server first reads the system text `prefix`. Raises `Refused` if it does not
        start, with the end of its log.
        """
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            use_lock = open_checked(self._use_path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise Refused(f"the embedded model cannot be started: {error}") from error
        try:
            # A server that is about to exit has the exclusive lock.
            await _acquire_lock(use_lock, fcntl.LOCK_SH)
            record = _running_record(self._record_path) or await self._start_or_find(prefix)
            yield Address(record.url, record.key)
        finally:
            os.utime(use_lock)  # the server exits some time after the last use
            os.close(use_lock)

    async def _start_or_find(self, prefix: str) -> ServerRecord:
        """Return the server's record. Start the server if no other session has done so.

        Raises `Refused`.
        """
        start_lock = open_checked(
            self._record_path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT
        )
        try:
            await _acquire_lock(start_lock, fcntl.LOCK_EX)
            # Another session may have started it first.
            if record := _running_record(self._record_path):
                return record
            self._record_path.unlink(missing_ok=True)
            await self._start(prefix, start_lock)
        except OSError as error:
            raise Refused(f"the embedded model cannot be started: {error}") from error
        finally:
            os.close(start_lock)
        record = _running_record(self._record_path)
        if record is None:
            raise Refused(
                f"the embedded model's server exited at once: {self._log_tail()} (log: {self.log})"
            )
        return record

    async def _start(self, prefix: str, start_lock: int) -> None:
        """Start a server and wait until it is ready.

        `start_lock` is the descriptor of the lock that prevents a second start.
        """
        serve_request = ServeRequest(
            model=str(self._model),
            key=secrets.token_urlsafe(24),
            record=str(self._record_path),
            use=str(self._use_path),
            starting=start_lock,
            keep=self._serving_options.keep,
            context=self._serving_options.context,
            slots=_slots(),
            threads=cores(),
            template=self._serving_options.template,
            prefix=prefix,
            saved=self._saved_prefix_path(prefix),
            login=_login_directory(self._environ),
        )
        with os.fdopen(open_checked(self.log, _TRUNCATE_FLAGS), "wb") as log:
            process = programs.start(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._model.parent,
                env=server_environment(self._environ),
                # Ctrl+C must not reach the server, which outlives us
                start_new_session=True,
                pass_fds=(start_lock,),
            )
        try:
            with anyio.fail_after(_LOAD_TIMEOUT_SECONDS):
                await self._await_ready(process, serve_request)
        except TimeoutError as error:
            process.kill()
            raise Refused(
                f"the embedded model has not loaded within {_LOAD_TIMEOUT_SECONDS:g} s; see {self.log}"
            ) from error
        except BaseException:  # a cancelled start leaves no process behind
            process.kill()
            raise
        finally:
            # This avoids a zombie if the server exits before us.
            threading.Thread(target=process.wait, daemon=True).start()

    async def _await_ready(
        self, process: "subprocess.Popen[bytes]", serve_request: ServeRequest
    ) -> None:
        """Send the `ServeRequest` to a new process, and wait until it reports readiness."""
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, suppress(BrokenPipeError):
            # The message is smaller than the buffer of a pipe.
            process.stdin.write(msgspec.json.encode(serve_request) + b"\n")
        line = b""
        with process.stdout as stdout:
            while not line.endswith(b"\n"):
                await anyio.wait_readable(stdout)
                piece = os.read(stdout.fileno(), 4096)
                if not piece:
                    raise Refused(
                        f"the embedded model did not start: {self._log_tail()} "
                        f"(the whole log: {self.log})"
                    )
                line += piece

    def _fingerprint(self) -> str:
        """Return an id for the model file, the options and the runtime of a server."""
        try:
            status = self._model.stat()
            file = f"{status.st_size} {status.st_mtime_ns}"
        except OSError:
            file = ""
        options = (
            self._serving_options.context,
            self._serving_options.template,
            _runtime(),
            _slots(),
        )
        text = repr((str(self._model), file, options))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def _saved_prefix_path(self, prefix: str) -> str:
        """Return the path for the model's state after reading `prefix`, or "" without a prefix.

        The oldest saved states are deleted if there are too many.
        """
        if not prefix:
            return ""
        states = self._directory / "prefixes"
        states.mkdir(mode=0o700, exist_ok=True)
        prefix_id = hashlib.sha256(prefix.encode()).hexdigest()[:12]
        saved = states / f"{self._record_path.stem}-{prefix_id}.bin"
        other_states = [path for path in states.glob("*.bin") if path != saved]
        other_states.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for old_state in other_states[_MAX_SAVED_PREFIXES - 1 :]:
            old_state.unlink(missing_ok=True)
        return str(saved)

    def _log_tail(self) -> str:
        """Return the last lines of the server's log, for an error message."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        last_lines = [line.strip() for line in lines if line.strip()][-_LOG_TAIL_LINES:]
        return " / ".join(last_lines)[-_MAX_LOG_TAIL_CHARS:] or "it said nothing"


class ServerStatus(Struct, frozen=True):
    """A running server, its use and its memory in bytes (0 if unknown).

    `idle` is the time in seconds since the last use.
    """

    record: ServerRecord
    path: Path
    in_use: bool
    idle: float
    memory: int


def running_servers(directory: Path, now: float) -> Iterator[ServerStatus]:
    """Yield the running servers whose records are in `directory`, for all models."""
    for path in sorted(directory.glob("*.json")):
        if record := _running_record(path):
            use = path.with_suffix(".use")
            idle = max(0.0, now - use.stat().st_mtime) if use.exists() else 0.0
            yield ServerStatus(
                record, path, _is_in_use(use), idle, _memory_bytes(record.pid)
            )


def stop(server: ServerStatus) -> None:
    """Stop a server, even during a response. Return when its memory is free."""
    _kill(server.record.pid, signal.SIGTERM)
    if not _wait_for_end(server.record, _END_TIMEOUT_SECONDS):
        _kill(server.record.pid)
        _wait_for_end(server.record, _END_TIMEOUT_SECONDS)
    server.path.unlink(missing_ok=True)


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for the server: variables with paths, and no keys."""
    passed = {
        name: value
        for name, value in environ.items()
        if name in _PASSED_VARIABLES or name.startswith("LC_")
    }
    # Threads that spin while they wait would take cores from threads that compute.
    return passed | {"OMP_WAIT_POLICY": "passive"}


def context_tokens(model: "LocalModel", memory: int) -> int:
    """Return how many tokens one request may have, on a machine with `memory` bytes.

    It is at most the limit of the model, and exceeds `DEFAULT_CONTEXT_TOKENS` only if the
    memory allows that.
    """
    model_limit = model.context or DEFAULT_CONTEXT_TOKENS
    if not model.token_bytes:  # how much memory a token takes is not known
        return min(DEFAULT_CONTEXT_TOKENS, model_limit)
    free_bytes = int(memory * _MEMORY_SHARE) - model.size
    tokens = free_bytes // (_MAX_LONG_REQUESTS * model.token_bytes)
    tokens = tokens // 1024 * 1024  # a round number
    return min(model_limit, MAX_CONTEXT_TOKENS, max(DEFAULT_CONTEXT_TOKENS, tokens))


def machine_memory() -> int:
    """Return the memory of this machine in bytes, or 0 if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


def cores() -> int:
    """Return the number of usable cores. With more threads, llama.cpp is much slower."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    usable = allowed or os.cpu_count() or 1
    try:  # a container may have the time of fewer cores
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        usable = min(usable, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass  # there is no limit
    return min(usable, _MAX_THREADS)


def _slots() -> int:
    """Return the number of requests that a server computes at the same time on this machine."""
    return _MAX_SLOTS if machine_memory() >= _SLOTS_MEMORY_BYTES else 1


def _runtime() -> str:
    """Return the version of the installed package of llama.cpp, or "" without one."""
    try:
        return version("xllamacpp")
    except PackageNotFoundError:
        return ""


def _login_directory(environ: Mapping[str, str]) -> str:
    """Return the directory that the system deletes at the user's last logout, or ""."""
    directory = environ.get("XDG_RUNTIME_DIR", "")
    is_login_directory = directory.startswith("/run/user/") and os.path.isdir(directory)
    return directory if is_login_directory else ""


def _running_record(path: Path) -> ServerRecord | None:
    """Read a record. Return None if there is none or if its server no longer runs."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=ServerRecord)
    except (OSError, msgspec.MsgspecError):
        return None
    # Another process may have the number of one that has exited.
    return record if process_start(record.pid) == record.began else None


async def _acquire_lock(file: int, operation: int) -> None:
    """Poll for a lock, because a thread that waits for a lock cannot be cancelled."""
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(file, operation | fcntl.LOCK_NB)
            return
        await anyio.sleep(_POLL_SECONDS)


def _is_in_use(use: Path) -> bool:
    """Whether a session uses the server, and so holds the shared lock on this file."""
    try:
        file = open_checked(use, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _memory_bytes(pid: int) -> int:
    """Return the memory in bytes that a process uses, or 0 if unknown."""
    try:
        _, pages, *_ = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _kill(pid: int, signal_number: int = signal.SIGKILL) -> None:
    """Send a signal to a process, unless it has exited or `pid` is 0."""
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal_number)


def _wait_for_end(record: ServerRecord, seconds: float) -> bool:
    """Wait until the server has exited. Return False if it still runs after `seconds`."""
    until = time.monotonic() + seconds
    while process_start(record.pid) == record.began:
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_SECONDS)
    return True
