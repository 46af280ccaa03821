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

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

import anyio
import msgspec
from msgspec import Raw, Struct, field

from refold.errors import BadInput, ProviderError, said_by
from refold.provider.named_file import read_whole
from refold.provider.port import Delta, Provider, Request, Stop
from refold.testing.providers import Line, Reply, ScriptedProvider, as_reply, deltas
from refold.values.messages import Text

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


class Cast:
    """`scripts` are lines by the beginning of what is said first.

    `asked` counts the requests of each talk; `holding` are beginnings of talks that get
    no answer until they are taken out of it.
    """

    def __init__(self, scripts: Mapping[str, Sequence[Line]]) -> None:
        self._scripts = scripts
        self.heard: list[Request] = []
        self.asked: dict[str, int] = {}
        self.holding: set[str] = set()
        self.waits = anyio.Event()  # somebody waits who is held

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.heard.append(request)
        name = self._name(first_words(request))
        self.asked[name] = self.asked.get(name, 0) + 1
        while name in self.holding:
            self.waits.set()
            await anyio.sleep(0.005)
        at, lines = place(request), self._scripts[name]
        if at >= len(lines):
            raise ProviderError(f"the script {name!r} has only {len(lines)} lines")
        line = lines[at]
        if isinstance(line, ProviderError):
            raise line
        for delta in deltas(as_reply(line), at):
            await anyio.lowlevel.checkpoint()
            yield delta

    def of(self, name: str) -> list[Request]:
        """The requests of this talk."""
        return [each for each in self.heard if self._name(first_words(each)) == name]

    def _name(self, words: str) -> str:
        found = [name for name in self._scripts if words.startswith(name)]
        if not found:
            raise ProviderError(f"no script begins as {words[:80]!r} does")
        return max(found, key=len)


def first_words(request: Request) -> str:
    """What was said first in the talk that this request is of."""
    messages = request.messages
    parts = messages[0].message.parts if messages else ()
    return next((part.text for part in parts if isinstance(part, Text)), "")


def place(request: Request) -> int:
    """How many answers the talk holds already."""
    return sum(each.message.role == "assistant" for each in request.messages)
