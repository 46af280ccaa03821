"""A Temporal and a NATS server of a test's own, on loopback. They end with the process that started
them, and they can be killed and started again on their port.

Temporal is the development server, with its state in a file. Both programs come with packages that
`uv.lock` pins by hash.
"""

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

_START_SECONDS = 60


class LoopbackServer:
    """A program that listens on a port of its own."""

    def __init__(self, directory: Path, command: Sequence[str], port: int) -> None:
        self._directory, self._command, self.port = directory, command, port
        self.address = f"127.0.0.1:{port}"
        self.start()

    def start(self) -> None:
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "SIGKILL", *self._command],
                cwd=self._directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        until = time.monotonic() + _START_SECONDS
        while not self._listens:
            log_text = (self._directory / "log").read_text(errors="replace")
            assert self._process.poll() is None, log_text
            assert time.monotonic() < until, log_text
            time.sleep(0.05)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    @property
    def _listens(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def temporal_server() -> Generator[LoopbackServer]:
    port = _free_port()
    options = [
        "server",
        "start-dev",
        "--headless",
        "--ip",
        "127.0.0.1",
        "--log-level",
        "error",
    ]
    command = [_program("temporal"), *options, "--port", str(port)]
    with _directory() as directory:
        file = str(directory / "temporal.db")
        server = LoopbackServer(directory, [*command, "--db-filename", file], port)
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def nats_server(configuration: str = "") -> Generator[LoopbackServer]:
    """`configuration` has users and what they may do, in the language of NATS."""
    port = _free_port()
    with _directory() as directory:
        file = directory / "nats.conf"
        file.write_text(f"listen: 127.0.0.1:{port}\n{configuration}\n")
        server = LoopbackServer(directory, [_program("nats-server"), "-c", str(file)], port)
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def _directory() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="refold-cluster-") as directory:
        yield Path(directory)


def _program(name: str) -> str:
    program = shutil.which(name, path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip(f"{name} is not installed: it comes with `make test-peers`")
    return program


def _free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]
