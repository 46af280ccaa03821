"""A script in a file: answers for `--script`, one JSON object a line.

    {"text": "I look first.", "calls": [{"tool": "read_file", "arguments": {"path": "a"}}]}
    {"text": "It says hello."}

Keys: `text`, `thinking`, `calls`, `stop`, and `pause`, seconds between pieces.
Empty lines and lines that begin with # are skipped.

A line with `for` belongs to another talk, one that begins with those words: so a script
can answer for children too. Those lines go by how far that talk is.

    {"calls": [{"tool": "task", "arguments": {"prompt": "Count the tests.", "agent": "explore"}}]}
    {"for": "Count the tests.", "text": "There are 12."}
    {"text": "12 tests."}
"""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import msgspec
from msgspec import Raw, Struct, field

from refold.errors import BadInput, said_by
from refold.provider.named_file import read_whole
from refold.provider.port import Delta, Provider, Request, Stop
from refold.testing.cast import Cast, first_words, place
from refold.testing.scripted import Reply, ScriptedProvider

_MOST = 64 * 1024 * 1024  # bytes


class _Call(Struct, forbid_unknown_fields=True):
    tool: str
    arguments: Raw = Raw(b"{}")


class _Line(Struct, forbid_unknown_fields=True):
    text: str = ""
    thinking: str = ""
    calls: tuple[_Call, ...] = ()
    stop: Stop | None = None
    pause: float = 0.0
    talk: str = field(default="", name="for")


class Paced:
    """A scripted provider that takes its time."""

    def __init__(self, lines: list[_Line]) -> None:
        own = [line for line in lines if not line.talk]
        self._pauses = [line.pause for line in own]
        self._inner = ScriptedProvider(*(_reply(line) for line in own))
        self._others = dict[str, list[_Line]]()
        for line in lines:
            if line.talk:
                self._others.setdefault(line.talk, []).append(line)
        self._cast = Cast({n: [_reply(e) for e in of] for n, of in self._others.items()})

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        inner, pause = self._who(request)
        async for delta in inner.stream(request):
            if pause:
                await anyio.sleep(pause)
            yield delta

    def _who(self, request: Request) -> tuple[Provider, float]:
        words = first_words(request)
        found = max(filter(words.startswith, self._others), key=len, default="")
        if found:
            lines, at = self._others[found], place(request)
            return self._cast, lines[at].pause if at < len(lines) else 0.0
        step = len(self._inner.heard)
        return self._inner, self._pauses[step] if step < len(self._pauses) else 0.0


def load(file: Path) -> Paced:
    """Read a script. Raises `BadInput` that names the file and the line."""
    try:
        text = read_whole(file, _MOST).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the script {file} cannot be read: {said_by(error)}") from error
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
