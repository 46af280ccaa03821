"""Converts the bytes of a response to deltas: the part that all wires share.

It splits the bytes, decodes each event, calls the wire's `step`, and requires a proper end. A
wire provides the splitter, the type of its events and the pure step. The token counts of
providers are read here, too.

With `Request.trace`, the body of the request and each received chunk are deltas, too. A
callback or a logger instead would be a second interface that every wrapper must pass on.
Headers contain keys, and are never reported.

A proper end is a finish reason of any name, `[DONE]`, or the usage that comes last: gateways
end streams in different ways. A stream that closes without one is incomplete, because the
response of a server that was stopped in the middle looks the same.
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
    """Splits a response into events.

    `feed` returns the events that a chunk completes, and `end` returns the last events.
    """

    def feed(self, chunk: bytes) -> list[bytes]: ...

    def end(self) -> list[bytes]: ...


class Reader(Struct, Generic[State, Event], frozen=True):
    """How a wire reads a response.

    `step` is pure: it gets the state so far and an event, and returns the next state and
    deltas. `ending` is called when nothing more arrives. It gets the state, and whether the
    event `end_mark` has arrived, and returns the `Done`, or None if the response was cut off.
    `think_tags` says that the text may begin with thinking between tags.
    """

    splitter: Callable[[], Splitter]
    event: type[Event]
    start: State
    step: Callable[[State, Event], tuple[State, tuple[Delta | StreamError, ...]]]
    ending: Callable[[State, bool], Done | None] = lambda _, __: None
    end_mark: bytes = b""  # the event at the end of a stream, which is not JSON
    # the known event types, for a wire whose events have types
    types: frozenset[str] = frozenset()
    think_tags: bool = False


async def deltas(
    http: Http,
    path: str,
    body: bytes,
    request: Request,
    reader: Reader[State, Event],
) -> AsyncGenerator[Delta, None]:
    """Send a request with this `body`, and yield the deltas of its response up to its `Done`.

    With `request.trace`, the sent and received bytes are yielded, too.
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
                new_deltas = _join_texts(state.feed(chunk))
                if tags is not None:
                    new_deltas = tags.split(new_deltas)
                for delta in new_deltas:
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
    """Return `ToolRefused` if an error is about a tool, otherwise the error itself."""
    if not isinstance(error, BadRequest) or not request.tools:
        return error
    from refold.provider.tool_refusals import refused_tool

    name = refused_tool(error, request.tools)
    if not name:
        return error
    refusal = ToolRefused(str(error))
    refusal.answer, refusal.tool = error.answer, name
    return refusal


def _think_tags() -> "ThinkTags":
    from refold.provider.think_tags import ThinkTags  # some wires have no tags

    return ThinkTags()


async def _next_chunk(answer: HttpResponse, state: "StreamState[Any, Any]") -> bytes:
    """Return the next chunk, or b"" at the end of the response.

    A connection that breaks after the last necessary event counts as an end.
    """
    try:
        return await answer.read()
    except Broken:
        if not state.can_end:
            raise
        return b""


def _join_texts(pieces: Iterable[Delta]) -> Iterator[Delta]:
    """Join adjacent texts, so that fewer deltas pass through every wrapper."""
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
    except ProviderError:  # the deltas before the failure are passed on first
        if texts:
            yield TextDelta("".join(texts))
        raise
    if texts:
        yield TextDelta("".join(texts))


class StreamState(Generic[State, Event]):
    """Converts the chunks of a response to deltas, until it is `over`."""

    def __init__(self, reader: Reader[State, Event], peer: Peer, model: str) -> None:
        self._reader, self._peer, self._model = reader, peer, model
        self._splitter, self._surrogates = reader.splitter(), SurrogateJoiner()
        self._decoder = msgspec.json.Decoder(reader.event)
        self._state = reader.start
        self.over = False  # whether no more of the response is read
        self.done = False  # whether its `Done` was yielded

    @property
    def is_empty(self) -> bool:
        return self._state == self._reader.start

    @property
    def can_end(self) -> bool:
        """Whether the response is complete, even if more may follow."""
        has_end_mark = False
        return self._reader.ending(self._state, has_end_mark) is not None

    def feed(self, chunk: bytes) -> Iterator[Delta]:
        """Yield the deltas of a chunk. An empty chunk is the end of the stream.

        Raises the error that an event reports.
        """
        # Every piece of every response passes here, so attributes are looked up only once.
        decode, join = self._decoder.decode, self._surrogates.join
        step, end_mark = self._reader.step, self._reader.end_mark
        has_end_mark = False
        for data in _split(self._splitter, chunk, self._peer):
            if end_mark and data.strip() == end_mark:
                self.over = has_end_mark = True
                break
            try:
                event = decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                event = _decode_leniently(
                    self._decoder.type, data, self._peer, self._reader.types, error
                )
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
        if self.over and (done := self._reader.ending(self._state, has_end_mark)):
            self.done = True
            yield done


_TEXT_DELTAS = (TextDelta, ThinkingDelta)


class SurrogateJoiner:
    """Joins the two surrogates of a character that arrived in two deltas."""

    def __init__(self) -> None:
        self._half = ""

    def join(self, delta: Delta) -> Delta:
        """Return the delta. Half a character at its end is moved to the next delta."""
        # Every piece of every response passes here.
        if isinstance(delta, _TEXT_DELTAS):
            if not self._half and delta.text.isascii():
                return delta
            return replace(delta, text=self._join_halves(delta.text))
        if isinstance(delta, CallDelta) and (self._half or not delta.arguments.isascii()):
            return replace(delta, arguments=self._join_halves(delta.arguments))
        return delta

    def _join_halves(self, text: str) -> str:
        """Return the text after the held half of a character.

        If it ends with the first half of a character, that half is held until the next text.
        """
        text = self._half + text
        self._half = ""
        ends_in_half = bool(text) and "\ud800" <= text[-1] <= "\udbff"
        if ends_in_half:
            self._half = text[-1]
            text = text[:-1]
        return clean(text)


def _split(splitter: Splitter, chunk: bytes, peer: Peer) -> list[bytes]:
    """Return the events that `chunk` completes. An empty chunk is the end of the stream."""
    try:
        return splitter.feed(chunk) if chunk else splitter.end()
    except LineTooLong as error:
        raise Unreachable(f"{peer.label} sent a line that never ends") from error


def _decode_leniently(
    kind: type[Event], data: bytes, peer: Peer, types: frozenset[str], error: Exception
) -> Event | None:
    """Decode an event that msgspec has refused with `error`. Return None to skip the event.

    It is skipped if it is `null` or of a type that is not in `types`; an empty `types` means
    all. Raises `Unreachable` if it cannot be decoded.
    """
    try:
        import json  # unlike other parsers, msgspec rejects half a surrogate pair

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
                    # Some servers write numbers as text.
                    return msgspec.convert(without_counts(content), kind, strict=False)
    except (ValueError, RecursionError):
        start = excerpt(data[:80].decode("utf-8", "replace"))
        raise Unreachable(
            f"{peer.label} sent an event that cannot be read ({error}): {start!r}"
        ) from error


def _cut_off_error(
    peer: Peer, answer: HttpResponse, *, nothing_came: bool
) -> ProviderError:
    """Return the error for a response without a proper end."""
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
    """Return `value` if it is a number of tokens, otherwise 0."""
    return value if type(value) is int and value > 0 else 0


def without_counts(event: Any) -> Any:
    """Return an event without its token counts, so that invalid counts do not matter."""
    match event:
        case dict():
            items = cast("dict[str, Any]", event).items()
            return {k: without_counts(v) for k, v in items if k not in _COUNT_FIELDS}
        case _:
            return event


def openai_usage(
    input_tokens: int | None,
    output_tokens: int | None,
    input_details: Mapping[str, Any] | None,
    output_details: Mapping[str, Any] | None,
    cache_hits: int | None = None,
) -> Usage:
    """Return the usage for counts of OpenAI's APIs: `input_tokens` includes cached tokens.

    `cache_hits` is the number of tokens read from a cache, for servers that report it outside
    of the details.
    """
    input_details, output_details = input_details or {}, output_details or {}
    cached = count(input_details.get("cached_tokens")) or count(cache_hits)
    cache_write = count(input_details.get("cache_write_tokens"))
    return Usage(
        fresh=max(count(input_tokens) - cached - cache_write, 0),
        cached=cached,
        cache_write=cache_write,
        output=count(output_tokens),
        reasoning=count(output_details.get("reasoning_tokens")),
    )
