"""Starts a PostgreSQL server for a test, with the tables of refold.

The owner of the tables is an ordinary role, so that row-level security applies to it.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import pytest

_PROGRAMS = "initdb", "pg_basebackup", "postgres"
_UNPRIVILEGED = "nobody"  # PostgreSQL refuses to run as root
_ADMIN, _OWNER = "administrator", "refold_owner"
_START_SECONDS = 30
_OPTIONS = ["-c", "listen_addresses=", "-c", "shared_buffers=16MB"]


class Server:
    """A running server. `url` is the database with the tables of refold, for their owner."""

    def __init__(self, directory: Path, command: list[str]) -> None:
        self.directory, self._command = directory, command
        self.url = self.url_of(_OWNER)
        self._process = self._start()

    def url_of(self, role: str, database: str = "refold") -> str:
        return f"postgresql://{role}@/{database}?host={self.directory}"

    def execute(self, *statements: str, database: str = "refold") -> None:
        """Wait until the server is ready, and run these statements as the administrator."""
        with ThreadPoolExecutor(1) as pool:  # the caller may be in an event loop
            url = self.url_of(_ADMIN, database)
            pool.submit(anyio.run, _execute, url, statements).result()

    def crash(self) -> None:
        """Lose what was not flushed, as in a power failure, and start again.

        The server ends with the thread that started it.
        """
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()
        self._process = self._start()
        self.execute("select 1")

    def stop(self) -> None:
        self._process.send_signal(
            signal.SIGINT
        )  # the server then does not wait for clients
        self._process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                self._command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


@contextmanager
def postgresql_server(*roles: str) -> Generator[Server]:
    """Yield a new server whose database has the tables of refold. Skips without PostgreSQL.

    With `roles`, the server has superusers with these names instead, and no tables.
    """
    pytest.importorskip("asyncpg", reason="refold[cluster] is not installed")
    from refold.cluster.schema import migrate

    options = "-A", "trust", "-U", _ADMIN, "-E", "UTF8", "--locale=C", "--no-sync"
    with _run_server("initdb", *options, "--no-instructions") as server:
        for role in roles:
            server.execute(f"create role {role} login superuser", database="postgres")
        if not roles:
            server.execute(
                f"create role {_OWNER} login createrole",
                f"create database refold owner {_OWNER}",
                database="postgres",
            )
            migrate(server.url)
        yield server


@contextmanager
def server_of_backup(source: Server) -> Generator[Server]:
    """Yield another server, from a base backup of `source`, which runs."""
    options = "-h", str(source.directory), "-U", _ADMIN, "-X", "stream", "-c", "fast"
    with _run_server("pg_basebackup", *options) as server:
        server.execute("select 1")
        yield server


@contextmanager
def _run_server(program: str, *options: str) -> Generator[Server]:
    """Yield a server with the data that this program writes."""
    programs = _programs()
    # The path must be short, because that of a socket has at most 107 bytes, and it must not be
    # in a directory that only root can enter.
    directory = Path(tempfile.mkdtemp(prefix="refold-pg-"))
    as_user = ["setpriv", "--pdeathsig", "SIGQUIT"]
    if os.geteuid() == 0:
        shutil.chown(directory, _UNPRIVILEGED)
        as_user += ["--reuid", _UNPRIVILEGED, "--clear-groups", "--regid", "nogroup"]
    data = str(directory / "data")
    try:
        subprocess.run(
            [*as_user, programs[program], "-D", data, *options],
            check=True, cwd=directory, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        command = [*as_user, programs["postgres"], "-D", data, "-k", str(directory)]
        server = Server(directory, [*command, *_OPTIONS])
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


async def _execute(url: str, statements: tuple[str, ...]) -> None:
    connection = await _connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def _connect(url: str) -> Any:
    asyncpg: Any = import_module("asyncpg")
    with anyio.fail_after(_START_SECONDS):
        while True:
            try:
                return await asyncpg.connect(url)
            except (OSError, asyncpg.CannotConnectNowError):
                await anyio.sleep(0.05)  # the server has no other sign that it is ready


def _programs() -> dict[str, str]:
    """Return where the programs of the server are. Debian has them in no directory of PATH."""
    installed = map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
    path = os.pathsep.join((os.environ.get("PATH", ""), *installed))
    programs = {name: shutil.which(name, path=path) for name in (*_PROGRAMS, "setpriv")}
    for name, program in programs.items():
        if program is None:
            pytest.skip(f"PostgreSQL is not installed: there is no {name}")
    return {name: program for name, program in programs.items() if program}
