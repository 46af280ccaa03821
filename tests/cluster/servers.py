"""Starts a Temporal, a NATS and an S3 server for a test, on loopback.

The servers end with the process that started them. They can be killed and started again on their port.

Temporal is the development server, with its state in a file. Both programs come with packages that
`uv.lock` pins by hash.
"""

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

_START_SECONDS = 60
S3_KEY, S3_SECRET = "refold-key", "refold-secret"


class LoopbackServer:
    """A program that listens on a port of its own.

    It ends with the thread that started it, so a thread of a pool must not start it.
    """

    def __init__(self, directory: Path, command: Sequence[str], port: int) -> None:
        self._directory, self._command, self.port = directory, command, port
        self.address = f"127.0.0.1:{port}"
        self.start()

    def start(self) -> None:
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "SIGKILL", *self._command],
                cwd=self._directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def wait_until_ready(self) -> None:
        until = time.monotonic() + _START_SECONDS
        while not self._listens:
            log_text = (self._directory / "log").read_text(errors="replace")
            assert self._process.poll() is None, log_text
            assert time.monotonic() < until, log_text
            time.sleep(0.05)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def forget(self) -> None:
        """Lose its state, as if another server were started."""
        self.kill()
        for file in self._directory.glob("*.db*"):
            file.unlink()
        self.start()

    @property
    def _listens(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def temporal_server() -> Generator[LoopbackServer]:
    port = free_port()
    settings = (
        "enableFairness=true",
        "numTaskqueueReadPartitions=1",  # fairness holds within a partition
        "numTaskqueueWritePartitions=1",
    )
    options = [
        "server",
        "start-dev",
        "--headless",
        "--ip",
        "127.0.0.1",
        "--log-level",
        "error",
        *(
            word
            for setting in settings
            for word in ("--dynamic-config-value", f"matching.{setting}")
        ),
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
    """Yield a NATS server. `configuration` has its users and their rights."""
    port = free_port()
    with _directory() as directory:
        file = directory / "nats.conf"
        file.write_text(f"listen: 127.0.0.1:{port}\n{configuration}\n")
        server = LoopbackServer(directory, [_program("nats-server"), "-c", str(file)], port)
        try:
            yield server
        finally:
            server.kill()


class S3Server(LoopbackServer):
    """SeaweedFS, with one login, which may also create buckets."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the variables that a process needs to use the server, without the bucket."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.address}", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": S3_KEY, "AWS_SECRET_ACCESS_KEY": S3_SECRET,
        }  # fmt: skip


@contextmanager
def s3_server() -> Generator[S3Server]:
    login = {"accessKey": S3_KEY, "secretKey": S3_SECRET}
    users = [{"name": "refold", "credentials": [login], "actions": ["Admin", "Read", "Write", "List"]}]  # fmt: skip
    with _directory() as directory:
        file = directory / "s3.json"
        file.write_text(json.dumps({"identities": users}))
        ports = {part: _low_port() for part in ("s3", "filer", "master", "volume")}
        listens = [f"-{part}.port={port}" for part, port in ports.items()]
        server = S3Server(
            directory,
            [
                _program("weed"), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={directory}",
                "-s3", f"-s3.config={file}", "-volume.max=20", "-master.volumeSizeLimitMB=64",
                "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
                f"-s3.localSocket={directory}/s3", f"-filer.localSocket={directory}/filer", *listens,
            ],
            ports["s3"],
        )  # fmt: skip
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


def _low_port() -> int:
    """Return a free port whose number plus 10,000 is a port, because SeaweedFS uses both."""
    while (port := free_port()) + 10_000 >= 65_536:
        pass
    return port


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]
