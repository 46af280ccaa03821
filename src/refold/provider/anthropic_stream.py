"""Anthropic's Messages API: the events of a response, parsed into deltas.

Pure: the state so far and an event in, the next state and deltas out. `anthropic`
encodes the requests.

https://docs.anthropic.com/en/api/messages-streaming
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.provider.error_mapping import StreamError
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    HostedCall,
    Stop,
    TextDelta,
    ThinkingDelta,
)
from refold.values.usage import Usage

WIRE = "anthropic"  # and the name under which Anthropic's signatures are kept


class Event(Struct, frozen=True):
    """Any event of the stream; what a type does not have keeps its default."""

    type: str
    index: int = 0
    message: "_Message | None" = None
    content_block: "_Block | None" = None
    delta: "_Delta | None" = None
    usage: "_Usage | None" = None
    error: "_Error | None" = None


class AnthropicStreamState(Struct, frozen=True):
    """What must be known of an answer's beginning to understand the rest."""

    block: "_Block | None" = None  # the one that is open
    place: int = 0  # its index
    fed: bool = False  # have arguments come for it?
    written: str = ""  # those of a call that the provider makes itself
    uses: tuple[dict[str, Any], ...] = ()  # such calls that have no result yet
    calls: frozenset[int] = frozenset()  # the indices of all calls
    used: "_Usage" = msgspec.field(default_factory=lambda: _Usage())
    stop: str = ""
    why: str = ""  # it refused
    model: str = ""
    keeping: str = WIRE  # the name under which signatures are kept for their maker
    hosting: tuple[str, ...] = ()  # the MCP servers that it was asked to connect to


def from_wire(
    reading: AnthropicStreamState, event: Event
) -> tuple[AnthropicStreamState, tuple[Delta | StreamError, ...]]:
    """What an event says, and how to read on. Unknown ones say nothing."""
    index, block, delta = event.index, event.content_block, event.delta
    match event.type:
        case "content_block_delta" if delta:
            return _continued(reading, index, delta)
        case "content_block_start" if block:
            before, ended = _ended(reading)  # several servers leave out that event
            opened = replace(before, block=block, place=index, fed=False, written="")
            now, told = _opened(opened, index, block)
            return now, (*ended, *told)
        case "content_block_stop":
            return _ended(reading) if index == reading.place else (reading, ())
        case "message_start":
            message = event.message or _Message()
            used = _updated(reading.used, message.usage)
            return replace(reading, model=message.model, used=used), ()
        case "message_delta":
            used = _updated(reading.used, event.usage)
            delta = delta or _Delta()
            before, ended = _ended(reading) if delta.stop_reason else (reading, ())
            return replace(_stopped(before, delta), used=used), ended
        case "message_stop":
            return reading, _finished(reading)
        case _:
            return reading, _ended_early(reading, event)


def ending(reading: AnthropicStreamState, marked: bool) -> Done | None:
    """The end of a response whose last event is missing: the reason for its end was there."""
    if reading.block is not None or not reading.stop:
        return None
    return _done(reading)


def events_of_body(body: bytes) -> list[bytes]:
    """The events of a response that was not streamed."""
    match _decoded(Raw(body)):
        case {"type": "message", "content": [*blocks], **message}:
            start = {"type": "message_start", "message": message}
            whole = (
                event
                for index, block in enumerate(blocks)
                for event in (
                    {"type": "content_block_start", "index": index, "content_block": block},
                    {"type": "content_block_stop", "index": index},
                )
            )
            delta = {"stop_reason": message.get("stop_reason")}
            end = {"type": "message_delta", "delta": delta, "usage": message.get("usage")}
            stop = {"type": "message_stop"}
            return [msgspec.json.encode(each) for each in (start, *whole, end, stop)]
        case {"type": "error"}:
            return [body]
        case _:
            return []


def _ended_early(
    reading: AnthropicStreamState, event: Event
) -> tuple[Done | StreamError, ...]:
    if event.type == "error":
        error = event.error or _Error()
        status = _STATUS_OF.get(error.type, 500)
        return (StreamError(status, error.message or error.type),)
    # Some go-betweens send nothing but these behind the reason for the end.
    done = ending(reading, False) if event.type == "ping" else None
    return (done,) if done else ()


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
    text: str | None = ""
    thinking: str | None = ""
    signature: str | None = ""
    data: str = ""
    input: Raw = Raw(b"{}")
    server_name: str = ""
    tool_use_id: str = ""
    is_error: bool = False
    content: Any = None


class _Delta(Struct, frozen=True):
    type: str = ""
    text: str | None = ""
    thinking: str | None = ""
    signature: str | None = ""
    partial_json: str | None = ""
    stop_reason: str | None = None
    stop_details: "_Refusal | None" = None


class _Refusal(Struct, frozen=True):
    category: str | None = None
    explanation: str | None = None


class _Error(Struct, frozen=True):
    type: str = ""
    message: str = ""


TYPES = frozenset(
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

_PAUSED = "pause_turn"  # the provider calls tools itself, and has done so for long enough
_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    _PAUSED: "length",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


def _opened(
    reading: AnthropicStreamState, index: int, block: _Block
) -> tuple[AnthropicStreamState, tuple[Delta | StreamError, ...]]:
    match block:
        case _Block(type="text", text=text) if text:
            return reading, (TextDelta(text),)
        case _Block(type="thinking", thinking=text) if text:
            return reading, (ThinkingDelta(text),)
        case _Block(type="tool_use", id=id_, name=name):
            calls = reading.calls | {index}
            return replace(reading, calls=calls), (CallDelta(index, "", id_, name),)
        case _Block(type="mcp_tool_use", id=id_, name=name, server_name=server) if (
            server in reading.hosting
        ):
            from refold.provider.hosted_mcp import tool_name

            return reading, (HostedCall(id_, tool_name(server, name)),)
        case _Block(type="mcp_tool_result", tool_use_id=id_):
            return _resulted(reading, block, id_)
        case _:
            return reading, ()


def _with_use(reading: AnthropicStreamState) -> tuple[dict[str, Any], ...]:
    """With the call whose block ends now, if the provider makes it itself."""
    match reading.block:
        case (
            _Block(type="mcp_tool_use", id=id_, name=name, server_name=server) as block
        ) if server in reading.hosting:
            given = _decoded(reading.written) if reading.written else _decoded(block.input)
            use = {"type": "mcp_tool_use", "id": id_, "name": name, "server_name": server}
            return (*reading.uses, {**use, "input": given})
        case _:
            return reading.uses


def _decoded(arguments: str | Raw) -> Any:
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _resulted(
    reading: AnthropicStreamState, block: _Block, id_: str
) -> tuple[AnthropicStreamState, tuple[Delta | StreamError, ...]]:
    use = next((each for each in reading.uses if each["id"] == id_), None)
    if use is None:
        return reading, ()
    from refold.provider.hosted_mcp import anthropic_result

    found = anthropic_result(use, block.content, reading.keeping, failed=block.is_error)
    left = tuple(each for each in reading.uses if each is not use)
    return replace(reading, uses=left), (found,)


def _continued(
    reading: AnthropicStreamState, index: int, delta: _Delta
) -> tuple[AnthropicStreamState, tuple[Delta | StreamError, ...]]:
    block = reading.block
    match delta.type:
        case "text_delta" if delta.text:
            return reading, (TextDelta(delta.text),)
        case "thinking_delta" if delta.thinking:
            return reading, (ThinkingDelta(delta.thinking),)
        case "signature_delta" if block and delta.signature:
            signed = replace(block, signature=(block.signature or "") + delta.signature)
            return replace(reading, block=signed), ()
        case "input_json_delta" if delta.partial_json and index in reading.calls:
            # Some end a call before its arguments have come.
            if not reading.fed:
                reading = replace(reading, fed=True)
            return reading, (CallDelta(index, delta.partial_json),)
        case "input_json_delta" if block and block.type == "mcp_tool_use":
            return replace(
                reading, written=reading.written + (delta.partial_json or "")
            ), ()
        case _:
            return reading, ()


def _ended(
    reading: AnthropicStreamState,
) -> tuple[AnthropicStreamState, tuple[Delta, ...]]:
    """The block that is open has ended."""
    uses = _with_use(reading)
    return replace(reading, block=None, uses=uses), _closed(reading, reading.place)


def _closed(reading: AnthropicStreamState, index: int) -> tuple[Delta, ...]:
    match reading.block:
        case _Block(type="thinking", signature=signature) if signature:
            data = msgspec.json.encode({"signature": signature})
            return (ThinkingDelta("", reading.keeping, Raw(data)),)
        case _Block(type="redacted_thinking", data=redacted):
            data = msgspec.json.encode({"redacted": redacted})
            return (ThinkingDelta("", reading.keeping, Raw(data)),)
        case _Block(type="tool_use", input=whole) if not reading.fed:
            # No arguments, or a relative of the API that sends them all at once.
            return (CallDelta(index, bytes(whole).decode()),)
        case _:
            return ()


def _stopped(reading: AnthropicStreamState, delta: _Delta) -> AnthropicStreamState:
    details = delta.stop_details or _Refusal()
    return replace(
        reading,
        stop=delta.stop_reason or reading.stop,
        why=details.explanation or details.category or reading.why,
    )


def _finished(reading: AnthropicStreamState) -> tuple[Delta | StreamError, ...]:
    if reading.block and reading.block.type == "tool_use":
        return (StreamError(500, "the answer ended in the middle of a call"),)
    return (_done(reading),)


def _done(reading: AnthropicStreamState) -> Done:
    used = reading.used
    thought = (used.output_tokens_details or {}).get("thinking_tokens", 0)
    usage = Usage(
        fresh=used.input_tokens or 0,  # leaves the cached ones out
        cached=used.cache_read_input_tokens or 0,
        cache_write=used.cache_creation_input_tokens or 0,
        output=used.output_tokens or 0,
        reasoning=thought if isinstance(thought, int) else 0,
    )
    stop = _STOPS.get(reading.stop, "calls" if reading.calls else "end")
    why = reading.why if stop == "refused" else ""
    paused = reading.stop == _PAUSED
    return Done(usage, stop, reading.model, why=why, paused=paused)


def _updated(before: _Usage, after: _Usage | None) -> _Usage:
    """Counts are running totals: a later one replaces the one before."""
    if after is None:
        return before
    news = {f: v for f in after.__struct_fields__ if (v := getattr(after, f)) is not None}
    return replace(before, **news)
