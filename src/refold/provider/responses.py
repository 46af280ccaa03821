"""OpenAI's Responses API, and the servers compatible with it.

`to_wire` and `message_to_wire` encode a request and are pure; `responses_stream` parses the
events of a response. `OpenAIResponses` connects the two with HTTP. The server stores
nothing: each request has the whole conversation, with encrypted reasoning items that are
returned unchanged.

https://platform.openai.com/docs/api-reference/responses
"""

from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from refold.provider import sanitize
from refold.provider.api_client import Http
from refold.provider.capability_fallback import CapabilityFallback
from refold.provider.efforts import OPENAI, Level, level
from refold.provider.encoding_cache import EchoOptions, EncodedPiece, body_with
from refold.provider.image_fallback import Hidden, ImageFallback
from refold.provider.images import BLIND, Encodings, Seen, Shown, joined, result, seen
from refold.provider.port import NO_PICTURES, Delta, Pictures, Request
from refold.provider.responses_stream import (
    TYPES,
    WIRE,
    Event,
    ResponsesStreamState,
    ending,
    events_of_body,
    from_wire,
)
from refold.provider.sse import Events
from refold.provider.wire_stream import Reader, deltas
from refold.values.messages import Message, Text, Thinking, ToolCall, ToolResult
from refold.values.text import clean

# What a model or an account may refuse: pictures, a schema, a key to its cache, each
# effort; to sum its reasoning up for people, to hand it out encrypted, to take
# back what another one has encrypted, and to connect to MCP servers.
Extra: TypeAlias = (
    Literal[
        "pictures",
        "schema",
        "cache",
        "summary",
        "encrypted",
        "kept",
        "temperature",
        "hosted",
    ]
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
    tools: list[dict[str, Any]] = [
        {
            "type": "function",
            "name": t.name,
            "description": t.description,
            "parameters": t.parameters,
            "strict": False,  # strict is the default, and refuses most schemas
        }
        for t in request.tools
    ]
    if request.hosted and "hosted" not in without:
        from refold.provider.hosted_mcp import openai_tools

        tools += openai_tools(request.hosted)
    if tools:
        body["tools"] = tools
        body["tool_choice"] = request.tool_choice
    return body_with(body, "input", items)


_OURS = EchoOptions(WIRE)  # reasoning is that of this wire, and no server is named


def message_to_wire(
    message: Message,
    pictures: Pictures = NO_PICTURES,
    *,
    manner: EchoOptions = _OURS,
) -> Iterator[EncodedPiece]:
    """A message as items."""
    if message.role == "assistant":
        items = [*_answered(message, manner)]
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


def _answered(message: Message, manner: EchoOptions) -> Iterator[dict[str, Any]]:
    phase: dict[str, Any] = {}  # of the words that come next
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                said = {"type": "message", "role": "assistant", **phase}
                yield {**said, "content": sanitize.text(text)}
                phase = {}
            case Thinking(_, wire, data) if wire and wire == manner.keeping:
                match _decoded(data):
                    case {"type": "reasoning", **_more} as item:
                        yield cast("dict[str, Any]", item)
                    case {"hosted": str()} as kept:
                        yield from _recalled(cast("dict[str, Any]", kept), manner.hosting)
                    case {"phase": str()} as found:
                        phase = cast("dict[str, Any]", found)
                    case _:
                        continue
            case ToolCall(id_):
                made = sanitize.original_call(part)
                # Our own id: theirs may be missing, come twice, or be another wire's.
                yield {
                    "type": "function_call",
                    "call_id": id_,
                    "name": sanitize.name(made.name),
                    "arguments": bytes(sanitize.arguments(made.arguments)).decode(),
                }
            case _:
                continue


def _recalled(kept: dict[str, Any], hosting: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    from refold.provider.hosted_mcp import recalled

    items, words = recalled(kept, hosting) or ([], "")
    yield from items
    if words:
        yield {"type": "message", "role": "assistant", "content": words}


def _decoded(data: Raw) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class OpenAIResponses:
    """GPT, and compatible servers, through its newer protocol."""

    def __init__(self, http: Http, keeping: str = WIRE, *, hosts_mcp: bool = False) -> None:
        self._http, self._keeping, self._hosts_mcp = http, keeping, hosts_mcp
        self._encoded = Encodings[EchoOptions](
            lambda manner: partial(message_to_wire, manner=manner)
        )
        self._concessions = CapabilityFallback[Extra](_ABOUT)
        self._images = ImageFallback()

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        model = request.model
        if request.hosted and not self._hosts_mcp:
            request = replace(request, hosted=())

        def ask(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            without = self._concessions.of(model)
            keeping = "" if "kept" in without else self._keeping
            hosted = () if "hosted" in without else request.hosted
            manner = EchoOptions(keeping, tuple(each.name for each in hosted))
            encoder = self._encoded.of(
                manner, shown="pictures" not in without, hidden=hidden
            )
            items = encoder.join(request.messages, request.pictures)
            body = to_wire(request, items, without)
            start = ResponsesStreamState(keeping=self._keeping, hosting=manner.hosting)
            splitter = partial(Events, events_of_body)
            reader = Reader(
                splitter, Event, start, from_wire, ending, over=b"[DONE]", types=TYPES
            )
            return deltas(
                self._http, "/responses", body, model, reader, trace=request.trace
            )

        def concede(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            return self._concessions.stream(model, partial(ask, hidden), _sent(request))

        return self._images.stream(request, concede)

    async def aclose(self) -> None:
        await self._http.aclose()


_ABOUT: dict[Extra, str] = {
    "hosted": r"\bmcp\b",
    "pictures": BLIND,
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
    if request.hosted:
        found.add("hosted")
    if request.session:
        found.add("cache")
    return frozenset(found)
