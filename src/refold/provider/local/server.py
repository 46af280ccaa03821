"""The server of an embedded model: a child process, started on first use.

It exits when its stdin closes, so it ends even if refold is killed. Its output goes to a
log. `embedded` sends the requests.
"""

import importlib
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct

from refold import programs
from refold.errors import Refused
from refold.safe_open import opened

# -P: whatever lies in the directory we were started in is not imported.
COMMAND = (sys.executable, "-P", "-m", "refold.provider.local.server")
CONTEXT = 8192  # tokens; what they are kept in takes 28 kB each with the bigger model
_LOADING = 600.0  # seconds: a cold disk is slow
_PARTING = 2.0  # seconds to end by itself
_LONGEST_LINE = 4096
_PASSES = (
    "HOME", "LANG", "PATH", "TMPDIR", "LD_LIBRARY_PATH",
    "PYTHONPATH", "PYTHONUSERBASE", "VIRTUAL_ENV",
)  # fmt: skip

_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Address(Struct, frozen=True):
    url: str
    key: str


class Server(Protocol):
    """Serves one model. `start` gives where, at once if it is running already."""

    @property
    def running(self) -> bool: ...
    async def start(self) -> Address: ...
    async def stop(self) -> None: ...


class ServerProcess:
    """`log` is where llama.cpp's own words go; the file is begun anew each time.

    `template` takes the place of the model's own, which not every model came with.
    """

    def __init__(
        self,
        model: Path,
        log: Path,
        *,
        command: Sequence[str] = COMMAND,
        environ: Mapping[str, str] = os.environ,
        context: int = CONTEXT,
        template: str = "",
    ) -> None:
        self._model, self._log, self._command = model, log, tuple(command)
        self._environ, self._context, self._template = environ, context, template
        self._process: Process | None = None
        self._address = Address("", "")
        self._one_at_a_time = anyio.Lock()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> Address:
        """Load the model, if it is not loaded, and say where it is served.

        Raises `Refused` with the server's own last words if it does not start.
        """
        async with self._one_at_a_time:
            if self.running:
                return self._address
            await self._let_go()
            key = secrets.token_urlsafe(24)
            try:
                url = await self._started(key)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._let_go()
                raise
            self._address = Address(url, key)
            return self._address

    async def stop(self) -> None:
        async with self._one_at_a_time:
            await self._let_go()

    async def _started(self, key: str) -> str:
        order = Order(str(self._model), key, self._context, cores(), self._template)
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(opened(self._log, _ANEW), "wb") as log:
                self._process = process = await programs.open_process(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=self._model.parent,
                    env=server_environment(self._environ),
                    start_new_session=True,  # Ctrl+C is for us, not for it
                )
        except OSError as error:
            raise Refused(f"the embedded model cannot be started: {error}") from error
        assert process.stdin is not None
        assert process.stdout is not None
        said = BufferedByteReceiveStream(process.stdout)
        try:
            await process.stdin.send(msgspec.json.encode(order) + b"\n")
            with anyio.fail_after(_LOADING):
                return (await said.receive_until(b"\n", _LONGEST_LINE)).decode().strip()
        except TimeoutError as error:
            raise Refused(
                f"the embedded model has not loaded within {_LOADING:g} s; see {self._log}"
            ) from error
        except (
            anyio.EndOfStream,
            anyio.IncompleteRead,
            anyio.DelimiterNotFound,
            anyio.BrokenResourceError,
            UnicodeDecodeError,
        ) as error:
            raise Refused(
                f"the embedded model did not start: {_last_words(self._log)} "
                f"(the whole log: {self._log})"
            ) from error

    async def _let_go(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            await process.stdin.aclose()  # which is how it is asked to end
        with anyio.move_on_after(_PARTING):
            await process.wait()
        if process.returncode is None:
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()


def server_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The environment of the server: paths, and none of our keys."""
    passed = {n: v for n, v in ours.items() if n in _PASSES or n.startswith("LC_")}
    # Threads that spin while they wait take the cores from those that compute.
    return passed | {"OMP_WAIT_POLICY": "passive"}


def _last_words(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    said = [line.strip() for line in lines if line.strip()][-3:]
    return " / ".join(said)[-500:] or "it said nothing"


class Order(Struct, frozen=True):
    """What to serve. Requests must have `key`, because loopback is not private."""

    path: str
    key: str
    context: int  # tokens
    threads: int
    template: str = ""  # the chat template; "": the model's own


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    # From here on the only use of stdin is to end.
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    server = _serve(order)  # it stops when it is garbage-collected
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    threading.Event().wait()


def cores() -> int:
    """How many cores we may really use: llama.cpp with more threads crawls."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    usable = usable or os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        usable = min(usable, max(1, int(quota) // int(period)))
    except (OSError, ValueError):  # no such limit
        pass
    return min(usable, 16)


def _serve(order: Order) -> Any:
    llama: Any = importlib.import_module("xllamacpp")  # it has no types

    params = llama.CommonParams()
    params.model.path = order.path
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # the system chooses a free one
    params.api_keys = [order.key]
    params.cors_origins = ""  # no web page may call it
    params.n_ctx = order.context
    params.n_parallel = 1
    params.cpuparams.n_threads = order.threads
    params.cpuparams_batch.n_threads = order.threads
    params.use_jinja = True
    if order.template:
        params.chat_template = order.template
    params.ui = False
    params.endpoint_slots = False  # it would tell what was asked
    return llama.Server(params)


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
