"""OpenAI's Responses API: the events of a response, parsed into deltas.

Pure: the state so far and an event in, the next state and deltas out. `responses` encodes
the requests.

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

WIRE_NAME = "openai-responses"  # and the name under which OpenAI's reasoning is kept


class Event(Struct, frozen=True):
    """Any event of the stream; fields that a type lacks keep their defaults."""

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


class _Known(Struct, frozen=True):
    """A call that has begun: the server's index and id of it."""

    theirs: int | None
    item: str
    fed: bool = False  # whether its arguments have begun to arrive


class ResponsesStreamState(Struct, frozen=True):
    """What the parser must know of the response so far to read the next event."""

    calls: "tuple[_Known, ...]" = ()
    begun: bool = False  # whether any item has begun
    fed: bool = False  # whether the open item has received text
    open_items: int = 0  # that have begun and not ended
    refused: bool = False
    own_wire: str = WIRE_NAME  # the name under which reasoning is kept for its maker
    mcp_servers: tuple[str, ...] = ()  # the MCP servers that it was asked to connect to


def from_wire(
    state: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta | StreamError, ...]]:
    """Return the next state and the deltas of an event. Unknown events have none."""
    match event.type:
        case "response.output_text.delta":
            return _mark_fed(state), (TextDelta(event.delta or ""),)
        case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
            return _mark_fed(state), (ThinkingDelta(event.delta or ""),)
        case "response.reasoning_summary_part.added" if event.summary_index:
            return state, (ThinkingDelta("\n\n"),)
        case "response.refusal.delta":
            refused = replace(_mark_fed(state), refused=True)
            return refused, (TextDelta(event.delta or ""),)
        case "response.function_call_arguments.delta":
            return _add_arguments(state, event, event.delta)
        case "response.function_call_arguments.done":
            return _add_whole_arguments(state, event)
        case _:
            return _handle_boundary(state, event)


def done_if_complete(state: ResponsesStreamState, marked: bool) -> Done | None:
    """The `Done` of a response that ends with `[DONE]` alone, if all items are complete."""
    if not (marked and state.begun) or state.open_items:
        return None
    stop: Stop = "calls" if state.calls else "end"
    return Done(stop="refused" if state.refused else stop)


def events_of_body(body: bytes) -> list[bytes]:
    """The events of a response that was not streamed."""
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
    """Handle the beginning and end of items, and the end of the response."""
    match event.type:
        case "response.output_item.added":
            open_items = state.open_items + 1
            began = replace(state, begun=True, fed=False, open_items=open_items)
            return _begin_item(began, event)
        case "response.output_item.done":
            left = max(state.open_items - 1, 0)
            return _end_item(replace(state, open_items=left), event)
        case "response.completed" | "response.incomplete" | "response.failed":
            ended = event.response or _Response()
            return _finish(state, ended, event.type.removeprefix("response."))
        case "response.done":  # from some gateways, as in OpenAI's Realtime API
            ended = event.response or _Response()
            return _finish(state, ended, ended.status or "completed")
        case "error":
            bare = {"code": event.code, "message": event.message}
            return state, (_stream_error(event.error or bare),)
        case _:
            return state, ()


def _mark_fed(state: ResponsesStreamState) -> ResponsesStreamState:
    return state if state.fed else replace(state, begun=True, fed=True)


def _begin_item(
    state: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta, ...]]:
    match event.item:
        case {"type": "mcp_call", "server_label": server} as stored_item if (
            server in state.mcp_servers
        ):
            from refold.provider.hosted_mcp import begin_openai_item

            return state, begin_openai_item(cast("dict[str, Any]", stored_item))
        case {"type": "function_call", **item}:
            known = _Known(event.output_index, str(item.get("id") or item.get("call_id")))
            call_id, name = str(item.get("call_id") or ""), str(item.get("name") or "")
            began = CallDelta(len(state.calls), "", call_id, name)
            return replace(state, calls=(*state.calls, known)), (began,)
        case {"type": "message", "phase": str(phase)}:
            # Commentary or final answer: the model needs the phase back.
            data = Raw(msgspec.json.encode({"phase": phase}))
            return state, (ThinkingDelta("", state.own_wire, data),)
        case _:
            return state, ()


def _add_arguments(
    state: ResponsesStreamState, event: Event, piece: str | None
) -> tuple[ResponsesStreamState, tuple[Delta, ...]]:
    index = _call_index(state, event.output_index, event.item_id)
    if index is None or not piece:
        return state, ()
    known = state.calls[index]
    if not known.fed:
        calls = (*state.calls[:index], replace(known, fed=True), *state.calls[index + 1 :])
        state = replace(state, calls=calls)
    return state, (CallDelta(index, piece),)


def _add_whole_arguments(
    state: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta, ...]]:
    """The arguments at once, from a server that did not send them in pieces."""
    index = _call_index(state, event.output_index, event.item_id)
    if index is None or state.calls[index].fed:
        return state, ()
    return _add_arguments(state, event, event.arguments)


def _end_item(
    state: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta, ...]]:
    """The complete item: the parts that did not arrive in pieces are returned now."""
    fed, state = state.fed, replace(state, begun=True, fed=False)
    match event.item:
        case {"type": "function_call", **item}:
            began: tuple[Delta, ...] = ()
            server_id = str(item.get("id") or item.get("call_id"))
            index = _call_index(state, event.output_index, server_id)
            if index is None:
                state, began = _begin_item(state, event)
            elif state.calls[index].fed:
                return state, ()
            pointed = replace(event, item_id=server_id)
            state, whole = _add_arguments(state, pointed, str(item.get("arguments") or ""))
            return state, (*began, *whole)
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
            text = "" if fed else "\n\n".join(_texts(item))
            if item.get("encrypted_content") or item.get("content"):
                whole = ThinkingDelta(text, state.own_wire, Raw(_json(item)))
                return state, (whole,)
            return state, (ThinkingDelta(text),) if text else ()
        case {"type": "message"} as stored_item if not fed:
            item = cast("dict[str, Any]", stored_item)
            refused = any("refusal" in part for part in item.get("content") or ())
            state = replace(state, refused=state.refused or refused)
            return state, tuple(TextDelta(text) for text in _texts(item))
        case _:
            return state, ()


def _finish(
    state: ResponsesStreamState, response: _Response, kind: str
) -> tuple[ResponsesStreamState, tuple[Delta | StreamError, ...]]:
    pieces: list[Delta | StreamError] = []
    if not state.begun:  # some servers stream nothing but the end
        for index, item in enumerate(response.output or ()):
            event = Event("", item=item, output_index=index)
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
    """The index of a call in `calls`: by the server's index, or else by its id."""
    for index, known in enumerate(state.calls):
        if known.theirs == output_index if output_index is not None else known.item == item:
            return index
    return None


def _texts(item: dict[str, Any]) -> Iterable[str]:
    for part in [*(item.get("summary") or ()), *(item.get("content") or ())]:
        if text := part.get("text") or part.get("refusal"):
            yield text


def _json(item: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(item)
    except (UnicodeEncodeError, OverflowError):  # half a character in a summary
        return msgspec.json.encode({**item, "summary": []})


def _usage(usage: _Usage | None) -> Usage:
    usage = usage or _Usage()
    return openai_usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.input_tokens_details,
        usage.output_tokens_details,
    )


def _stream_error(error: Any) -> StreamError:
    match error:
        case {"message": str(message), **more}:
            code = str(more.get("code") or more.get("type") or "")
        case _:
            return StreamError(500, str(error))
    status = _STATUS_BY_ERROR.get(
        code, 400 if re.search(_CLIENT_ERROR_PATTERN, code) else 500
    )
    return StreamError(status, f"{code}: {message}" if code else message)
