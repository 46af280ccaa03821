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

WIRE = "openai-responses"  # and the name under which OpenAI's reasoning is kept


class Event(Struct, frozen=True):
    """Any event of the stream; what a type does not have keeps its default."""

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
    """A call that has begun: where the server counts it, and as what."""

    theirs: int | None
    item: str
    fed: bool = False  # have arguments come for it?


class ResponsesStreamState(Struct, frozen=True):
    """What must be known of an answer's beginning to understand the rest."""

    calls: "tuple[_Known, ...]" = ()
    heard: bool = False  # has any item begun?
    fed: bool = False  # have words come for the message or reasoning that is open?
    open_items: int = 0  # that have begun and not ended
    refused: bool = False
    keeping: str = WIRE  # the name under which reasoning is kept for its maker
    hosting: tuple[str, ...] = ()  # the MCP servers that it was asked to connect to


def from_wire(
    reading: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta | StreamError, ...]]:
    """What an event says, and how to read on. Unknown ones say nothing."""
    match event.type:
        case "response.output_text.delta":
            return _fed(reading), (TextDelta(event.delta or ""),)
        case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
            return _fed(reading), (ThinkingDelta(event.delta or ""),)
        case "response.reasoning_summary_part.added" if event.summary_index:
            return reading, (ThinkingDelta("\n\n"),)
        case "response.refusal.delta":
            refused = replace(_fed(reading), refused=True)
            return refused, (TextDelta(event.delta or ""),)
        case "response.function_call_arguments.delta":
            return _argued(reading, event, event.delta)
        case "response.function_call_arguments.done":
            return _argued_whole(reading, event)
        case _:
            return _turned(reading, event)


def ending(reading: ResponsesStreamState, marked: bool) -> Done | None:
    """The end of a response that ends with `[DONE]` alone: all of its items are whole."""
    if not (marked and reading.heard) or reading.open_items:
        return None
    stop: Stop = "calls" if reading.calls else "end"
    return Done(stop="refused" if reading.refused else stop)


def events_of_body(body: bytes) -> list[bytes]:
    """The events of a response that was not streamed."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [body]
    match found:
        case {"output": [*_], "status": str(status)}:
            return [msgspec.json.encode({"type": f"response.{status}", "response": found})]
        case {"type": str()}:
            return [body]
        case _:
            return []


TYPES = frozenset(
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

_OURS = r"invalid|policy|context_length|image|not_found|unsupported|misalign|residency"
_STATUS_OF = {
    "server_error": 500,
    "rate_limit_exceeded": 429,
    "vector_store_timeout": 504,
    "insufficient_quota": 429,
    "server_is_overloaded": 503,
    "slow_down": 503,
}


def _turned(
    reading: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta | StreamError, ...]]:
    """Items begin and end, and so does the answer."""
    match event.type:
        case "response.output_item.added":
            open_items = reading.open_items + 1
            began = replace(reading, heard=True, fed=False, open_items=open_items)
            return _opened(began, event)
        case "response.output_item.done":
            left = max(reading.open_items - 1, 0)
            return _closed(replace(reading, open_items=left), event)
        case "response.completed" | "response.incomplete" | "response.failed":
            ended = event.response or _Response()
            return _finished(reading, ended, event.type.removeprefix("response."))
        case "response.done":  # of some go-betweens, as in OpenAI's Realtime API
            ended = event.response or _Response()
            return _finished(reading, ended, ended.status or "completed")
        case "error":
            bare = {"code": event.code, "message": event.message}
            return reading, (_trouble(event.error or bare),)
        case _:
            return reading, ()


def _fed(reading: ResponsesStreamState) -> ResponsesStreamState:
    return reading if reading.fed else replace(reading, heard=True, fed=True)


def _opened(
    reading: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta, ...]]:
    match event.item:
        case {"type": "mcp_call", "server_label": server} as found if (
            server in reading.hosting
        ):
            from refold.provider.hosted_mcp import openai_began

            return reading, openai_began(cast("dict[str, Any]", found))
        case {"type": "function_call", **item}:
            known = _Known(event.output_index, str(item.get("id") or item.get("call_id")))
            call_id, name = str(item.get("call_id") or ""), str(item.get("name") or "")
            began = CallDelta(len(reading.calls), "", call_id, name)
            return replace(reading, calls=(*reading.calls, known)), (began,)
        case {"type": "message", "phase": str(phase)}:
            # Commentary or final answer: the model wants to read it again as that.
            data = Raw(msgspec.json.encode({"phase": phase}))
            return reading, (ThinkingDelta("", reading.keeping, data),)
        case _:
            return reading, ()


def _argued(
    reading: ResponsesStreamState, event: Event, piece: str | None
) -> tuple[ResponsesStreamState, tuple[Delta, ...]]:
    ours = _place(reading, event.output_index, event.item_id)
    if ours is None or not piece:
        return reading, ()
    known = reading.calls[ours]
    if not known.fed:
        now = (*reading.calls[:ours], replace(known, fed=True), *reading.calls[ours + 1 :])
        reading = replace(reading, calls=now)
    return reading, (CallDelta(ours, piece),)


def _argued_whole(
    reading: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta, ...]]:
    """The arguments at once, from a server that has not sent them in pieces."""
    ours = _place(reading, event.output_index, event.item_id)
    if ours is None or reading.calls[ours].fed:
        return reading, ()
    return _argued(reading, event, event.arguments)


def _closed(
    reading: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta, ...]]:
    """The complete item: the parts that did not arrive in pieces are returned now."""
    fed, reading = reading.fed, replace(reading, heard=True, fed=False)
    match event.item:
        case {"type": "function_call", **item}:
            began: tuple[Delta, ...] = ()
            theirs = str(item.get("id") or item.get("call_id"))
            ours = _place(reading, event.output_index, theirs)
            if ours is None:
                reading, began = _opened(reading, event)
            elif reading.calls[ours].fed:
                return reading, ()
            pointed = replace(event, item_id=theirs)
            reading, whole = _argued(reading, pointed, str(item.get("arguments") or ""))
            return reading, (*began, *whole)
        case {"type": "mcp_call" | "mcp_list_tools", "server_label": server} as found if (
            server in reading.hosting
        ):
            from refold.provider.hosted_mcp import openai_ended

            return reading, openai_ended(cast("dict[str, Any]", found), reading.keeping)
        case {"type": "reasoning"} as found:
            item = cast("dict[str, Any]", found)
            text = "" if fed else "\n\n".join(_texts(item))
            if item.get("encrypted_content") or item.get("content"):
                whole = ThinkingDelta(text, reading.keeping, Raw(_json(item)))
                return reading, (whole,)
            return reading, (ThinkingDelta(text),) if text else ()
        case {"type": "message"} as found if not fed:
            item = cast("dict[str, Any]", found)
            refused = any("refusal" in part for part in item.get("content") or ())
            reading = replace(reading, refused=reading.refused or refused)
            return reading, tuple(TextDelta(text) for text in _texts(item))
        case _:
            return reading, ()


def _finished(
    reading: ResponsesStreamState, ended: _Response, kind: str
) -> tuple[ResponsesStreamState, tuple[Delta | StreamError, ...]]:
    found: list[Delta | StreamError] = []
    if not reading.heard:  # some servers stream nothing but the end
        for index, item in enumerate(ended.output or ()):
            event = Event("", item=item, output_index=index)
            reading, told = _closed(reading, event)
            found += told
    status = ended.status or kind
    reason = (ended.incomplete_details or {}).get("reason")
    stop: Stop = "calls" if reading.calls else "end"
    why = ""
    if status == "incomplete" and reason == "max_output_tokens":
        stop = "length"
    elif reading.refused or (status == "incomplete" and reason == "content_filter"):
        stop, why = "refused", str(reason or "")
    elif status == "incomplete":
        return reading, (StreamError(500, f"the answer is incomplete: {reason}"),)
    elif status != "completed":
        return reading, (_trouble(ended.error or f"the answer was {status}"),)
    done = Done(_usage(ended.usage), stop, ended.model or "", why=why)
    return reading, (*found, done)


def _place(
    reading: ResponsesStreamState, theirs: int | None, item: str | None
) -> int | None:
    """Which of our calls is meant: by its place, or by its id where there is none."""
    for ours, known in enumerate(reading.calls):
        if known.theirs == theirs if theirs is not None else known.item == item:
            return ours
    return None


def _texts(item: dict[str, Any]) -> Iterable[str]:
    for part in [*(item.get("summary") or ()), *(item.get("content") or ())]:
        if said := part.get("text") or part.get("refusal"):
            yield said


def _json(item: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(item)
    except (UnicodeEncodeError, OverflowError):  # half a character in a summary
        return msgspec.json.encode({**item, "summary": []})


def _usage(used: _Usage | None) -> Usage:
    used = used or _Usage()
    return openai_usage(
        used.input_tokens,
        used.output_tokens,
        used.input_tokens_details,
        used.output_tokens_details,
    )


def _trouble(error: Any) -> StreamError:
    match error:
        case {"message": str(message), **more}:
            code = str(more.get("code") or more.get("type") or "")
        case _:
            return StreamError(500, str(error))
    status = _STATUS_OF.get(code, 400 if re.search(_OURS, code) else 500)
    return StreamError(status, f"{code}: {message}" if code else message)
