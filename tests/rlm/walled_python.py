"""Runs a real Python worker in a real sandbox, with a host that records its requests."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from pathlib import Path

import anyio
import msgspec

from refold.errors import JournalError
from refold.place.commands import ShellCommands
from refold.place.sandbox import find_sandbox
from refold.place.sandbox_rules import SandboxConfig
from refold.rlm.worker import PythonWorkers
from refold.rlm.worker_port import (
    Cell,
    Engine,
    HostFailed,
    VariableReport,
    Variables,
    Worker,
    WorkerLimits,
)

QUICK = WorkerLimits(seconds=20, memory=512 * 1024**2)
FUNCTIONS = {"read_file": ("path", "first"), "fails": ("why",), "echo": ("value",)}


class AnsweringHost:
    def __init__(self) -> None:
        self.heard = list[tuple[str, Mapping[str, object]]]()

    async def __call__(self, name: str, arguments: Mapping[str, object]) -> object:
        self.heard.append((name, dict(arguments)))
        match name:
            case "echo":
                return arguments["value"]
            case "fails":
                raise HostFailed(str(arguments["why"]))
            case "map_lm":
                return ["one", {"__failed__": "overloaded"}, "three"]
            case "rlm":
                return await anyio.sleep_forever()
            case _:
                return f"{name} is answered"


class Session:
    """A worker, and a host for its cells."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.host = worker, AnsweringHost()
        self.printed = list[str]()
        self.disk = dict[str, bytes]()  # parts of variables

    async def cell(self, code: str) -> Cell:
        return await self.worker.run(code, self.host, self.printed.append)

    async def text(self, code: str) -> str:
        return (await self.cell(code)).text

    async def put(self, name: str, value: object) -> None:
        data = msgspec.json.encode(value)
        part = sha256(data).hexdigest()
        self.disk[part] = data
        await self.worker.set_variable(name, part, data)

    async def persist(self) -> tuple[Variables, VariableReport]:
        variables, report = await self.worker.persist(self.disk)
        assert all(name == sha256(part).hexdigest() for name, part in variables.new.items())
        self.disk |= variables.new
        return variables, report

    async def restore(
        self, variables: Variables, disk: Mapping[str, bytes]
    ) -> VariableReport:
        async def read(name: str) -> bytes:
            if name not in disk:
                raise JournalError(f"the blob {name} is missing")
            return disk[name]

        self.disk |= disk
        return await self.worker.restore(variables.index, variables.parts, read)


@contextmanager
def workers(root: Path) -> Generator[PythonWorkers]:
    """Yield the workers as a session has them. The session creates its worker itself."""
    sandbox = find_sandbox(os.environ, SandboxConfig(roots=(str(root.resolve()),)))
    commands = ShellCommands(os.environ, lambda: sandbox)
    try:
        yield PythonWorkers(commands, str(root))
    finally:
        commands.close()


@asynccontextmanager
async def python(
    root: Path, limits: WorkerLimits = QUICK, engine: Engine = "cpython", **wish: object
) -> AsyncGenerator[Session]:
    root.mkdir(exist_ok=True)
    wanted = SandboxConfig(roots=(str(root.resolve()),), **wish)  # pyright: ignore[reportArgumentType] - as given
    sandbox = find_sandbox(os.environ, wanted)
    commands = ShellCommands(os.environ, lambda: sandbox)
    try:
        async with PythonWorkers(commands, str(root.resolve()), engine)(
            limits, FUNCTIONS
        ) as worker:
            yield Session(worker)
    finally:
        commands.close()


def run_with_session(
    root: Path,
    function: Callable[[Session], Awaitable[None]],
    limits: WorkerLimits = QUICK,
    engine: Engine = "cpython",
    **wish: object,
) -> None:
    async def main() -> None:
        async with python(root, limits, engine, **wish) as session:
            await function(session)

    anyio.run(main)


def value(cell: Cell) -> object:
    """Return the value that the code passed to FINAL."""
    assert cell.final is not None, cell.text
    return msgspec.json.decode(cell.final)
