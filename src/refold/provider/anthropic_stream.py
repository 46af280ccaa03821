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

WIRE_NAME = "anthropic"  # and the name under which Anthropic's signatures are kept


class Event(Struct, frozen=True):
    """Any event of the stream; fields that a type lacks keep their defaults."""

    type: str
    index: int = 0
    message: "_Message | None" = None
    content_block: "_Block | None" = None
    delta: "_Delta | None" = None
    usage: "_Usage | None" = None
    error: "_Error | None" = None


class AnthropicStreamState(Struct, frozen=True):
    """What the parser must know of the response so far to read the next event."""

    block: "_Block | None" = None  # the one that is open
    place: int = 0  # its index
    fed: bool = False  # whether its arguments have begun to arrive
    written: str = ""  # arguments of a call that the provider makes itself
    uses: tuple[dict[str, Any], ...] = ()  # the provider's own calls without a result yet
    calls: frozenset[int] = frozenset()  # the indices of all calls
    used: "_Usage" = msgspec.field(default_factory=lambda: _Usage())
    stop: str = ""
    why: str = ""  # of a refusal
    model: str = ""
    own_wire: str = WIRE_NAME  # the name under which signatures are kept for their maker
    mcp_servers: tuple[str, ...] = ()  # the MCP servers that it was asked to connect to


def from_wire(
    state: AnthropicStreamState, event: Event
) -> tuple[AnthropicStreamState, tuple[Delta | StreamError, ...]]:
    """Return the next state and the deltas of an event. Unknown events have none."""
    index, block, delta = event.index, event.content_block, event.delta
    match event.type:
        case "content_block_delta" if delta:
            return _continue_block(state, index, delta)
        case "content_block_start" if block:
            before, ended = _end_block(state)  # several servers leave out that event
            opened = replace(before, block=block, place=index, fed=False, written="")
            next_state, deltas = _open_block(opened, index, block)
            return next_state, (*ended, *deltas)
        case "content_block_stop":
            return _end_block(state) if index == state.place else (state, ())
        case "message_start":
            message = event.message or _Message()
            used = _merge_usage(state.used, message.usage)
            return replace(state, model=message.model, used=used), ()
        case "message_delta":
            used = _merge_usage(state.used, event.usage)
            delta = delta or _Delta()
            before, ended = _end_block(state) if delta.stop_reason else (state, ())
            return replace(_with_stop(before, delta), used=used), ended
        case "message_stop":
            return state, _finish(state)
        case _:
            return state, _end_early(state, event)


def done_if_complete(state: AnthropicStreamState, marked: bool) -> Done | None:
    """The `Done` of a response with a stop reason but without its last event; else None."""
    if state.block is not None or not state.stop:
        return None
    return _to_done(state)


def events_of_body(body: bytes) -> list[bytes]:
    """The events of a response that was not streamed."""
    match _decode_arguments(Raw(body)):
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
            return [msgspec.json.encode(item) for item in (start, *whole, end, stop)]
        case {"type": "error"}:
            return [body]
        case _:
            return []


def _end_early(state: AnthropicStreamState, event: Event) -> tuple[Done | StreamError, ...]:
    if event.type == "error":
        error = event.error or _Error()
        status = _STATUS_BY_ERROR.get(error.type, 500)
        return (StreamError(status, error.message or error.type),)
    # Some gateways send only pings after the stop reason.
    done = done_if_complete(state, False) if event.type == "ping" else None
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


EVENT_TYPES = frozenset(
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

_STATUS_BY_ERROR = {
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

_PAUSE_REASON = "pause_turn"  # the provider's own tool calls reached a limit
_STOP_REASONS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    _PAUSE_REASON: "length",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


def _open_block(
    state: AnthropicStreamState, index: int, block: _Block
) -> tuple[AnthropicStreamState, tuple[Delta | StreamError, ...]]:
    match block:
        case _Block(type="text", text=text) if text:
            return state, (TextDelta(text),)
        case _Block(type="thinking", thinking=text) if text:
            return state, (ThinkingDelta(text),)
        case _Block(type="tool_use", id=id_, name=name):
            calls = state.calls | {index}
            return replace(state, calls=calls), (CallDelta(index, "", id_, name),)
        case _Block(type="mcp_tool_use", id=id_, name=name, server_name=server) if (
            server in state.mcp_servers
        ):
            from refold.provider.hosted_mcp import tool_name

            return state, (HostedCall(id_, tool_name(server, name)),)
        case _Block(type="mcp_tool_result", tool_use_id=id_):
            return _end_hosted_call(state, block, id_)
        case _:
            return state, ()


def _with_use(state: AnthropicStreamState) -> tuple[dict[str, Any], ...]:
    """The provider's own calls, with the one whose block ends now."""
    match state.block:
        case (
            _Block(type="mcp_tool_use", id=id_, name=name, server_name=server) as block
        ) if server in state.mcp_servers:
            arguments = (
                _decode_arguments(state.written)
                if state.written
                else _decode_arguments(block.input)
            )
            use = {"type": "mcp_tool_use", "id": id_, "name": name, "server_name": server}
            return (*state.uses, {**use, "input": arguments})
        case _:
            return state.uses


def _decode_arguments(arguments: str | Raw) -> Any:
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _end_hosted_call(
    state: AnthropicStreamState, block: _Block, id_: str
) -> tuple[AnthropicStreamState, tuple[Delta | StreamError, ...]]:
    use = next((open_use for open_use in state.uses if open_use["id"] == id_), None)
    if use is None:
        return state, ()
    from refold.provider.hosted_mcp import anthropic_result

    result = anthropic_result(use, block.content, state.own_wire, failed=block.is_error)
    left = tuple(open_use for open_use in state.uses if open_use is not use)
    return replace(state, uses=left), (result,)


def _continue_block(
    state: AnthropicStreamState, index: int, delta: _Delta
) -> tuple[AnthropicStreamState, tuple[Delta | StreamError, ...]]:
    block = state.block
    match delta.type:
        case "text_delta" if delta.text:
            return state, (TextDelta(delta.text),)
        case "thinking_delta" if delta.thinking:
            return state, (ThinkingDelta(delta.thinking),)
        case "signature_delta" if block and delta.signature:
            signed = replace(block, signature=(block.signature or "") + delta.signature)
            return replace(state, block=signed), ()
        case "input_json_delta" if delta.partial_json and index in state.calls:
            # Some end a call before its arguments have come.
            if not state.fed:
                state = replace(state, fed=True)
            return state, (CallDelta(index, delta.partial_json),)
        case "input_json_delta" if block and block.type == "mcp_tool_use":
            return replace(state, written=state.written + (delta.partial_json or "")), ()
        case _:
            return state, ()


def _end_block(
    state: AnthropicStreamState,
) -> tuple[AnthropicStreamState, tuple[Delta, ...]]:
    """End the open block."""
    uses = _with_use(state)
    return replace(state, block=None, uses=uses), _block_end_deltas(state, state.place)


def _block_end_deltas(state: AnthropicStreamState, index: int) -> tuple[Delta, ...]:
    match state.block:
        case _Block(type="thinking", signature=signature) if signature:
            data = msgspec.json.encode({"signature": signature})
            return (ThinkingDelta("", state.own_wire, Raw(data)),)
        case _Block(type="redacted_thinking", data=redacted):
            data = msgspec.json.encode({"redacted": redacted})
            return (ThinkingDelta("", state.own_wire, Raw(data)),)
        case _Block(type="tool_use", input=whole) if not state.fed:
            # No arguments, or a compatible server that sends them all at once.
            return (CallDelta(index, bytes(whole).decode()),)
        case _:
            return ()


def _with_stop(state: AnthropicStreamState, delta: _Delta) -> AnthropicStreamState:
    details = delta.stop_details or _Refusal()
    return replace(
        state,
        stop=delta.stop_reason or state.stop,
        why=details.explanation or details.category or state.why,
    )


def _finish(state: AnthropicStreamState) -> tuple[Delta | StreamError, ...]:
    if state.block and state.block.type == "tool_use":
        return (StreamError(500, "the answer ended in the middle of a call"),)
    return (_to_done(state),)


def _to_done(state: AnthropicStreamState) -> Done:
    used = state.used
    thought = (used.output_tokens_details or {}).get("thinking_tokens", 0)
    usage = Usage(
        fresh=used.input_tokens or 0,  # leaves the cached ones out
        cached=used.cache_read_input_tokens or 0,
        cache_write=used.cache_creation_input_tokens or 0,
        output=used.output_tokens or 0,
        reasoning=thought if isinstance(thought, int) else 0,
    )
    stop = _STOP_REASONS.get(state.stop, "calls" if state.calls else "end")
    why = state.why if stop == "refused" else ""
    paused = state.stop == _PAUSE_REASON
    return Done(usage, stop, state.model, why=why, paused=paused)


def _merge_usage(before: _Usage, after: _Usage | None) -> _Usage:
    """Counts are running totals: a later one replaces the one before."""
    if after is None:
        return before
    news = {f: v for f in after.__struct_fields__ if (v := getattr(after, f)) is not None}
    return replace(before, **news)
