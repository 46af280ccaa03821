"""Parses the events of a response of Anthropic's Messages API into deltas.

The functions are pure: they get the state so far and an event, and return the next state and
deltas. `anthropic` encodes the requests.

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

WIRE_NAME = "anthropic"  # also the name under which Anthropic's signatures are stored


class Event(Struct, frozen=True):
    """An event of the stream. Fields that do not exist in its type keep their defaults."""

    type: str
    index: int = 0
    message: "_Message | None" = None
    content_block: "_Block | None" = None
    delta: "_Delta | None" = None
    usage: "_Usage | None" = None
    error: "_Error | None" = None


class AnthropicStreamState(Struct, frozen=True):
    """The state of the parser between two events of a response."""

    block: "_Block | None" = None  # the open block
    block_index: int = 0  # the index of the open block
    arguments_begun: bool = False  # whether the open block's arguments have begun to arrive
    hosted_arguments: str = ""  # the arguments of a call that the provider makes itself
    # the calls that the provider has made itself and that have no result yet
    hosted_calls: tuple[dict[str, Any], ...] = ()
    calls: frozenset[int] = frozenset()  # the indices of all calls
    used: "_Usage" = msgspec.field(default_factory=lambda: _Usage())
    stop: str = ""
    why: str = ""  # the reason for a refusal
    model: str = ""
    own_wire: str = WIRE_NAME  # the name under which this response's signatures are stored
    mcp_servers: tuple[str, ...] = ()  # the MCP servers that the request named


def from_wire(
    state: AnthropicStreamState, event: Event
) -> tuple[AnthropicStreamState, tuple[Delta | StreamError, ...]]:
    """Return the next state, and the deltas of an event. An unknown event has no deltas."""
    index, block, delta = event.index, event.content_block, event.delta
    match event.type:
        case "content_block_delta" if delta:
            return _continue_block(state, index, delta)
        case "content_block_start" if block:
            # several servers omit the event that ends a block
            ended, end_deltas = _end_block(state)
            opened = replace(
                ended,
                block=block,
                block_index=index,
                arguments_begun=False,
                hosted_arguments="",
            )
            next_state, start_deltas = _open_block(opened, index, block)
            return next_state, (*end_deltas, *start_deltas)
        case "content_block_stop":
            return _end_block(state) if index == state.block_index else (state, ())
        case "message_start":
            message = event.message or _Message()
            used = _merge_usage(state.used, message.usage)
            return replace(state, model=message.model, used=used), ()
        case "message_delta":
            used = _merge_usage(state.used, event.usage)
            delta = delta or _Delta()
            ended, end_deltas = _end_block(state) if delta.stop_reason else (state, ())
            return replace(_with_stop(ended, delta), used=used), end_deltas
        case "message_stop":
            return state, _finish(state)
        case _:
            return state, _end_early(state, event)


def done_if_complete(state: AnthropicStreamState, marked: bool) -> Done | None:
    """Return the `Done` of a response that has a stop reason, but lacks its last event.

    Return None if the response was cut off. `marked` is ignored, because this wire has no end
    mark.
    """
    if state.block is not None or not state.stop:
        return None
    return _to_done(state)


def events_of_body(body: bytes) -> list[bytes]:
    """Return the events of a response that was not streamed, or [] for any other body.

    They are the events that the server would have streamed. An error is its own event.
    """
    match _decode_or_empty(Raw(body)):
        case {"type": "message", "content": [*blocks], **message}:
            events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
            for index, block in enumerate(blocks):
                events += (
                    {"type": "content_block_start", "index": index, "content_block": block},
                    {"type": "content_block_stop", "index": index},
                )
            delta = {"stop_reason": message.get("stop_reason")}
            usage = message.get("usage")
            events += (
                {"type": "message_delta", "delta": delta, "usage": usage},
                {"type": "message_stop"},
            )
            return [msgspec.json.encode(event) for event in events]
        case {"type": "error"}:
            return [body]
        case _:
            return []


def _end_early(state: AnthropicStreamState, event: Event) -> tuple[Done | StreamError, ...]:
    """Return the error that an event reports, or the end of a response without a last event.

    Some gateways send only pings after the stop reason. Return () for any other event.
    """
    if event.type == "error":
        error = event.error or _Error()
        status = _STATUS_BY_ERROR.get(error.type, 500)
        return (StreamError(status, error.message or error.type),)
    if event.type != "ping":
        return ()
    done = done_if_complete(state, marked=False)
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
    """Return the state after the start of a block, and the deltas for text that it contains."""
    match block:
        case _Block(type="text", text=text) if text:
            return state, (TextDelta(text),)
        case _Block(type="thinking", thinking=text) if text:
            return state, (ThinkingDelta(text),)
        case _Block(type="tool_use", id=id_, name=name):
            calls = state.calls | {index}
            return replace(state, calls=calls), (CallDelta(index, id=id_, name=name),)
        case _Block(type="mcp_tool_use", id=id_, name=name, server_name=server) if (
            server in state.mcp_servers
        ):
            from refold.provider.hosted_mcp import tool_name

            return state, (HostedCall(id_, tool_name(server, name)),)
        case _Block(type="mcp_tool_result", tool_use_id=id_):
            return _end_hosted_call(state, block, id_)
        case _:
            return state, ()


def _hosted_calls_so_far(state: AnthropicStreamState) -> tuple[dict[str, Any], ...]:
    """Return the calls that the provider made itself and that have no result yet.

    The call whose block ends now is included.
    """
    match state.block:
        case (
            _Block(type="mcp_tool_use", id=id_, name=name, server_name=server) as block
        ) if server in state.mcp_servers:
            arguments = _decode_or_empty(state.hosted_arguments or block.input)
            call = {"type": "mcp_tool_use", "id": id_, "name": name, "server_name": server}
            return (*state.hosted_calls, {**call, "input": arguments})
        case _:
            return state.hosted_calls


def _decode_or_empty(text: str | Raw) -> Any:
    """Decode JSON, such as the arguments of a call. Return {} if it is invalid."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _end_hosted_call(
    state: AnthropicStreamState, block: _Block, id_: str
) -> tuple[AnthropicStreamState, tuple[Delta | StreamError, ...]]:
    """Return the state without the provider's own call `id_`, and the result of that call.

    Return the unchanged state and no result if there is no such call.
    """
    call = next((call for call in state.hosted_calls if call["id"] == id_), None)
    if call is None:
        return state, ()
    from refold.provider.hosted_mcp import anthropic_result

    result = anthropic_result(call, block.content, state.own_wire, failed=block.is_error)
    unanswered = tuple(other for other in state.hosted_calls if other is not call)
    return replace(state, hosted_calls=unanswered), (result,)


def _continue_block(
    state: AnthropicStreamState, index: int, delta: _Delta
) -> tuple[AnthropicStreamState, tuple[Delta | StreamError, ...]]:
    """Return the next state, and the deltas of an event that continues the open block."""
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
            # Some servers end a call's block before its arguments have arrived.
            if not state.arguments_begun:
                state = replace(state, arguments_begun=True)
            return state, (CallDelta(index, delta.partial_json),)
        case "input_json_delta" if block and block.type == "mcp_tool_use":
            return replace(
                state, hosted_arguments=state.hosted_arguments + (delta.partial_json or "")
            ), ()
        case _:
            return state, ()


def _end_block(
    state: AnthropicStreamState,
) -> tuple[AnthropicStreamState, tuple[Delta, ...]]:
    """End the open block. Return the next state, and the deltas that were not known before."""
    ended = replace(state, block=None, hosted_calls=_hosted_calls_so_far(state))
    return ended, _block_end_deltas(state)


def _block_end_deltas(state: AnthropicStreamState) -> tuple[Delta, ...]:
    """Return the deltas that only the end of the open block makes known.

    They contain a signature, redacted thinking, or arguments that did not arrive in pieces.
    """
    match state.block:
        case _Block(type="thinking", signature=signature) if signature:
            data = msgspec.json.encode({"signature": signature})
            return (ThinkingDelta(wire=state.own_wire, data=Raw(data)),)
        case _Block(type="redacted_thinking", data=redacted):
            data = msgspec.json.encode({"redacted": redacted})
            return (ThinkingDelta(wire=state.own_wire, data=Raw(data)),)
        case _Block(type="tool_use", input=whole) if not state.arguments_begun:
            # No arguments, or a compatible server that sends them all at once.
            return (CallDelta(state.block_index, bytes(whole).decode()),)
        case _:
            return ()


def _with_stop(state: AnthropicStreamState, delta: _Delta) -> AnthropicStreamState:
    """Return the state with the stop reason and the reason for a refusal from `delta`."""
    details = delta.stop_details or _Refusal()
    return replace(
        state,
        stop=delta.stop_reason or state.stop,
        why=details.explanation or details.category or state.why,
    )


def _finish(state: AnthropicStreamState) -> tuple[Delta | StreamError, ...]:
    """Return the end of the response, or an error if it ended inside of a call."""
    if state.block and state.block.type == "tool_use":
        return (StreamError(500, "the answer ended in the middle of a call"),)
    return (_to_done(state),)


def _to_done(state: AnthropicStreamState) -> Done:
    """Return the `Done` of a response in this state, with its usage and stop reason."""
    used = state.used
    thinking_tokens = (used.output_tokens_details or {}).get("thinking_tokens", 0)
    usage = Usage(
        fresh=used.input_tokens or 0,  # `input_tokens` excludes the cached tokens
        cached=used.cache_read_input_tokens or 0,
        cache_write=used.cache_creation_input_tokens or 0,
        output=used.output_tokens or 0,
        reasoning=thinking_tokens if isinstance(thinking_tokens, int) else 0,
    )
    stop = _STOP_REASONS.get(state.stop, "calls" if state.calls else "end")
    why = state.why if stop == "refused" else ""
    paused = state.stop == _PAUSE_REASON
    return Done(usage, stop, state.model, why=why, paused=paused)


def _merge_usage(before: _Usage, after: _Usage | None) -> _Usage:
    """Merge usage counts. They are running totals, so a later count replaces an earlier one."""
    if after is None:
        return before
    counts = {name: getattr(after, name) for name in after.__struct_fields__}
    known = {name: count for name, count in counts.items() if count is not None}
    return replace(before, **known)
