"""Turns the bytes of a response into deltas: the part that all wires share.

It splits the bytes, decodes each event, calls the wire's `step`, and insists on a proper
end. A wire brings the splitter, the type of its events and the pure step. Token counts
as providers report them are read here, too.

With `Request.trace`, the body of the request and each received chunk are deltas, too. A
callback or a logger would be a second port for every wrapper to pass on. Headers hold
keys, and are never reported.

A proper end is a reason of any name, `[DONE]`, or the usage that comes last: gateways end
streams in their own ways. A stream that closes without one is not complete, because half an
answer of a server that was stopped looks the same.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.errors import BadRequest, ProviderError, ToolRefused, Unreachable
from refold.provider.api_client import Http
from refold.provider.connect import Broken
from refold.provider.error_mapping import (
    Peer,
    StreamError,
    excerpt,
    not_a_stream_error,
    stream_failure,
)
from refold.provider.http import HttpResponse
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Request,
    RequestSent,
    ResponseBytes,
    TextDelta,
    ThinkingDelta,
)
from refold.provider.sse import LineTooLong
from refold.values.text import clean
from refold.values.usage import Usage

if TYPE_CHECKING:
    from refold.provider.think_tags import ThinkTags

State = TypeVar("State")
Event = TypeVar("Event")


class Splitter(Protocol):
    def feed(self, chunk: bytes) -> list[bytes]: ...

    def end(self) -> list[bytes]: ...


class Reader(Struct, Generic[State, Event], frozen=True):
    """How a wire reads a response.

    `step` is pure: the state so far and an event in, the next state and deltas out.
    `ending` is called when nothing more arrives, with whether the event `over` came: it
    returns the `Done`, or None if the response was cut off. `think_tags`: the text may begin
    with thinking between tags.
    """

    splitter: Callable[[], Splitter]
    event: type[Event]
    start: State
    step: Callable[[State, Event], tuple[State, tuple[Delta | StreamError, ...]]]
    ending: Callable[[State, bool], Done | None] = lambda _, __: None
    over: bytes = b""  # the event that marks the end, which is not JSON
    types: frozenset[str] = frozenset()  # what events there are, where they have types
    think_tags: bool = False


async def deltas(
    http: Http,
    path: str,
    body: bytes,
    request: Request,
    reader: Reader[State, Event],
) -> AsyncGenerator[Delta, None]:
    """Send `body`, which encodes the request, and yield the response piece by piece up to its `Done`.

    With `Request.trace` the bytes are reported, too, as they are sent and received.
    """
    model, trace = request.model, request.trace
    if trace:
        yield RequestSent(f"POST {http.peer.base_url}{path}", body)
    state = StreamState(reader, http.peer, model)
    tags = _think_tags() if reader.think_tags else None
    try:
        async with http.post(path, body, model=model) as answer:
            while not state.over:
                chunk = await _next_chunk(answer, state)
                if trace and chunk:
                    yield ResponseBytes(chunk)
                pieces = _join_texts(state.feed(chunk))
                for delta in pieces if tags is None else tags.split(pieces):
                    if isinstance(delta, Done):
                        answer.mark_complete()
                    yield delta
            if not state.done:
                raise _cut_off_error(http.peer, answer, nothing_came=state.is_empty)
    except ProviderError as error:
        if trace and error.answer:
            yield ResponseBytes(error.answer)
        raise _with_tool(error, request) from error.__cause__


def _with_tool(error: ProviderError, request: Request) -> ProviderError:
    """The error, with the tool that it is about."""
    if not (isinstance(error, BadRequest) and request.tools):
        return error
    from refold.provider.tool_refusals import refused_tool

    if not (name := refused_tool(error, request.tools)):
        return error
    refusal = ToolRefused(str(error))
    refusal.answer, refusal.tool = error.answer, name
    return refusal


def _think_tags() -> "ThinkTags":
    from refold.provider.think_tags import ThinkTags  # some wires have none

    return ThinkTags()


async def _next_chunk(answer: HttpResponse, state: "StreamState[Any, Any]") -> bytes:
    """Read a chunk; empty also if the connection breaks after a complete response."""
    try:
        return await answer.read()
    except Broken:
        if not state.can_end:
            raise
        return b""


def _join_texts(pieces: Iterable[Delta]) -> Iterator[Delta]:
    """Join adjacent texts of one read: each delta passes through every wrapper."""
    texts: list[str] = []
    try:
        for delta in pieces:
            if isinstance(delta, TextDelta):
                texts.append(delta.text)
                continue
            if texts:
                yield TextDelta("".join(texts))
                texts = []
            yield delta
    except ProviderError:  # what came before the failure is passed on first
        if texts:
            yield TextDelta("".join(texts))
        raise
    if texts:
        yield TextDelta("".join(texts))


class StreamState(Generic[State, Event]):
    """One response while it is received: chunks in, deltas out, until it is `over`."""

    def __init__(self, reader: Reader[State, Event], peer: Peer, model: str) -> None:
        self._reader, self._peer, self._model = reader, peer, model
        self._splitter, self._halves = reader.splitter(), SurrogateJoiner()
        self._decoder = msgspec.json.Decoder(reader.event)
        self._state = reader.start
        self.over = self.done = False

    @property
    def is_empty(self) -> bool:
        return self._state == self._reader.start

    @property
    def can_end(self) -> bool:
        """Whether there was an end marker, even if more may come."""
        return self._reader.ending(self._state, False) is not None

    def feed(self, chunk: bytes) -> Iterator[Delta]:
        """Yield the deltas of a chunk; an empty chunk is the end."""
        decode, step, over = self._decoder.decode, self._reader.step, self._reader.over
        join, marked = self._halves.join, False
        for data in _split(self._splitter, chunk, self._peer):
            if over and data.strip() == over:
                self.over = marked = True
                break
            try:  # not in a function of its own: every piece of every answer is here
                event = decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                event = self._decode_odd(data, error)
                if event is None:
                    continue
            self._state, pieces = step(self._state, event)
            for delta in pieces:
                match delta:
                    case TextDelta() | CallDelta() | ThinkingDelta():
                        yield join(delta)
                    case Done():
                        self.over = self.done = True
                        yield delta
                        return
                    case StreamError():
                        raise stream_failure(self._peer, delta, self._model)
                    case _:
                        yield delta
        self.over = self.over or not chunk
        if self.over and (done := self._reader.ending(self._state, marked)):
            self.done = True
            yield done

    def _decode_odd(self, data: bytes, error: Exception) -> Event | None:
        return _decode_odd(self._decoder.type, data, self._peer, self._reader.types, error)


_TEXT_DELTAS = (TextDelta, ThinkingDelta)


class SurrogateJoiner:
    """Joins the two surrogates of a character that arrived in two deltas."""

    def __init__(self) -> None:
        self._half = ""

    def join(self, delta: Delta) -> Delta:
        # Every piece of every answer comes through here.
        if isinstance(delta, _TEXT_DELTAS):
            if not self._half and delta.text.isascii():
                return delta
            return replace(delta, text=self._whole(delta.text))
        if isinstance(delta, CallDelta) and (self._half or not delta.arguments.isascii()):
            return replace(delta, arguments=self._whole(delta.arguments))
        return delta

    def _whole(self, text: str) -> str:
        text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return clean(text)


def _split(splitter: Splitter, chunk: bytes, peer: Peer) -> list[bytes]:
    try:
        return splitter.feed(chunk) if chunk else splitter.end()
    except LineTooLong as error:
        raise Unreachable(f"{peer.label} sent a line that never ends") from error


def _decode_odd(
    kind: type[Event], data: bytes, peer: Peer, types: frozenset[str], error: Exception
) -> Event | None:
    """The error for an event that could not be decoded; None for an unknown type."""
    try:
        import json  # half a character is valid JSON to everybody but msgspec

        content: Any = json.loads(data.decode("utf-8", "replace"))
        match content:
            case None:  # a keep-alive of some gateways
                return None
            case {"type": str(name)} if types and name not in types:
                return None
            case _:
                try:
                    return msgspec.convert(content, kind)
                except msgspec.ValidationError:
                    # Some write numbers as text.
                    return msgspec.convert(without_counts(content), kind, strict=False)
    except (ValueError, RecursionError):
        start = excerpt(data[:80].decode("utf-8", "replace"))
        raise Unreachable(
            f"{peer.label} sent an event that cannot be read ({error}): {start!r}"
        ) from error


def _cut_off_error(
    peer: Peer, answer: HttpResponse, *, nothing_came: bool
) -> ProviderError:
    kind = answer.reply.headers.get("content-type", "")
    if nothing_came and "json" in kind and answer.reply.body:
        return not_a_stream_error(peer, answer.reply)
    start = excerpt(answer.reply.body[:80].decode("utf-8", "replace"))
    beginning = (
        f" ({kind or 'no content type'}, it begins {start!r})" if nothing_came else ""
    )
    return Unreachable(f"the answer of {peer.label} broke off before its end{beginning}")


_COUNT_FIELDS = frozenset({"usage", "usageMetadata", "prompt_eval_count", "eval_count"})


def count(value: Any) -> int:
    """`value` as a number of tokens; 0 if it is none."""
    return value if type(value) is int and value > 0 else 0


def without_counts(event: Any) -> Any:
    """An event of a response without its counts, to decode it if they are unreadable."""
    match event:
        case dict():
            items = cast("dict[str, Any]", event).items()
            return {k: without_counts(v) for k, v in items if k not in _COUNT_FIELDS}
        case _:
            return event


def openai_usage(
    input_tokens: int | None,
    output_tokens: int | None,
    of_read: Mapping[str, Any] | None,
    of_written: Mapping[str, Any] | None,
    hits: int | None = None,
) -> Usage:
    """The usage as both of OpenAI's APIs count it: cached tokens are a part of `input_tokens`.

    `of_read` and `of_written` are the details of the two. `hits` is the number of tokens
    read from a cache, if a server reports it beside the details.
    """
    of_read, of_written = of_read or {}, of_written or {}
    cached = count(of_read.get("cached_tokens")) or count(hits)
    cache_write = count(of_read.get("cache_write_tokens"))
    return Usage(
        fresh=max(count(input_tokens) - cached - cache_write, 0),
        cached=cached,
        cache_write=cache_write,
        output=count(output_tokens),
        reasoning=count(of_written.get("reasoning_tokens")),
    )
