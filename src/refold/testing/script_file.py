"""A script in a file: answers for `--script`, one JSON object a line.

    {"text": "I look first.", "calls": [{"tool": "read_file", "arguments": {"path": "a"}}]}
    {"text": "It says hello."}

Keys: `text`, `thinking`, `calls`, `stop`, and `pause`, seconds between pieces.
Empty lines and lines that begin with # are skipped.
"""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import msgspec
from msgspec import Raw, Struct

from refold.errors import BadInput
from refold.provider.port import Delta, Request, Stop
from refold.testing.scripted import Reply, ScriptedProvider


class _Call(Struct, forbid_unknown_fields=True):
    tool: str
    arguments: Raw = Raw(b"{}")


class _Line(Struct, forbid_unknown_fields=True):
    text: str = ""
    thinking: str = ""
    calls: tuple[_Call, ...] = ()
    stop: Stop | None = None
    pause: float = 0.0


class Paced:
    """A scripted provider that takes its time."""

    def __init__(self, lines: list[_Line]) -> None:
        self._pauses = [line.pause for line in lines]
        self._inner = ScriptedProvider(*(_reply(line) for line in lines))

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        step = len(self._inner.heard)
        pause = self._pauses[step] if step < len(self._pauses) else 0.0
        async for delta in self._inner.stream(request):
            if pause:
                await anyio.sleep(pause)
            yield delta


def load(file: Path) -> Paced:
    """Read a script. Raises `BadInput` that names the file and the line."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the script {file} cannot be read: {error}") from error
    lines: list[_Line] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                lines.append(msgspec.json.decode(line, type=_Line))
            except msgspec.DecodeError as error:
                raise BadInput(f"{file}, line {number}: {error}") from error
    return Paced(lines)


def _reply(line: _Line) -> Reply:
    calls = tuple((call.tool, bytes(call.arguments).decode()) for call in line.calls)
    return Reply(line.text, calls, line.thinking, line.stop)
