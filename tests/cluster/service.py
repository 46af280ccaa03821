"""Starts a service: web nodes with people behind one address, and workers of tenants."""

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.abc import SocketStream

from tests.cluster.nodes import SETTINGS

_START_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Service:
    """The processes of a service. `address` leads to all web nodes."""

    def __init__(self, directory: Path, url: str, model: str) -> None:
        self._directory, self._url, self._model = directory, url, model
        self.address = f"http://127.0.0.1:{free_port()}"
        self.ports = dict[str, int]()
        self._processes = dict[str, subprocess.Popen[bytes]]()

    def start_worker(self, tenant: str, url: str = "", name: str = "") -> None:
        self._start(name or f"worker-{tenant}", "worker", tenant=tenant, url=url)

    def start_web_node(self, name: str, oidc: Path, url: str = "") -> None:
        self.ports[name] = port = free_port()
        self._start(name, "web-node", "--port", str(port), "--oidc", str(oidc), url=url)
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.05)
        raise AssertionError((self._directory / f"{name}.log").read_text())

    def kill(self, name: str) -> None:
        self.ports.pop(name, None)
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for name in tuple(self._processes):
            self.kill(name)

    async def serve_address(self) -> None:
        """Pass each connection to a web node, chosen at random."""
        choose = random.Random(43)
        port = int(self.address.rpartition(":")[2])
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)

        async def pass_on(client: SocketStream) -> None:
            async with client:
                ports = list(self.ports.values())
                with suppress(OSError):
                    node = await anyio.connect_tcp("127.0.0.1", choose.choice(ports))
                    async with node, anyio.create_task_group() as group:
                        group.start_soon(_copy, client, node)
                        await _copy(node, client)
                        group.cancel_scope.cancel()

        async with listener:
            await listener.serve(pass_on)

    def _start(self, name: str, *arguments: str, tenant: str = "", url: str = "") -> None:
        home, work = self._directory / name / "home", self._directory / name / "work"
        home.mkdir(mode=0o700, parents=True)
        work.mkdir()
        (home / "config.toml").write_text(SETTINGS)
        environ = {
            **os.environ, "REFOLD_HOME": str(home), "REFOLD_SESSIONS": url or self._url,
            "OPENAI_BASE_URL": f"{self._model}/v1", "OPENAI_API_KEY": "sk-nobody",
            "REFOLD_TENANT": tenant,
        }  # fmt: skip
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "refold", *arguments],
                cwd=work, env=environ, stdout=log, stderr=log,
            )  # fmt: skip


async def _copy(source: SocketStream, target: SocketStream) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for piece in source:
            await target.send(piece)


@asynccontextmanager
async def service(directory: Path, url: str, model: str) -> AsyncGenerator[Service]:
    """Yield a service whose processes end with the block."""
    started = Service(directory, url, model)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(started.serve_address)
            yield started
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(started.stop)
