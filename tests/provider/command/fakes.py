"""Writes small programs in place of other agents' command lines, and asks them."""

import os
import sys
from collections.abc import Collection, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import msgspec

from refold.provider.command.backend import CommandLine
from refold.provider.command.backends import connect
from refold.provider.command.spec import (
    CommandSpec,
    Counts,
    ProgramOutput,
    ProgramTimeouts,
    json_paths,
)
from refold.provider.port import Delta, Provider, Request, TextDelta
from refold.values.growing import Log
from refold.values.messages import Message, Role, StoredMessage, Text

JSONL = ProgramOutput(
    "jsonl",
    text=json_paths("say"),
    whole=json_paths("whole"),
    thinking=json_paths("think"),
    error=json_paths("error.message"),
    end=json_paths("end"),
    model=json_paths("model"),
    stop=json_paths("stop"),
    stops={"full": "length"},
    cost=json_paths("cost"),
    counts=Counts(
        json_paths("usage.in"),
        json_paths("usage.hit"),
        (),
        json_paths("usage.out"),
        inclusive=True,
    ),
)


def write_python_program(place: Path, body: str, name: str = "agent") -> Path:
    """Write a Python program, and return its path."""
    path = place / name
    path.write_text(f"#!{sys.executable} -IS\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def write_shell_program(place: Path, body: str, name: str = "agent") -> Path:
    """Write a shell program, and return its path."""
    path = place / name
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def spec(program: Path, *arguments: str, **fields: Any) -> CommandSpec:
    data = {"name": "fake", "label": "Fake", "tools": "none", **fields}
    return CommandSpec(argv=(str(program), *arguments), **data)


def make_command_line(
    spec: CommandSpec,
    model: str = "",
    timeouts: ProgramTimeouts | None = None,
    secrets: Collection[str] = (),
    **environ: str,
) -> CommandLine:
    timeouts = timeouts or ProgramTimeouts(5.0, 1.0, 1.0)
    data = {**os.environ, **environ}
    return connect(spec, model, environ=data, secrets=secrets, timeouts=timeouts)


def request(*words: str, **fields: Any) -> Request:
    """Return a conversation: the user and the model in turns, and the user last."""
    roles: tuple[Role, Role] = ("user", "assistant")
    spoken = [
        StoredMessage(n + 1, Message(roles[n % 2], (Text(text),)))
        for n, text in enumerate(words)
    ]
    return Request(Log(spoken), **fields)


def ask(provider: Provider, asked: Request | None = None) -> list[Delta]:
    async def inside() -> list[Delta]:
        async with aclosing(provider.stream(asked or request("Hello?"))) as deltas:
            return [delta async for delta in deltas]

    return anyio.run(inside)


def words(deltas: list[Delta]) -> str:
    return "".join(d.text for d in deltas if isinstance(d, TextDelta))


def lines(*documents: Mapping[str, Any]) -> str:
    """Return shell code that prints these documents as JSON lines."""
    whole = b"".join(msgspec.json.encode(d) + b"\n" for d in documents).decode()
    return f"cat <<'END'\n{whole}END"


def list_processes(marker: str) -> list[int]:
    """Return the ids of processes with this word in their command lines, without zombies."""
    pids = list[int]()
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if marker.encode() in line and int(entry.name) != os.getpid():
            pids.append(int(entry.name))
    return pids
