"""Parses the events of a response of OpenAI's Responses API into deltas.

The functions are pure: they get the state so far and an event, and return the next state and
deltas. `responses` encodes the requests.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

import re
from collections.abc import Iterable
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.provider.error_mapping import StreamError
from refold.provider.port import CallDelta, Delta, Done, Stop, TextDelta, ThinkingDelta
from refold.provider.wire_stream import openai_usage
from refold.values.usage import Usage

WIRE_NAME = "openai-responses"  # also the name under which OpenAI's reasoning is stored


class Event(Struct, frozen=True):
    """An event of the stream. Fields that do not exist in its type keep their defaults."""

    type: str
    delta: str | None = None
    arguments: str | None = None
    output_index: int | None = None
    item_id: str | None = None
    item: Any = None
    summary_index: int | None = None
    response: "_Response | None" = None
    code: str | None = None
    message: str | None = None
    error: Any = None


class _Usage(Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: dict[str, Any] | None = None
    output_tokens_details: dict[str, Any] | None = None


class _Response(Struct, frozen=True):
    model: str | None = None
    status: str | None = None
    incomplete_details: dict[str, Any] | None = None
    error: Any = None
    output: list[dict[str, Any]] | None = None
    usage: _Usage | None = None


class _BegunCall(Struct, frozen=True):
    """A call that has begun, with the server's index and id for it."""

    output_index: int | None
    item: str
    received: bool = False  # whether its arguments have begun to arrive


class ResponsesStreamState(Struct, frozen=True):
    """The state of the parser between two events of a response."""

    calls: "tuple[_BegunCall, ...]" = ()
    begun: bool = False  # whether any item has begun
    received: bool = False  # whether the open item has received text
    open_items: int = 0  # the number of items that have begun and not ended
    refused: bool = False
    own_wire: str = WIRE_NAME  # the name under which this response's reasoning is stored
    mcp_servers: tuple[str, ...] = ()  # the MCP servers that the request named


def from_wire(
    state: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta | StreamError, ...]]:
    """Return the next state, and the deltas of an event. An unknown event has no deltas."""
    match event.type:
        case "response.output_text.delta":
            return _mark_received(state), (TextDelta(event.delta or ""),)
        case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
            return _mark_received(state), (ThinkingDelta(event.delta or ""),)
        case "response.reasoning_summary_part.added" if event.summary_index:
            return state, (ThinkingDelta("\n\n"),)
        case "response.refusal.delta":
            refused = replace(_mark_received(state), refused=True)
            return refused, (TextDelta(event.delta or ""),)
        case "response.function_call_arguments.delta":
            return _add_arguments(state, event, event.delta)
        case "response.function_call_arguments.done":
            return _add_whole_arguments(state, event)
        case _:
            return _handle_boundary(state, event)


def done_if_complete(state: ResponsesStreamState, marked: bool) -> Done | None:
    """Return the `Done` of a response that only `[DONE]` ends, if all its items are complete.

    Return None otherwise. `marked` says whether `[DONE]` has arrived.
    """
    if not marked or not state.begun or state.open_items:
        return None
    stop: Stop = "calls" if state.calls else "end"
    return Done(stop="refused" if state.refused else stop)


def events_of_body(body: bytes) -> list[bytes]:
    """Convert the body of a response that was not streamed to events.

    Return [] for JSON that is not a response, and `[body]` for text that is not JSON.
    """
    try:
        content: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [body]
    match content:
        case {"output": [*_], "status": str(status)}:
            return [
                msgspec.json.encode({"type": f"response.{status}", "response": content})
            ]
        case {"type": str()}:
            return [body]
        case _:
            return []


EVENT_TYPES = frozenset(
    {
        "error",
        "response.completed",
        "response.done",
        "response.failed",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.incomplete",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
        "response.refusal.delta",
    }
)

_CLIENT_ERROR_PATTERN = (
    r"invalid|policy|context_length|image|not_found|unsupported|misalign|residency"
)
_STATUS_BY_ERROR = {
    "server_error": 500,
    "rate_limit_exceeded": 429,
    "vector_store_timeout": 504,
    "insufficient_quota": 429,
    "server_is_overloaded": 503,
    "slow_down": 503,
}


def _handle_boundary(
    state: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta | StreamError, ...]]:
    """Return the next state and the deltas at the start or end of an item or the response.

    An unknown event has no deltas.
    """
    match event.type:
        case "response.output_item.added":
            open_items = state.open_items + 1
            began = replace(state, begun=True, received=False, open_items=open_items)
            return _begin_item(began, event)
        case "response.output_item.done":
            open_items = max(state.open_items - 1, 0)
            return _end_item(replace(state, open_items=open_items), event)
        case "response.completed" | "response.incomplete" | "response.failed":
            ended = event.response or _Response()
            return _finish(state, ended, event.type.removeprefix("response."))
        case "response.done":  # some gateways send this, as in OpenAI's Realtime API
            ended = event.response or _Response()
            return _finish(state, ended, ended.status or "completed")
        case "error":
            bare = {"code": event.code, "message": event.message}
            return state, (_stream_error(event.error or bare),)
        case _:
            return state, ()


def _mark_received(state: ResponsesStreamState) -> ResponsesStreamState:
    return state if state.received else replace(state, begun=True, received=True)


def _begin_item(
    state: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta, ...]]:
    """Return the next state and the delta at the start of a call, or of a message's phase.

    The start of any other item has no deltas.
    """
    match event.item:
        case {"type": "mcp_call", "server_label": server} as stored_item if (
            server in state.mcp_servers
        ):
            from refold.provider.hosted_mcp import begin_openai_item

            return state, begin_openai_item(cast("dict[str, Any]", stored_item))
        case {"type": "function_call", **item}:
            known = _BegunCall(
                event.output_index, str(item.get("id") or item.get("call_id"))
            )
            delta = CallDelta(
                index=len(state.calls),
                id=str(item.get("call_id") or ""),
                name=str(item.get("name") or ""),
            )
            return replace(state, calls=(*state.calls, known)), (delta,)
        case {"type": "message", "phase": str(phase)}:
            # Commentary or final answer: the model needs its phase back.
            data = Raw(msgspec.json.encode({"phase": phase}))
            return state, (ThinkingDelta(wire=state.own_wire, data=data),)
        case _:
            return state, ()


def _add_arguments(
    state: ResponsesStreamState, event: Event, piece: str | None
) -> tuple[ResponsesStreamState, tuple[Delta, ...]]:
    """Return the next state, and the delta for a piece of a call's arguments.

    There is no delta if the piece is empty or the call has not begun.
    """
    index = _call_index(state, event.output_index, event.item_id)
    if index is None or not piece:
        return state, ()
    begun_call = state.calls[index]
    if not begun_call.received:
        calls = list(state.calls)
        calls[index] = replace(begun_call, received=True)
        state = replace(state, calls=tuple(calls))
    return state, (CallDelta(index, piece),)


def _add_whole_arguments(
    state: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta, ...]]:
    """Return the next state, and a delta for arguments that did not arrive in pieces."""
    index = _call_index(state, event.output_index, event.item_id)
    if index is None or state.calls[index].received:
        return state, ()
    return _add_arguments(state, event, event.arguments)


def _end_item(
    state: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta, ...]]:
    """Return the state after an item, and deltas for parts that did not arrive in pieces."""
    received = state.received  # whether the text of the item has arrived in pieces
    state = replace(state, begun=True, received=False)
    match event.item:
        case {"type": "function_call", **item}:
            return _end_call(state, event, item)
        case {
            "type": "mcp_call" | "mcp_list_tools",
            "server_label": server,
        } as stored_item if server in state.mcp_servers:
            from refold.provider.hosted_mcp import end_openai_item

            return state, end_openai_item(
                cast("dict[str, Any]", stored_item), state.own_wire
            )
        case {"type": "reasoning"} as stored_item:
            item = cast("dict[str, Any]", stored_item)
            text = "" if received else "\n\n".join(_texts(item))
            if item.get("encrypted_content") or item.get("content"):
                kept_thinking = ThinkingDelta(text, state.own_wire, Raw(_json(item)))
                return state, (kept_thinking,)
            return state, (ThinkingDelta(text),) if text else ()
        case {"type": "message"} as stored_item if not received:
            item = cast("dict[str, Any]", stored_item)
            refused = any("refusal" in part for part in item.get("content") or ())
            state = replace(state, refused=state.refused or refused)
            return state, tuple(TextDelta(text) for text in _texts(item))
        case _:
            return state, ()


def _end_call(
    state: ResponsesStreamState, event: Event, item: dict[str, Any]
) -> tuple[ResponsesStreamState, tuple[Delta, ...]]:
    """Return the state after a call, and deltas for parts that did not arrive in pieces.

    `item` is the call, as the event describes it.
    """
    begin_deltas: tuple[Delta, ...] = ()
    server_id = str(item.get("id") or item.get("call_id"))
    index = _call_index(state, event.output_index, server_id)
    if index is None:
        state, begin_deltas = _begin_item(state, event)
    elif state.calls[index].received:
        return state, ()
    identified_event = replace(event, item_id=server_id)
    arguments = str(item.get("arguments") or "")
    state, argument_deltas = _add_arguments(state, identified_event, arguments)
    return state, (*begin_deltas, *argument_deltas)


def _finish(
    state: ResponsesStreamState, response: _Response, kind: str
) -> tuple[ResponsesStreamState, tuple[Delta | StreamError, ...]]:
    """Return the last state, and the deltas at the end of a response: `Done` or an error.

    `kind` is the status in the event's name, which counts if the response has no status.
    """
    pieces: list[Delta | StreamError] = []
    if not state.begun:  # some servers stream only the end
        for index, item in enumerate(response.output or ()):
            event = Event(type="", item=item, output_index=index)
            state, item_pieces = _end_item(state, event)
            pieces += item_pieces
    status = response.status or kind
    reason = (response.incomplete_details or {}).get("reason")
    stop: Stop = "calls" if state.calls else "end"
    why = ""
    if status == "incomplete" and reason == "max_output_tokens":
        stop = "length"
    elif state.refused or (status == "incomplete" and reason == "content_filter"):
        stop, why = "refused", str(reason or "")
    elif status == "incomplete":
        return state, (StreamError(500, f"the answer is incomplete: {reason}"),)
    elif status != "completed":
        return state, (_stream_error(response.error or f"the answer was {status}"),)
    done = Done(_usage(response.usage), stop, response.model or "", why=why)
    return state, (*pieces, done)


def _call_index(
    state: ResponsesStreamState, output_index: int | None, item: str | None
) -> int | None:
    """Return the index in `state.calls` of a call, or None if the call has not begun.

    The server's index identifies the call; without an index, its id `item` does.
    """
    for index, known in enumerate(state.calls):
        if output_index is None:
            is_same = known.item == item
        else:
            is_same = known.output_index == output_index
        if is_same:
            return index
    return None


def _texts(item: dict[str, Any]) -> Iterable[str]:
    """Yield the texts in an item: its summary, its content and its refusal."""
    for part in [*(item.get("summary") or ()), *(item.get("content") or ())]:
        if text := part.get("text") or part.get("refusal"):
            yield text


def _json(item: dict[str, Any]) -> bytes:
    """Encode a reasoning item as JSON, without its summary if that cannot be encoded."""
    try:
        return msgspec.json.encode(item)
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair in a summary
        return msgspec.json.encode({**item, "summary": []})


def _usage(usage: _Usage | None) -> Usage:
    """Return the usage that the server reports; all counts are 0 if it reports none."""
    usage = usage or _Usage()
    return openai_usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.input_tokens_details,
        usage.output_tokens_details,
    )


def _stream_error(error: Any) -> StreamError:
    """Return the error with the status for its code, or else with a likely status."""
    match error:
        case {"message": str(message), **more}:
            code = str(more.get("code") or more.get("type") or "")
        case _:
            return StreamError(500, str(error))
    likely_status = 400 if re.search(_CLIENT_ERROR_PATTERN, code) else 500
    status = _STATUS_BY_ERROR.get(code, likely_status)
    return StreamError(status, f"{code}: {message}" if code else message)
