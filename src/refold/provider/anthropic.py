"""Anthropic's Messages API.

`to_wire` and `message_to_wire` say what we send, `from_wire` what an event of
an answer means; all three are pure. `Anthropic` carries bytes between them.
Every oddity of the API stands in one of them beside the words that explain it.

https://docs.anthropic.com/en/api/messages and …/messages-streaming
"""

from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.provider import sendable
from refold.provider.encoded import Encoded, Piece
from refold.provider.failures import Trouble
from refold.provider.http import Http
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Request,
    Stop,
    TextDelta,
    ThinkingDelta,
)
from refold.provider.sse import Events
from refold.provider.stream import Reader, deltas
from refold.values.clean import clean
from refold.values.messages import Message, Part, Text, Thinking, ToolCall, ToolResult
from refold.values.usage import Usage

WIRE = "anthropic"
VERSION = "2023-06-01"
MOST_OUTPUT = 32_000  # tokens; the API wants a number, and every current model allows this


def to_wire(request: Request, messages: bytes) -> bytes:
    """The body of a request, given its messages, joined, from `message_to_wire`."""
    body: dict[str, Any] = {
        "model": clean(request.model),
        "max_tokens": request.max_output or MOST_OUTPUT,
        "stream": True,
        # Lets the server mark the last block of the talk for its cache, so that
        # what we send only ever grows at the end.
        "cache_control": _CACHED,
    }
    if system := sendable.text(request.system).strip():
        body["system"] = [{"type": "text", "text": system, "cache_control": _CACHED}]
    if request.tools:
        tools: list[dict[str, Any]] = [
            {"name": t.name, "description": t.description, "input_schema": t.parameters}
            for t in request.tools
        ]
        tools[-1]["cache_control"] = _CACHED
        body["tools"] = tools
        if request.tool_choice == "none":
            body["tool_choice"] = {"type": "none"}
    body["messages"] = Raw(b"[" + messages + b"]")
    return msgspec.json.encode(body)


def message_to_wire(message: Message) -> Iterator[Piece]:
    """A message as blocks. Speakers must alternate, so neighbours share a head.

    Results come directly after the answer that called, so they come first in
    the user's message, as the API wants them.
    """
    role = "assistant" if message.role == "assistant" else "user"
    blocks = [block for part in message.parts for block in _blocks(part)]
    while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        blocks.pop()  # "the final block in an assistant message cannot be thinking"
    if not blocks and role == "user":
        blocks = [{"type": "text", "text": "(no words)"}]
    if blocks:
        body = b",".join(msgspec.json.encode(block) for block in blocks)
        yield Piece(body, b'{"role":"%s","content":[' % role.encode(), b"]}")


class Event(Struct, frozen=True):
    """Any event of the stream; what a type does not have keeps its default."""

    type: str
    index: int = 0
    message: "_Message | None" = None
    content_block: "_Block | None" = None
    delta: "_Delta | None" = None
    usage: "_Usage | None" = None
    error: "_Error | None" = None


class Reading(Struct, frozen=True):
    """What must be known of an answer's beginning to understand the rest."""

    block: "_Block | None" = None  # the one that is open
    fed: bool = False  # have arguments come for it?
    called: bool = False
    used: "_Usage" = msgspec.field(default_factory=lambda: _Usage())
    stop: str = ""
    model: str = ""


def from_wire(
    reading: Reading, event: Event
) -> tuple[Reading, tuple[Delta | Trouble, ...]]:
    """What an event says, and how to read on. Unknown ones say nothing."""
    match event:
        case Event(type="content_block_delta", index=index, delta=_Delta() as delta):
            return _continued(reading, index, delta)
        case Event(
            type="content_block_start", index=index, content_block=_Block() as block
        ):
            return _opened(replace(reading, block=block, fed=False), index, block)
        case Event(type="content_block_stop", index=index):
            return replace(reading, block=None), _closed(reading, index)
        case Event(type="message_start", message=_Message(model, usage)):
            return replace(reading, model=model, used=_updated(reading.used, usage)), ()
        case Event(type="message_delta", delta=delta, usage=usage):
            stop = (delta and delta.stop_reason) or reading.stop
            return replace(reading, stop=stop, used=_updated(reading.used, usage)), ()
        case Event(type="message_stop"):
            return reading, _finished(reading)
        case Event(type="error", error=error):
            error = error or _Error()
            status = _STATUS_OF.get(error.type, 500)
            return reading, (Trouble(status, error.message or error.type),)
        case _:
            return reading, ()


class Anthropic:
    """Claude, or whatever speaks its protocol."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._encoded = Encoded(message_to_wire)

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        body = to_wire(request, self._encoded.join(request.messages))
        reader = Reader(Events, Event, Reading(), from_wire, types=_TYPES)
        return deltas(self._http, "/v1/messages", body, request.model, reader)

    async def aclose(self) -> None:
        await self._http.aclose()


class _Usage(Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: dict[str, Any] | None = None


class _Message(Struct, frozen=True):
    model: str = ""
    usage: _Usage | None = None


class _Block(Struct, frozen=True):
    type: str = ""
    id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    input: Raw = Raw(b"{}")


class _Delta(Struct, frozen=True):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Error(Struct, frozen=True):
    type: str = ""
    message: str = ""


_CACHED = {"type": "ephemeral"}

_TYPES = frozenset(
    {
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "error",
        "ping",
    }
)

_STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}

_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


def _blocks(part: Part) -> Iterable[dict[str, Any]]:
    match part:
        case Text(text) if text.strip():
            yield {"type": "text", "text": sendable.text(text)}
        case Thinking(text, wire, data) if wire == WIRE:
            match _kept(data):
                case {"signature": str(signature)}:
                    yield {
                        "type": "thinking",
                        "thinking": clean(text),
                        "signature": signature,
                    }
                case {"redacted": str(redacted)}:
                    yield {"type": "redacted_thinking", "data": redacted}
                case _:
                    return  # it was cut off before its signature: nobody would believe it
        case ToolCall(id_, name, arguments):
            # Our own id: theirs may be missing, come twice, or be another wire's.
            made = {"id": id_, "name": sendable.name(name)}
            yield {"type": "tool_use", **made, "input": sendable.arguments(arguments)}
        case ToolResult(call_id, text, failed):
            found: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
            if text.strip():
                found["content"] = sendable.text(text)
            yield {**found, "is_error": True} if failed else found
        case _:
            return


def _kept(data: Raw) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None


def _opened(
    reading: Reading, index: int, block: _Block
) -> tuple[Reading, tuple[Delta | Trouble, ...]]:
    match block:
        case _Block(type="text", text=text) if text:
            return reading, (TextDelta(text),)
        case _Block(type="thinking", thinking=text) if text:
            return reading, (ThinkingDelta(text),)
        case _Block(type="tool_use", id=id_, name=name):
            return replace(reading, called=True), (CallDelta(index, "", id_, name),)
        case _:
            return reading, ()


def _continued(
    reading: Reading, index: int, delta: _Delta
) -> tuple[Reading, tuple[Delta | Trouble, ...]]:
    block = reading.block
    match delta:
        case _Delta(type="text_delta", text=text) if text:
            return reading, (TextDelta(text),)
        case _Delta(type="thinking_delta", thinking=text) if text:
            return reading, (ThinkingDelta(text),)
        case _Delta(type="signature_delta", signature=more) if block and more:
            return replace(
                reading, block=replace(block, signature=block.signature + more)
            ), ()
        case _Delta(type="input_json_delta", partial_json=piece) if (
            piece and block and block.type == "tool_use"
        ):
            if not reading.fed:
                reading = replace(reading, fed=True)
            return reading, (CallDelta(index, piece),)
        case _:
            return reading, ()


def _closed(reading: Reading, index: int) -> tuple[Delta, ...]:
    match reading.block:
        case _Block(type="thinking", signature=signature) if signature:
            data = msgspec.json.encode({"signature": signature})
            return (ThinkingDelta("", WIRE, Raw(data)),)
        case _Block(type="redacted_thinking", data=redacted):
            data = msgspec.json.encode({"redacted": redacted})
            return (ThinkingDelta("", WIRE, Raw(data)),)
        case _Block(type="tool_use", input=whole) if not reading.fed:
            # No arguments, or a relative of the API that sends them all at once.
            return (CallDelta(index, bytes(whole).decode()),)
        case _:
            return ()


def _finished(reading: Reading) -> tuple[Delta | Trouble, ...]:
    if reading.block and reading.block.type == "tool_use":
        return (Trouble(500, "the answer ended in the middle of a call"),)
    used = reading.used
    thought = (used.output_tokens_details or {}).get("thinking_tokens", 0)
    usage = Usage(
        fresh=used.input_tokens or 0,  # leaves the cached ones out
        cached=used.cache_read_input_tokens or 0,
        cache_write=used.cache_creation_input_tokens or 0,
        output=used.output_tokens or 0,
        reasoning=thought if isinstance(thought, int) else 0,
    )
    stop = _STOPS.get(reading.stop, "calls" if reading.called else "end")
    return (Done(usage, stop, reading.model),)


def _updated(before: _Usage, after: _Usage | None) -> _Usage:
    """Counts are running totals: a later one replaces the one before."""
    if after is None:
        return before
    news = {f: v for f in after.__struct_fields__ if (v := getattr(after, f)) is not None}
    return replace(before, **news)
