"""A provider for OpenAI's Responses API, and the servers compatible with it.

`to_wire` and `message_to_wire` encode a request and are pure; `responses_stream` parses the
events of a response. `OpenAIResponses` connects the two with HTTP. The server stores nothing:
each request has the whole conversation, with encrypted reasoning items that are returned
unchanged.

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
from refold.provider.efforts import OPENAI_LEVELS, Level, level
from refold.provider.encoding_cache import EchoOptions, EncodedPiece, body_with
from refold.provider.image_fallback import Hidden, ImageFallback
from refold.provider.images import (
    NO_IMAGES_PATTERN,
    Content,
    EncodedImage,
    Encodings,
    join_texts,
    result_content,
    texts_and_images,
)
from refold.provider.port import NO_PICTURES, Delta, Pictures, Request
from refold.provider.responses_stream import (
    EVENT_TYPES,
    WIRE_NAME,
    Event,
    ResponsesStreamState,
    done_if_complete,
    events_of_body,
    from_wire,
)
from refold.provider.sse import Events
from refold.provider.wire_stream import Reader, deltas
from refold.values.messages import Message, Text, Thinking, ToolCall, ToolResult
from refold.values.text import clean

# Features that a model or an account may refuse. "cache": a cache key;
# "summary": summaries of its reasoning; "encrypted": encrypted reasoning; "kept": reasoning
# encrypted for another account; "hosted": MCP servers; and each effort.
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
    """Return the body of a request. `items` is the joined output of `message_to_wire`.

    `without` are the features that the model has refused.
    """
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
    if sanitize.has_schema(request) and "schema" not in without:
        json_schema = {"name": "answer", "schema": request.schema, "strict": False}
        body["text"] = {"format": {"type": "json_schema", **json_schema}}
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
            "strict": False,  # strict is the default, and rejects most schemas
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


# Reasoning is sent back to this wire, and no MCP server is named.
_OWN_ECHO = EchoOptions(WIRE_NAME)


def message_to_wire(
    message: Message,
    pictures: Pictures = NO_PICTURES,
    *,
    echo: EchoOptions = _OWN_ECHO,
) -> Iterator[EncodedPiece]:
    """Yield a message, encoded as items. `echo` selects the reasoning that is sent again."""
    if message.role == "assistant":
        items = [*_assistant_items(message, echo)]
        while items and items[-1]["type"] == "reasoning":
            items.pop()  # "provided without its required following item"
    else:
        items = [*_user_items(message, pictures)]
    for item in items:
        yield EncodedPiece(msgspec.json.encode(item))


def _reasoning(request: Request, without: frozenset[Extra]) -> dict[str, str]:
    """Return the options for reasoning, without those in `without`; {} if there are none."""
    fields: dict[str, str] = {}
    if "summary" not in without:
        fields["summary"] = "auto"  # otherwise reasoning is not returned
    if effort_word := level(OPENAI_LEVELS, request.effort, without):
        fields["effort"] = effort_word
    return fields


def _user_items(message: Message, pictures: Pictures) -> Iterator[dict[str, Any]]:
    """Yield the results in a message, then its text and images as one item."""
    for part in message.parts:
        if isinstance(part, ToolResult):
            text, images = result_content(part, pictures)
            output: str | list[dict[str, str]] = text
            if images:
                contents = [text, *images] if text.strip() else images
                output = [_to_content(content) for content in contents]
            yield {
                "type": "function_call_output",
                "call_id": part.call_id,
                "output": output,
            }
    contents = texts_and_images(message.parts, pictures)
    if any(isinstance(content, EncodedImage) for content in contents):
        yield {"type": "message", "role": "user", "content": [*map(_to_content, contents)]}
    elif contents or message.role == "user":
        words = join_texts(contents) or "(no words)"
        yield {"type": "message", "role": "user", "content": words}


def _to_content(content: Content) -> dict[str, str]:
    if isinstance(content, str):
        return {"type": "input_text", "text": content}
    return {"type": "input_image", "image_url": content.url, "detail": "auto"}


def _assistant_items(message: Message, echo: EchoOptions) -> Iterator[dict[str, Any]]:
    """Yield the texts, the calls and the reasoning of a response in their order.

    Reasoning that another wire stored is left out.
    """
    phase: dict[str, Any] = {}  # the phase of the text that follows
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                item_fields = {"type": "message", "role": "assistant", **phase}
                yield {**item_fields, "content": sanitize.text(text)}
                phase = {}
            case Thinking(_, wire, data) if wire and wire == echo.own_wire:
                match _decode_stored(data):
                    case {"type": "reasoning", **_more} as item:
                        yield cast("dict[str, Any]", item)
                    case {"hosted": str()} as kept:
                        yield from _hosted_items(
                            cast("dict[str, Any]", kept), echo.mcp_servers
                        )
                    case {"phase": str()} as stored_item:
                        phase = cast("dict[str, Any]", stored_item)
                    case _:
                        continue
            case ToolCall(id_):
                call = sanitize.original_call(part)
                # Our own id is sent, because the provider's may be missing, repeated, or
                # from another wire.
                yield {
                    "type": "function_call",
                    "call_id": id_,
                    "name": sanitize.name(call.name),
                    "arguments": bytes(sanitize.arguments(call.arguments)).decode(),
                }
            case _:
                continue


def _hosted_items(
    data: dict[str, Any], mcp_servers: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """Yield the items of a stored call of an MCP tool that the provider called itself.

    If the call's server is not in `mcp_servers`, yield a description of the call instead.
    """
    from refold.provider.hosted_mcp import restore_parts

    items, words = restore_parts(data, mcp_servers) or ([], "")
    yield from items
    if words:
        yield {"type": "message", "role": "assistant", "content": words}


def _decode_stored(data: Raw) -> Any:
    """Decode a stored value. Return None if it is not JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class OpenAIResponses:
    """A provider for GPT models and compatible servers, with OpenAI's newer protocol."""

    def __init__(
        self, http: Http, own_wire: str = WIRE_NAME, *, hosts_mcp: bool = False
    ) -> None:
        self._http, self._own_wire, self._hosts_mcp = http, own_wire, hosts_mcp
        self._encodings = Encodings[EchoOptions](
            lambda manner: partial(message_to_wire, echo=manner)
        )
        self._capabilities = CapabilityFallback[Extra](_REFUSAL_PATTERNS)
        self._images = ImageFallback()

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response. Features and images that the model refuses are left out."""
        model = request.model
        if request.hosted and not self._hosts_mcp:
            request = replace(request, hosted=())

        def ask(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            """Send the request once. The images in `hidden` are described in words."""
            without = self._capabilities.features_to_leave_out(model)
            own_wire = "" if "kept" in without else self._own_wire
            hosted = () if "hosted" in without else request.hosted
            echo = EchoOptions(own_wire, tuple(server.name for server in hosted))
            encoded = self._encodings.encoding_for(
                echo, shown="pictures" not in without, hidden=hidden
            )
            items = encoded.join(request.messages, request.pictures)
            body = to_wire(request, items, without)
            start = ResponsesStreamState(
                own_wire=self._own_wire, mcp_servers=echo.mcp_servers
            )
            splitter = partial(Events, events_of_body)
            reader = Reader(
                splitter=splitter,
                event=Event,
                start=start,
                step=from_wire,
                ending=done_if_complete,
                end_mark=b"[DONE]",
                types=EVENT_TYPES,
            )
            return deltas(self._http, "/responses", body, request, reader)

        def stream_without_refused_features(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            return self._capabilities.stream(
                model, partial(ask, hidden), _refusable_features(request)
            )

        return self._images.stream(request, stream_without_refused_features)

    async def aclose(self) -> None:
        await self._http.aclose()


_REFUSAL_PATTERNS: dict[Extra, str] = {
    "hosted": r"\bmcp\b",
    "pictures": NO_IMAGES_PATTERN,
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


def _refusable_features(request: Request) -> frozenset[Extra]:
    """Return the optional features of this request, which the model may refuse."""
    features: set[Extra] = {
        "kept",
        "encrypted",
        "summary",
        *OPENAI_LEVELS.get(request.effort, ()),
    }
    if request.temperature is not None:
        features.add("temperature")
    if request.pictures:
        features.add("pictures")
    if sanitize.has_schema(request):
        features.add("schema")
    if request.hosted:
        features.add("hosted")
    if request.session:
        features.add("cache")
    return frozenset(features)
