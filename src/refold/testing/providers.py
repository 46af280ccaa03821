"""Providers for tests: one with a script, one that fails on purpose, a strict wrapper."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Literal, TypeAlias

import anyio
from msgspec import Struct

from refold.errors import ProviderError, Refused
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Provider,
    Request,
    Stop,
    TextDelta,
    ThinkingDelta,
)
from refold.values.messages import Message, ToolResult
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
