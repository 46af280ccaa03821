"""Runs cells in a thread of this process, for tests without a sandbox."""

import contextlib
import io
import pickle
import traceback
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from types import FunctionType, ModuleType
from typing import Any

import anyio
import msgspec
from msgspec import Raw

from refold.rlm.worker_port import (
    Cell,
    Host,
    HostFailed,
    ReadPart,
    VariableReport,
    Variables,
    Worker,
    WorkerLimits,
    WorkerLost,
)
from refold.rlm.worker_side.signatures import PRIMITIVE_SIGNATURES


class _Final(BaseException):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class InProcess:
    def __init__(self, functions: Mapping[str, tuple[str, ...]]) -> None:
        self._functions = functions
        self.variables: dict[str, Any] = {}
        self._lost = ""

    async def run(self, cell: str, host: Host, progress: Callable[[str], None]) -> Cell:
        names = self._names(host)
        out = io.StringIO()

        def scenario() -> Cell:
            data = {**self.variables, **names}
            try:
                with contextlib.redirect_stdout(out):
                    exec(compile(cell, "<cell>", "exec"), data)
                python_cell = Cell(out.getvalue())
            except _Final as final:
                python_cell = Cell(
                    out.getvalue(), final=Raw(msgspec.json.encode(final.value))
                )
            except WorkerLost:
                raise
            except Exception:
                last = traceback.format_exc().strip().splitlines()[-1]
                python_cell = Cell(out.getvalue() + last, failed=True)
            hidden = {*names, "__builtins__"}
            self.variables = {k: v for k, v in data.items() if k not in hidden}
            return python_cell

        return await anyio.to_thread.run_sync(scenario)

    async def set_variable(self, name: str, part: str, value: bytes) -> None:
        self.variables[name] = msgspec.json.decode(value)

    async def persist(
        self, stored_names: Collection[str]
    ) -> tuple[Variables, VariableReport]:
        saved_variables: dict[str, Any] = {}
        lost: list[tuple[str, str]] = []
        for name, value in self.variables.items():
            if isinstance(value, ModuleType | FunctionType):
                lost.append((name, f"a {type(value).__name__} cannot be kept"))
            else:
                saved_variables[name] = value
        types = tuple(
            (name, type(value).__name__) for name, value in saved_variables.items()
        )
        return Variables(pickle.dumps(saved_variables)), VariableReport(types, tuple(lost))

    async def restore(
        self, index: bytes, parts: Collection[str], read: ReadPart
    ) -> VariableReport:
        if index.startswith(b"bomb"):
            raise WorkerLost("it ran out of memory")
        self.variables = pickle.loads(index)
        return VariableReport(
            tuple((name, type(v).__name__) for name, v in self.variables.items())
        )

    async def list_variables(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, type(value).__name__) for name, value in self.variables.items())

    def _names(self, host: Host) -> dict[str, Any]:
        def final(value: object) -> None:
            raise _Final(value)

        def die(reason: str) -> None:
            raise WorkerLost(reason)

        primitives = {
            name: signature.parameters for name, signature in PRIMITIVE_SIGNATURES.items()
        }
        return {
            "FINAL": final,
            "die": die,
            "HostFailed": HostFailed,
            **{
                name: _function(name, takes, host)
                for name, takes in {**primitives, **self._functions}.items()
            },
        }


def _function(name: str, takes: tuple[str, ...], host: Host) -> Callable[..., object]:
    async def call_host(arguments: Mapping[str, object]) -> object:
        return await host(name, arguments)

    def call(*args: object, **named: object) -> object:
        data = {**dict(zip(takes, args, strict=False)), **named}
        return anyio.from_thread.run(call_host, data)

    return call


class InProcessWorkers:
    """Creates workers in this process. `made` has all of them."""

    def __init__(self) -> None:
        self.made: list[InProcess] = []
        self.limits: WorkerLimits | None = None

    @asynccontextmanager
    async def __call__(
        self, limits: WorkerLimits, functions: Mapping[str, tuple[str, ...]]
    ) -> AsyncGenerator[Worker, None]:
        self.limits = limits
        worker = InProcess(functions)
        self.made.append(worker)
        yield worker
