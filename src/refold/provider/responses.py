"""OpenAI's Responses API, and the servers compatible with it.

`to_wire` and `message_to_wire` encode a request, `from_wire` parses the events of a response;
they are pure. `OpenAIResponses` connects the two with HTTP. The server stores
nothing: each request has the whole conversation, with encrypted reasoning items that are
returned unchanged.

https://platform.openai.com/docs/api-reference/responses
https://platform.openai.com/docs/api-reference/responses-streaming
"""

import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from functools import partial
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.provider import sanitize
from refold.provider.capability_fallback import CapabilityFallback
from refold.provider.efforts import OPENAI, Level, level
from refold.provider.encoding_cache import EncodedPiece
from refold.provider.error_mapping import Trouble
from refold.provider.http import Http
from refold.provider.images import REFUSED, Encodings, Seen, Shown, joined, result, seen
from refold.provider.port import (
    NO_PICTURES,
    CallDelta,
    Delta,
    Done,
    Pictures,
    Request,
    Stop,
    TextDelta,
    ThinkingDelta,
)
from refold.provider.sse import Events
from refold.provider.wire_stream import Reader, deltas, openai_usage
from refold.values.messages import Message, Text, Thinking, ToolCall, ToolResult
from refold.values.text import clean
from refold.values.usage import Usage

WIRE = "openai-responses"  # and the name under which OpenAI's reasoning is kept

# What a model or an account may refuse: pictures, a schema, a key to its cache, each
# effort; to sum its reasoning up for people, to hand it out encrypted, and to take
# back what another one has encrypted.
Extra: TypeAlias = (
    Literal["pictures", "schema", "cache", "summary", "encrypted", "kept", "temperature"]
    | Level
)


def to_wire(
    request: Request, items: bytes, without: frozenset[Extra] = frozenset()
) -> bytes:
    """The body of a request, given its items, joined, from `message_to_wire`."""
    body: dict[str, Any] = {
        "model": clean(request.model),
        "stream": True,
        "store": False,
    }
    if "encrypted" not in without:
        body["include"] = ["reasoning.encrypted_content"]
    if request.temperature is not None and "temperature" not in without:
        body["temperature"] = request.temperature
    if reasoning := _reasoning(request, without):
        body["reasoning"] = reasoning
    if request.session and "cache" not in without:
        body["prompt_cache_key"] = sanitize.cache_key(request)
    if sanitize.schema(request) and "schema" not in without:
        wanted = {"name": "answer", "schema": request.schema, "strict": False}
        body["text"] = {"format": {"type": "json_schema", **wanted}}
    if system := sanitize.text(request.system).strip():
        body["instructions"] = system
    if request.max_output:
        body["max_output_tokens"] = request.max_output
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": t.name,
                "description": t.description,
                "parameters": t.parameters,
                "strict": False,  # strict is the default, and refuses most schemas
            }
            for t in request.tools
        ]
        body["tool_choice"] = request.tool_choice
    body["input"] = Raw(b"[" + items + b"]")
    return msgspec.json.encode(body)


def message_to_wire(
    message: Message, pictures: Pictures = NO_PICTURES, *, keeping: str = WIRE
) -> Iterator[EncodedPiece]:
    """A message as items.

    `keeping`: the name under which reasoning that goes back is kept; "": none does.
    """
    if message.role == "assistant":
        items = [*_answered(message, keeping)]
        while items and items[-1]["type"] == "reasoning":
            items.pop()  # "provided without its required following item"
    else:
        items = [*_told(message, pictures)]
    for item in items:
        yield EncodedPiece(msgspec.json.encode(item))


def _reasoning(request: Request, without: frozenset[Extra]) -> dict[str, str]:
    found: dict[str, str] = {}
    if "summary" not in without:
        found["summary"] = "auto"  # else nothing is told of it
    if wished := level(OPENAI, request.effort, without):
        found["effort"] = wished
    return found


def _told(message: Message, pictures: Pictures) -> Iterator[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, ToolResult):
            text, images = result(part, pictures)
            told = [text] if text.strip() else []
            yield {
                "type": "function_call_output",
                "call_id": part.call_id,
                "output": [*map(_shown, [*told, *images])] if images else text,
            }
    said = seen(message.parts, pictures)
    if any(isinstance(each, Shown) for each in said):
        yield {"type": "message", "role": "user", "content": [*map(_shown, said)]}
    elif said or message.role == "user":
        words = joined(said) or "(no words)"
        yield {"type": "message", "role": "user", "content": words}


def _shown(thing: Seen) -> dict[str, str]:
    if isinstance(thing, str):
        return {"type": "input_text", "text": thing}
    return {"type": "input_image", "image_url": thing.url, "detail": "auto"}


def _answered(message: Message, keeping: str) -> Iterator[dict[str, Any]]:
    phase: dict[str, Any] = {}  # of the words that come next
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                said = {"type": "message", "role": "assistant", **phase}
                yield {**said, "content": sanitize.text(text)}
                phase = {}
            case Thinking(_, wire, data) if wire and wire == keeping:
                match _decoded(data):
                    case {"type": "reasoning", **_more} as item:
                        yield cast("dict[str, Any]", item)
                    case {"phase": str()} as found:
                        phase = cast("dict[str, Any]", found)
                    case _:
                        continue
            case ToolCall(id_):
                made = sanitize.as_made(part)
                # Our own id: theirs may be missing, come twice, or be another wire's.
                yield {
                    "type": "function_call",
                    "call_id": id_,
                    "name": sanitize.name(made.name),
                    "arguments": bytes(sanitize.arguments(made.arguments)).decode(),
                }
            case _:
                continue


def _decoded(data: Raw) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Event(Struct, frozen=True):
    """Any event of the stream; what a type does not have keeps its default."""

    type: str
    delta: str | None = None
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
    refused: bool = False
    keeping: str = WIRE  # the name under which reasoning is kept for its maker


def from_wire(
    reading: ResponsesStreamState, event: Event
) -> tuple[ResponsesStreamState, tuple[Delta | Trouble, ...]]:
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
        case _:
            return _turned(reading, event)


TYPES = frozenset(
    {
        "error",
        "response.completed",
        "response.failed",
        "response.function_call_arguments.delta",
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
) -> tuple[ResponsesStreamState, tuple[Delta | Trouble, ...]]:
    """Items begin and end, and so does the answer."""
    match event.type:
        case "response.output_item.added":
            return _opened(replace(reading, heard=True, fed=False), event)
        case "response.output_item.done":
            return _closed(reading, event)
        case "response.completed" | "response.incomplete" | "response.failed":
            ended = event.response or _Response()
            return _finished(reading, ended, event.type.removeprefix("response."))
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
        case {"type": "function_call", **item}:
            known = _Known(event.output_index, str(item.get("id") or item.get("call_id")))
            began = CallDelta(len(reading.calls), "", *_named(item))
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
) -> tuple[ResponsesStreamState, tuple[Delta | Trouble, ...]]:
    found: list[Delta | Trouble] = []
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
        return reading, (Trouble(500, f"the answer is incomplete: {reason}"),)
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


def _named(item: dict[str, Any]) -> tuple[str, str]:
    return str(item.get("call_id") or ""), str(item.get("name") or "")


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


def _trouble(error: Any) -> Trouble:
    match error:
        case {"message": str(message), **more}:
            code = str(more.get("code") or more.get("type") or "")
        case _:
            return Trouble(500, str(error))
    status = _STATUS_OF.get(code, 400 if re.search(_OURS, code) else 500)
    return Trouble(status, f"{code}: {message}" if code else message)


class OpenAIResponses:
    """GPT, and compatible servers, through its newer protocol."""

    def __init__(self, http: Http, keeping: str = WIRE) -> None:
        self._http, self._keeping = http, keeping
        self._encoded = Encodings[str](
            lambda keeping: partial(message_to_wire, keeping=keeping)
        )
        self._concessions = CapabilityFallback[Extra](_ABOUT)

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        model = request.model

        def ask() -> AsyncGenerator[Delta, None]:
            without = self._concessions.of(model)
            keeping = "" if "kept" in without else self._keeping
            encoder = self._encoded.of(keeping, shown="pictures" not in without)
            items = encoder.join(request.messages, request.pictures)
            body = to_wire(request, items, without)
            start = ResponsesStreamState(keeping=self._keeping)
            reader = Reader(Events, Event, start, from_wire, types=TYPES)
            return deltas(
                self._http, "/responses", body, model, reader, trace=request.trace
            )

        return self._concessions.stream(model, ask, _sent(request))

    async def aclose(self) -> None:
        await self._http.aclose()


_ABOUT: dict[Extra, str] = {
    "pictures": REFUSED,
    "temperature": r"temperature",
    "cache": r"prompt.?cache.?key",
    "schema": r"text\.format|json_schema|response_format|schema",
    "max": r"effort|'max'",
    "xhigh": r"effort|'xhigh'",
    "high": r"effort|'high'",
    "medium": r"effort|'medium'",
    "none": r"effort|'none'",
    "minimal": r"effort|'minimal'",
    "low": r"effort|'low'",
    "kept": r"could not be (verified|decrypted)|invalid_encrypted_content|\brs_\w",
    "encrypted": r"encrypted.content is not supported|reasoning\.encrypted|'include",
    "summary": r"summary|summaries|reasoning\b.*not supported|unsupported.*reasoning",
}


def _sent(request: Request) -> frozenset[Extra]:
    """What a refusal of this request may be about."""
    found: set[Extra] = {"kept", "encrypted", "summary", *OPENAI.get(request.effort, ())}
    if request.temperature is not None:
        found.add("temperature")
    if request.pictures:
        found.add("pictures")
    if sanitize.schema(request):
        found.add("schema")
    if request.session:
        found.add("cache")
    return frozenset(found)
