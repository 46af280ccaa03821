"""The server of an embedded model, shared by all sessions of a user.

The first session that needs it starts it. `serve` is the process that then runs; it ends by
itself some time after the last use. A running server is found by its record, a file that
only the user can read: it has the address, and the key that each request must have.
`embedded` sends the requests.

One server serves all: of the 34 seconds of a small task, 18 went into loading the model and
reading the same instructions. Sessions hold a shared lock and the server ends when it gets
the lock alone, because a lock survives `kill -9`, and a count of sessions does not.
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

# -P: whatever lies in the directory we were started in is not imported.
SERVE_COMMAND = (sys.executable, "-P", "-m", "refold.provider.local.serve")
DEFAULT_CONTEXT_TOKENS = 8192  # each takes 28 kB of memory with the bigger model
MAX_CONTEXT_TOKENS = 32_768  # reading more takes minutes without a GPU
_MEMORY_SHARE = 0.6  # of the machine, for a model and its conversations
_MAX_LONG_REQUESTS = 2  # at once; `serve` reserves room for them
_MAX_SLOTS = 4
_SLOTS_MEMORY_BYTES = 5_500_000_000  # of the machine; with less there is one slot
_MAX_SAVED_PREFIXES = 6  # of about 10 MB each
_LOAD_TIMEOUT_SECONDS = 600.0  # a cold disk is slow
_END_TIMEOUT_SECONDS = 5.0  # for a server to end by itself
_POLL_SECONDS = 0.02
_PASSED_VARIABLES = (
    "HOME", "LANG", "PATH", "TMPDIR", "LD_LIBRARY_PATH",
    "PYTHONPATH", "PYTHONUSERBASE", "VIRTUAL_ENV",
)  # fmt: skip

_TRUNCATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Address(Struct, frozen=True):
    url: str
    key: str


class Server(Protocol):
    """Serves one model. While a `lease` is held, the server does not end by itself."""

    @property
    def running(self) -> bool: ...
    def lease(self, prefix: str = "") -> AbstractAsyncContextManager[Address]: ...


class Serving(Struct, frozen=True, kw_only=True):
    """Options for serving a model."""

    keep: float = 600.0  # seconds after the last use
    context: int = DEFAULT_CONTEXT_TOKENS
    template: str = ""  # the chat template; "": the model's own, if it has one


class SharedServer:
    """One server for each model file and set of options; its files are in `directory`."""

    def __init__(
        self,
        model: Path,
        directory: Path,
        options: Serving | None = None,
        *,
        command: Sequence[str] = SERVE_COMMAND,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._model, self._directory, self._serving_options = (
            model,
            directory,
            options or Serving(),
        )
        self._command, self._environ = tuple(command), environ
        name = f"{model.stem[:60]}-{self._fingerprint()}"
        self._record, self._use = directory / f"{name}.json", directory / f"{name}.use"
        self.log = directory / f"{name}.log"

    @property
    def running(self) -> bool:
        return _running_record(self._record) is not None

    @asynccontextmanager
    async def lease(self, prefix: str = "") -> AsyncGenerator[Address, None]:
        """The address of a server that has loaded the model; it is started if necessary.

        A new server has read `prefix` before it serves. Raises `Refused` with the server's
        last output if it does not start.
        """
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            use = open_checked(self._use, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise Refused(f"the embedded model cannot be started: {error}") from error
        try:
            await _lock(use, fcntl.LOCK_SH)  # exclusive: a server that is about to end
            record = _running_record(self._record) or await self._start_or_find(prefix)
            yield Address(record.url, record.key)
        finally:
            os.utime(use)
            os.close(use)

    async def _start_or_find(self, prefix: str) -> ServerRecord:
        starting = open_checked(self._record.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
        try:
            await _lock(starting, fcntl.LOCK_EX)
            if record := _running_record(self._record):  # another session was faster
                return record
            self._record.unlink(missing_ok=True)
            await self._start(prefix, starting)
        except OSError as error:
            raise Refused(f"the embedded model cannot be started: {error}") from error
        finally:
            os.close(starting)
        record = _running_record(self._record)
        if record is None:
            raise Refused(
                f"the embedded model's server exited at once: {self._log_tail()} (log: {self.log})"
            )
        return record

    async def _start(self, prefix: str, starting: int) -> None:
        order = ServeRequest(
            model=str(self._model),
            key=secrets.token_urlsafe(24),
            record=str(self._record),
            use=str(self._use),
            starting=starting,
            keep=self._serving_options.keep,
            context=self._serving_options.context,
            slots=_slots(),
            threads=cores(),
            template=self._serving_options.template,
            prefix=prefix,
            saved=self._saved_prefix_path(prefix),
            login=_login(self._environ),
        )
        with os.fdopen(open_checked(self.log, _TRUNCATE_FLAGS), "wb") as log:
            process = programs.start(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._model.parent,
                env=server_environment(self._environ),
                start_new_session=True,  # Ctrl+C is for us, not for it; it outlives us
                pass_fds=(starting,),
            )
        try:
            with anyio.fail_after(_LOAD_TIMEOUT_SECONDS):
                await self._await_ready(process, order)
        except TimeoutError as error:
            process.kill()
            raise Refused(
                f"the embedded model has not loaded within {_LOAD_TIMEOUT_SECONDS:g} s; see {self.log}"
            ) from error
        except BaseException:  # a cancelled start leaves nothing behind
            process.kill()
            raise
        finally:
            # So that it leaves no zombie if it ends before us.
            threading.Thread(target=process.wait, daemon=True).start()

    async def _await_ready(
        self, process: "subprocess.Popen[bytes]", order: ServeRequest
    ) -> None:
        """Send the `ServeRequest`, and wait for the line that reports readiness."""
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, suppress(BrokenPipeError):
            # Less than a pipe holds.
            process.stdin.write(msgspec.json.encode(order) + b"\n")
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
        """Identify the model file, its options and the runtime: one server has one of each."""
        try:
            about = self._model.stat()
            file = f"{about.st_size} {about.st_mtime_ns}"
        except OSError:
            file = ""
        options = (
            self._serving_options.context,
            self._serving_options.template,
            _runtime(),
            _slots(),
        )
        return hashlib.sha256(repr((str(self._model), file, options)).encode()).hexdigest()[
            :12
        ]

    def _saved_prefix_path(self, prefix: str) -> str:
        if not prefix:
            return ""
        states = self._directory / "prefixes"
        states.mkdir(mode=0o700, exist_ok=True)
        prefix_id = hashlib.sha256(prefix.encode()).hexdigest()[:12]
        saved = states / f"{self._record.stem}-{prefix_id}.bin"
        others = sorted(states.glob("*.bin"), key=lambda path: -path.stat().st_mtime)
        for old in [path for path in others if path != saved][_MAX_SAVED_PREFIXES - 1 :]:
            old.unlink(missing_ok=True)
        return str(saved)

    def _log_tail(self) -> str:
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        last_lines = [line.strip() for line in lines if line.strip()][-3:]
        return " / ".join(last_lines)[-500:] or "it said nothing"


class ServerStatus(Struct, frozen=True):
    """A server that runs. `memory` is in bytes, 0 if unknown; `idle` in seconds."""

    record: ServerRecord
    path: Path
    in_use: bool
    idle: float
    memory: int


def running_servers(directory: Path, now: float) -> Iterator[ServerStatus]:
    """The user's servers, whatever models they serve."""
    for path in sorted(directory.glob("*.json")):
        if record := _running_record(path):
            use = path.with_suffix(".use")
            idle = max(0.0, now - use.stat().st_mtime) if use.exists() else 0.0
            yield ServerStatus(record, path, _is_in_use(use), idle, _memory(record.pid))


def stop(server: ServerStatus) -> None:
    """End a server, and a response that it is computing; returns when its memory is free."""
    _kill(server.record.pid, signal.SIGTERM)
    if not _wait_for_end(server.record, _END_TIMEOUT_SECONDS):
        _kill(server.record.pid)
        _wait_for_end(server.record, _END_TIMEOUT_SECONDS)
    server.path.unlink(missing_ok=True)


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the server: paths, and none of our keys."""
    passed = {
        n: v for n, v in environ.items() if n in _PASSED_VARIABLES or n.startswith("LC_")
    }
    # Threads that spin while they wait take the cores from those that compute.
    return passed | {"OMP_WAIT_POLICY": "passive"}


def context_tokens(model: "LocalModel", memory: int) -> int:
    """The tokens of one request to a model, on a machine with `memory` bytes.

    More than `DEFAULT_CONTEXT_TOKENS` if the model and the memory allow it.
    """
    known = model.context or DEFAULT_CONTEXT_TOKENS
    if not model.token_bytes:
        return min(DEFAULT_CONTEXT_TOKENS, known)
    free_bytes = int(memory * _MEMORY_SHARE) - model.size
    tokens = free_bytes // (_MAX_LONG_REQUESTS * model.token_bytes) // 1024 * 1024
    return min(known, MAX_CONTEXT_TOKENS, max(DEFAULT_CONTEXT_TOKENS, tokens))


def machine_memory() -> int:
    """The memory of this machine in bytes; 0 if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


def cores() -> int:
    """The number of usable cores: llama.cpp is much slower with more threads."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    usable = usable or os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        usable = min(usable, max(1, int(quota) // int(period)))
    except (OSError, ValueError):  # no such limit
        pass
    return min(usable, 16)


def _slots() -> int:
    return _MAX_SLOTS if machine_memory() >= _SLOTS_MEMORY_BYTES else 1


def _runtime() -> str:
    try:
        return version("xllamacpp")
    except PackageNotFoundError:
        return ""


def _login(environ: Mapping[str, str]) -> str:
    """The directory that the system removes at the user's last logout."""
    directory = environ.get("XDG_RUNTIME_DIR", "")
    return (
        directory if directory.startswith("/run/user/") and os.path.isdir(directory) else ""
    )


def _running_record(record: Path) -> ServerRecord | None:
    try:
        running = msgspec.json.decode(record.read_bytes(), type=ServerRecord)
    except (OSError, msgspec.MsgspecError):
        return None
    return running if process_start(running.pid) == running.began else None


async def _lock(file: int, operation: int) -> None:
    """Poll for the lock: a thread that waits for one cannot be cancelled."""
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(file, operation | fcntl.LOCK_NB)
            return
        await anyio.sleep(_POLL_SECONDS)


def _is_in_use(use: Path) -> bool:
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


def _memory(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _kill(pid: int, signal_number: int = signal.SIGKILL) -> None:
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal_number)


def _wait_for_end(record: ServerRecord, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while process_start(record.pid) == record.began:
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_SECONDS)
    return True
