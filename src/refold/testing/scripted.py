"""A provider that says what it was told to say, and remembers what it heard."""

from collections.abc import AsyncGenerator, Sequence

import anyio
from msgspec import Struct

from refold.errors import ProviderError
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Request,
    Stop,
    TextDelta,
    ThinkingDelta,
)
from refold.values.usage import Usage


class Reply(Struct, frozen=True):
    """One answer: thinking, then words, then calls (a tool's name, JSON arguments)."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    thinking: str = ""
    stop: Stop | None = None
    usage: Usage | None = None


Line = str | Sequence[tuple[str, str]] | Reply | ProviderError


class ScriptedProvider:
    """Answers the n-th request with the n-th line.

    A line is words, or calls, or a whole `Reply`, or an error to raise. Every
    answer is cut into single characters, and each of them can be cancelled: code
    that only works when answers arrive whole fails here first.
    """

    def __init__(self, *lines: Line) -> None:
        self._lines = lines
        self.heard: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        step = len(self.heard)
        self.heard.append(request)
        if step >= len(self._lines):
            raise ProviderError(f"the script has only {len(self._lines)} lines")
        line = self._lines[step]
        if isinstance(line, ProviderError):
            raise line
        reply = as_reply(line)
        for delta in deltas(reply, step):
            await anyio.lowlevel.checkpoint()
            yield delta


def as_reply(line: "str | Sequence[tuple[str, str]] | Reply") -> Reply:
    match line:
        case Reply():
            return line
        case str():
            return Reply(line)
        case _:
            return Reply(calls=tuple(line))


def deltas(reply: Reply, step: int) -> list[Delta]:
    """`reply` as it would come in, a character at a time."""
    found: list[Delta] = [ThinkingDelta(c) for c in reply.thinking]
    found += [TextDelta(c) for c in reply.text]
    for n, (name, arguments) in enumerate(reply.calls):
        found.append(CallDelta(n, "", f"theirs-{step}-{n}", name))
        found += [CallDelta(n, c) for c in arguments]
    words = len(reply.text) + sum(len(a) for _, a in reply.calls)
    usage = reply.usage or Usage(fresh=10, output=words)
    stop: Stop = reply.stop or ("calls" if reply.calls else "end")
    return [*found, Done(usage, stop)]
