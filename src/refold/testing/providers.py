"""Providers for tests: scripted, faulty, strict, and recorded on a cassette."""

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import anyio

from refold.errors import ProviderError, Refused
from refold.provider.cassette import CassetteWriter, Recording, Replaying
from refold.provider.cassette_format import Mask, no_mask
from refold.provider.port import CallDelta, Delta, Provider, Request
from refold.provider.script import Reply, deltas, first_words, lines_in, response_count
from refold.values.messages import Message, ToolResult

Line = str | Sequence[tuple[str, str]] | Reply | ProviderError


class ScriptedProvider:
    """Answers the n-th request with the n-th line, without a model.

    A line is text, calls, a complete `Reply`, or an error to raise. Each response arrives in
    single characters, and can be cancelled after each character. So code fails in a test if it
    needs complete responses.
    """

    def __init__(self, *lines: Line) -> None:
        self._lines = lines
        self.heard: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        step = len(self.heard)
        self.heard.append(request)
        if step >= len(self._lines):
            raise ProviderError(f"the script has only {lines_in(self._lines)}")
        line = self._lines[step]
        if isinstance(line, ProviderError):
            raise line
        reply = as_reply(line)
        for delta in deltas(reply, step):
            await anyio.lowlevel.checkpoint()
            yield delta


def as_reply(line: "str | Sequence[tuple[str, str]] | Reply") -> Reply:
    """Return the line of a script as a `Reply`."""
    match line:
        case Reply():
            return line
        case str():
            return Reply(line)
        case _:
            return Reply(calls=tuple(line))


# "silence": the stream ends without `Done` or an error. "hang": nothing more is sent. "same
# ids": every call has the same id. "garbled": arguments are cut off, but the response ends
# properly.
Fault: TypeAlias = ProviderError | Literal["silence", "hang", "same ids", "garbled"]


class FaultyProvider:
    """Answers every request with `line`, but the first `times` requests with a fault.

    An error, a "silence" or a "hang" comes after `after` pieces of the response.
    """

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
            # without the last character, the arguments are not JSON
            cut = tuple((name, arguments[:-1]) for name, arguments in reply.calls)
            reply = Reply(reply.text, cut, reply.thinking, reply.stop, reply.usage)
        chunks = deltas(reply, len(self.heard) - 1)
        for n, delta in enumerate(chunks):
            await anyio.lowlevel.checkpoint()
            if faulty and n == self._after:
                if isinstance(self._fault, ProviderError):
                    raise self._fault
                if self._fault == "silence":
                    return  # without `Done`
                if self._fault == "hang":
                    await anyio.sleep_forever()
            yield _rename(delta) if faulty and self._fault == "same ids" else delta


def _rename(delta: Delta) -> Delta:
    """Return the piece. If it has the id of a call, replace the id by a fixed one."""
    match delta:
        case CallDelta(index, arguments, id_, name) if id_:
            return CallDelta(index, arguments, "theirs", name)
        case _:
            return delta


class StrictProvider:
    """Wraps a provider, and refuses conversations that real providers refuse."""

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        check_history(stored.message for stored in request.messages)
        if not request.messages or request.messages[-1].message.role == "assistant":
            raise Refused("there is nothing to answer")
        async with aclosing(self._inner.stream(request)) as deltas:
            async for delta in deltas:
                yield delta


def check_history(messages: Iterable[Message]) -> None:
    """Raise `Refused`, with the reason, if real providers would refuse these messages."""
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


class ScriptedConversations:
    """A provider with one script for each conversation.

    The first message of a conversation begins with the name of its script. `asked` counts the
    requests by script. A conversation whose script is in `holding` gets no response until the
    name is removed from `holding`.
    """

    def __init__(self, scripts: Mapping[str, Sequence[Line]]) -> None:
        self._scripts = scripts
        self.heard: list[Request] = []
        self.asked: dict[str, int] = {}
        self.holding: set[str] = set()
        self.waits = anyio.Event()  # set when a held call waits

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.heard.append(request)
        name = self._name(first_words(request))
        self.asked[name] = self.asked.get(name, 0) + 1
        while name in self.holding:
            self.waits.set()
            await anyio.sleep(0.005)
        index = response_count(request)
        lines = self._scripts[name]
        if index >= len(lines):
            raise ProviderError(f"the script {name!r} has only {lines_in(lines)}")
        line = lines[index]
        if isinstance(line, ProviderError):
            raise line
        for delta in deltas(as_reply(line), index):
            await anyio.lowlevel.checkpoint()
            yield delta

    def requests_of(self, name: str) -> list[Request]:
        """Return the requests of the conversations that use this script."""
        return [
            request for request in self.heard if self._name(first_words(request)) == name
        ]

    def _name(self, words: str) -> str:
        """Return the longest name of a script with which `words` begin."""
        names = [name for name in self._scripts if words.startswith(name)]
        if not names:
            raise ProviderError(f"no script begins as {words[:80]!r} does")
        return max(names, key=len)


@contextmanager
def cassette(
    file: Path,
    make: Callable[[], Provider],
    *,
    ignoring: frozenset[str] = frozenset(),
    mask: Mask = no_mask,
) -> Generator[Provider]:
    """Yield a provider that records its calls in `file`, or replays them if the file exists.

        with cassette(DATA / "rain.jsonl", make=real_provider) as provider:
            ... ask provider ...

    If some recorded calls are not replayed, `AssertionError` is raised after the block, because
    the test has changed. To record again, delete the file.
    """
    if not file.exists():
        yield Recording(make(), CassetteWriter(file, mask))
        return
    replaying = Replaying(file, ignoring, mask)
    yield replaying
    if replaying.calls_left:
        raise AssertionError(
            f"{file} holds {replaying.calls_left} calls more than were asked: record it again"
        )
