"""From the bytes of an answer to its deltas: what every wire does the same way.

Split the bytes, decode each event, let the wire say what it means, and insist
on a proper end. A wire brings the splitter, the shape of its events and the
pure step; nothing here knows any of them.
"""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.errors import ProviderError, Unreachable
from refold.provider.failures import Peer, Trouble, no_stream, quoted, troubled
from refold.provider.http import Answer, Http
from refold.provider.port import CallDelta, Delta, Done, Retrying, TextDelta, ThinkingDelta
from refold.provider.sse import Overlong
from refold.values.clean import clean

State = TypeVar("State")
Event = TypeVar("Event")


class Splitter(Protocol):
    def feed(self, chunk: bytes) -> list[bytes]: ...

    def end(self) -> list[bytes]: ...


class Reader(Struct, Generic[State, Event], frozen=True):
    """How a wire reads.

    `step` is pure: the state so far and an event in, the next state and what
    the event said out. `ending` is asked when no more comes: the `Done` that
    may stand there, or None when the answer was cut off.
    """

    splitter: Callable[[], Splitter]
    event: type[Event]
    start: State
    step: Callable[[State, Event], tuple[State, tuple[Delta | Trouble, ...]]]
    ending: Callable[[State], Done | None] = lambda _: None
    over: bytes = b""  # an event that is no JSON and says that this was all
    types: frozenset[str] = frozenset()  # what events there are, where they have types


async def deltas(
    http: Http, path: str, body: bytes, model: str, reader: Reader[State, Event]
) -> AsyncGenerator[Delta, None]:
    """Ask, and tell the answer piece by piece up to its `Done`."""
    splitter, state, halves = reader.splitter(), reader.start, Halves()
    decoder = msgspec.json.Decoder(reader.event)
    async with http.post(path, body, model=model) as answer:
        more = True
        while more:
            chunk = await answer.read()
            more = bool(chunk)
            for data in _split(splitter, chunk, http.peer):
                if data == reader.over:
                    more = False
                    break
                event = _decoded(decoder, data, http.peer, reader.types)
                if event is None:
                    continue
                state, found = reader.step(state, event)
                for delta in found:
                    match delta:
                        case Trouble():
                            raise troubled(http.peer, delta, model)
                        case Done():
                            answer.enough()
                            yield delta
                            return
                        case _:
                            yield halves.joined(delta)
        if (done := reader.ending(state)) is None:
            raise _cut_off(http.peer, answer, nothing_came=state == reader.start)
        answer.enough()
        yield done


class Halves:
    """Puts a character together again whose two surrogates came in two deltas."""

    def __init__(self) -> None:
        self._half = ""

    def joined(self, delta: Delta) -> Delta:
        match delta:
            case TextDelta(text) | ThinkingDelta(text):
                return (
                    delta if self._plain(text) else replace(delta, text=self._whole(text))
                )
            case CallDelta(_, arguments):
                if self._plain(arguments):
                    return delta
                return replace(delta, arguments=self._whole(arguments))
            case Done() | Retrying():
                return delta

    def _plain(self, text: str) -> bool:
        return not self._half and text.isascii()

    def _whole(self, text: str) -> str:
        text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return clean(text)


def _split(splitter: Splitter, chunk: bytes, peer: Peer) -> list[bytes]:
    try:
        return splitter.feed(chunk) if chunk else splitter.end()
    except Overlong as error:
        raise Unreachable(f"{peer.label} sent a line that never ends") from error


def _decoded(
    decoder: msgspec.json.Decoder[Event], data: bytes, peer: Peer, types: frozenset[str]
) -> Event | None:
    """An event; None for one of a type that we have never heard of."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            # Half a character is valid JSON to everybody but msgspec.
            found: Any = json.loads(data)
            match found:
                case {"type": str(kind)} if types and kind not in types:
                    return None
                case _:
                    pass
            return msgspec.convert(found, decoder.type)
        except (ValueError, RecursionError):
            start = quoted(data[:80].decode("utf-8", "replace"))
            raise Unreachable(
                f"{peer.label} sent an event that cannot be read ({error}): {start!r}"
            ) from error


def _cut_off(peer: Peer, answer: Answer, *, nothing_came: bool) -> ProviderError:
    kind = answer.reply.headers.get("content-type", "")
    if nothing_came and "json" in kind and answer.reply.body:
        return no_stream(peer, answer.reply)
    start = quoted(answer.reply.body[:80].decode("utf-8", "replace"))
    came = f" ({kind or 'no content type'}, it begins {start!r})" if nothing_came else ""
    return Unreachable(f"the answer of {peer.label} broke off before its end{came}")
