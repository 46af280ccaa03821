"""Providers for tests: one with a script, one that fails on purpose, a strict wrapper."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import msgspec
from msgspec import Raw, Struct, field

from refold.errors import BadInput, ProviderError, Refused, said_by
from refold.provider.named_file import read_whole
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Provider,
    Request,
    RequestSent,
    ResponseBytes,
    Stop,
    TextDelta,
    ThinkingDelta,
)
from refold.values.messages import Message, Text, ToolResult
from refold.values.usage import Usage


class Reply(Struct, frozen=True):
    """One response: thinking, text, and calls (a tool's name, JSON arguments)."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    thinking: str = ""
    stop: Stop | None = None
    usage: Usage | None = None
    paused: bool = False


Line = str | Sequence[tuple[str, str]] | Reply | ProviderError


class ScriptedProvider:
    """Answers the n-th request with the n-th line.

    A line is text, or calls, or a whole `Reply`, or an error to raise. Every response is split
    into single characters, and can be cancelled at each: code that works only with whole
    responses fails here first.
    """

    def __init__(self, *lines: Line) -> None:
        self._lines = lines
        self.heard: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        step = len(self.heard)
        self.heard.append(request)
        if step >= len(self._lines):
            raise ProviderError(f"the script has only {_lines(self._lines)}")
        line = self._lines[step]
        if isinstance(line, ProviderError):
            raise line
        reply = as_reply(line)
        for delta in deltas(reply, step):
            await anyio.lowlevel.checkpoint()
            yield delta


def _lines(lines: Sequence[object]) -> str:
    return "1 line" if len(lines) == 1 else f"{len(lines)} lines"


def as_reply(line: "str | Sequence[tuple[str, str]] | Reply") -> Reply:
    match line:
        case Reply():
            return line
        case str():
            return Reply(line)
        case _:
            return Reply(calls=tuple(line))


def deltas(reply: Reply, step: int) -> list[Delta]:
    """`reply` as it would arrive, one character at a time."""
    found: list[Delta] = [ThinkingDelta(c) for c in reply.thinking]
    found += [TextDelta(c) for c in reply.text]
    for n, (name, arguments) in enumerate(reply.calls):
        found.append(CallDelta(n, "", f"theirs-{step}-{n}", name))
        found += [CallDelta(n, c) for c in arguments]
    words = len(reply.text) + sum(len(a) for _, a in reply.calls)
    usage = reply.usage or Usage(fresh=10, output=words)
    stop: Stop = reply.stop or ("calls" if reply.calls else "end")
    return [*found, Done(usage, stop, paused=reply.paused)]


# "silence": no Done, no error. "hang": never goes on. "same ids": every call comes
# under one id. "garbled": arguments break off in the middle, and still it ends well.
Fault: TypeAlias = ProviderError | Literal["silence", "hang", "same ids", "garbled"]


class FaultyProvider:
    """Says `line` to the first `times` requests with the fault, to later ones without."""

    def __init__(self, line: Line, *, fault: Fault, after: int = 0, times: int = 1) -> None:
        if isinstance(line, ProviderError):
            raise TypeError("the line is what it says; give the error as `fault`")
        self._reply = as_reply(line)
        self._fault, self._after, self._times = fault, after, times
        self.heard: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.heard.append(request)
        faulty = len(self.heard) <= self._times
        reply = self._reply
        if faulty and self._fault == "garbled":
            cut = tuple((name, arguments[:-1]) for name, arguments in reply.calls)
            reply = Reply(reply.text, cut, reply.thinking, reply.stop, reply.usage)
        said = deltas(reply, len(self.heard) - 1)
        for n, delta in enumerate(said):
            await anyio.lowlevel.checkpoint()
            if faulty and n == self._after:
                if isinstance(self._fault, ProviderError):
                    raise self._fault
                if self._fault == "silence":
                    return
                if self._fault == "hang":
                    await anyio.sleep_forever()
            yield _renamed(delta) if faulty and self._fault == "same ids" else delta


def _renamed(delta: Delta) -> Delta:
    match delta:
        case CallDelta(index, arguments, id_, name) if id_:
            return CallDelta(index, arguments, "theirs", name)
        case _:
            return delta


class StrictProvider:
    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        check_history(spoken.message for spoken in request.messages)
        if not request.messages or request.messages[-1].message.role == "assistant":
            raise Refused("there is nothing to answer")
        async with aclosing(self._inner.stream(request)) as deltas:
            async for delta in deltas:
                yield delta


def check_history(messages: Iterable[Message]) -> None:
    """Raise `Refused` and say why, unless the history is valid."""
    before = Message("user", ())
    for message in messages:
        if not message.parts:
            raise Refused("an empty message")
        if message.role == before.role == "assistant":
            raise Refused("two answers in a row")
        called = [call.id for call in before.calls]
        answered = [p.call_id for p in message.parts if isinstance(p, ToolResult)]
        if called != answered:
            raise Refused(f"called {called}, answered {answered}")
        before = message
    if before.calls:
        raise Refused(f"called {[c.id for c in before.calls]}, never answered")


# A script in a file: answers for `--script`, one JSON object a line.
#
#     {"text": "I look first.", "calls": [{"tool": "read_file", "arguments": {"path": "a"}}]}
#     {"text": "It says hello."}
#
# Keys: `text`, `thinking`, `calls`, `stop`, and `pause`, seconds between pieces. With `pace`,
# pieces come at fixed times, so many seconds apart, whether the last one was read by then or not.
# Empty lines and lines that begin with # are skipped.
#
# A line with `for` belongs to another conversation, one that begins with those words: so a script
# can answer for children too. Those lines go by how far that conversation is.
#
#     {"calls": [{"tool": "task", "arguments": {"prompt": "Count the tests.", "agent": "explore"}}]}
#     {"for": "Count the tests.", "text": "There are 12."}
#     {"text": "12 tests."}

_MOST = 64 * 1024 * 1024  # bytes
_KEYS = (
    "a line has text, thinking, calls, stop, pause, pace and for; a call has tool and "
    "arguments"
)


class _Call(Struct, forbid_unknown_fields=True):
    tool: str
    arguments: Raw = Raw(b"{}")


class _Line(Struct, forbid_unknown_fields=True):
    text: str = ""
    thinking: str = ""
    calls: tuple[_Call, ...] = ()
    stop: Stop | None = None
    pause: float = 0.0
    pace: float = 0.0
    talk: str = field(default="", name="for")


class Paced:
    """A scripted provider that takes its time."""

    def __init__(self, lines: list[_Line]) -> None:
        own = [line for line in lines if not line.talk]
        self._own = own
        self._inner = ScriptedProvider(*(_reply(line) for line in own))
        self._others = dict[str, list[_Line]]()
        for line in lines:
            if line.talk:
                self._others.setdefault(line.talk, []).append(line)
        self._cast = ScriptedConversations(
            {n: [_reply(e) for e in of] for n, of in self._others.items()}
        )

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        inner, line = self._who(request)
        if request.trace:
            yield RequestSent("script", _as_json(request))
        due = anyio.current_time()
        async for delta in inner.stream(request):
            due += line.pace
            wait = due - anyio.current_time() if line.pace else line.pause
            if wait > 0:
                await anyio.sleep(wait)
            if request.trace:
                yield ResponseBytes(msgspec.json.encode(delta) + b"\n")
            yield delta

    def _who(self, request: Request) -> tuple[Provider, _Line]:
        words = first_words(request)
        found = max(filter(words.startswith, self._others), key=len, default="")
        if found:
            lines, at, provider = self._others[found], place(request), self._cast
        else:
            lines, at, provider = self._own, len(self._inner.heard), self._inner
        return provider, lines[at] if at < len(lines) else _Line()


def _as_json(request: Request) -> bytes:
    """What a log of requests shows, where nothing goes over a wire."""
    return msgspec.json.encode(
        {
            "model": request.model,
            "system": request.system,
            "messages": [each.message for each in request.messages],
            "tools": request.tools,
        }
    )


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
                raise BadInput(f"{file}, line {number}: {error}; {_KEYS}") from error
    return Paced(lines)


def _reply(line: _Line) -> Reply:
    calls = tuple((call.tool, bytes(call.arguments).decode()) for call in line.calls)
    return Reply(line.text, calls, line.thinking, line.stop)


class ScriptedConversations:
    """Scripts by the beginning of a conversation's first message.

    `asked` counts the requests of each conversation; `holding` are beginnings of
    conversations that get no response until they are removed from it.
    """

    def __init__(self, scripts: Mapping[str, Sequence[Line]]) -> None:
        self._scripts = scripts
        self.heard: list[Request] = []
        self.asked: dict[str, int] = {}
        self.holding: set[str] = set()
        self.waits = anyio.Event()  # a held call waits

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.heard.append(request)
        name = self._name(first_words(request))
        self.asked[name] = self.asked.get(name, 0) + 1
        while name in self.holding:
            self.waits.set()
            await anyio.sleep(0.005)
        at, lines = place(request), self._scripts[name]
        if at >= len(lines):
            raise ProviderError(f"the script {name!r} has only {_lines(lines)}")
        line = lines[at]
        if isinstance(line, ProviderError):
            raise line
        for delta in deltas(as_reply(line), at):
            await anyio.lowlevel.checkpoint()
            yield delta

    def of(self, name: str) -> list[Request]:
        """The requests of this conversation."""
        return [each for each in self.heard if self._name(first_words(each)) == name]

    def _name(self, words: str) -> str:
        found = [name for name in self._scripts if words.startswith(name)]
        if not found:
            raise ProviderError(f"no script begins as {words[:80]!r} does")
        return max(found, key=len)


def first_words(request: Request) -> str:
    """The first message of the conversation of this request."""
    messages = request.messages
    parts = messages[0].message.parts if messages else ()
    return next((part.text for part in parts if isinstance(part, Text)), "")


def place(request: Request) -> int:
    """The number of responses in the conversation."""
    return sum(each.message.role == "assistant" for each in request.messages)
