"""Anthropic's Messages API: requests, and the provider.

`to_wire` and `message_to_wire` encode a request and are pure; `anthropic_stream`
parses the events of a response. `Anthropic` connects the two with HTTP.

https://docs.anthropic.com/en/api/messages
"""

import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.provider import sanitize
from refold.provider.anthropic_stream import (
    EVENT_TYPES,
    WIRE_NAME,
    AnthropicStreamState,
    Event,
    done_if_complete,
    events_of_body,
    from_wire,
)
from refold.provider.api_client import Http
from refold.provider.capability_fallback import CapabilityFallback
from refold.provider.efforts import ANTHROPIC_BUDGETS, ANTHROPIC_LEVELS, Level, level
from refold.provider.encoding_cache import (
    EchoOptions,
    Encoded,
    EncodedPiece,
    IncrementalFold,
    body_with,
)
from refold.provider.image_fallback import Hidden, ImageFallback
from refold.provider.images import (
    NO_IMAGES_PATTERN,
    Content,
    Encodings,
    result_content,
    texts_and_images,
)
from refold.provider.port import NO_PICTURES, Delta, Pictures, Request
from refold.provider.sse import Events
from refold.provider.wire_stream import Reader, deltas
from refold.values.messages import (
    Image,
    Message,
    Part,
    StoredMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from refold.values.text import clean

API_VERSION = "2023-06-01"
MAX_OUTPUT_TOKENS = 32_000  # the API wants a number, and every current model allows this
LARGE_OUTPUT_TOKENS = 64_000  # every model with adaptive thinking allows this

# Features that a model may refuse. "kept": thoughts signed by another model or account;
# "hosted": MCP servers; "off": to switch thinking off; "room": more output
# tokens for long thinking; "display": summaries of thinking; and each effort.
Extra: TypeAlias = (
    Literal[
        "kept",
        "hosted",
        "pictures",
        "schema",
        "temperature",
        "off",
        "room",
        "display",
        "adaptive",
        "thinking",
    ]
    | Level
)


def to_wire(
    request: Request,
    messages: bytes,
    without: frozenset[Extra] = frozenset(),
    *,
    continues_without_thinking: bool = False,
) -> bytes:
    """Return the body of a request. `messages` is the joined output of `message_to_wire`.

    `without` are the features that the model has refused. `continues_without_thinking` says
    that the conversation ends in a run of calls that began without thinking.
    """
    body: dict[str, Any] = {
        "model": clean(request.model),
        "max_tokens": request.max_output or MAX_OUTPUT_TOKENS,
        "stream": True,
        # The server itself marks the last block for its cache, so its cached part only
        # grows at the end. With the two marks below and the one of `_mark_for_cache`, all
        # four marks are used.
        "cache_control": _CACHE_CONTROL,
    }
    if system := sanitize.text(request.system).strip():
        body["system"] = [{"type": "text", "text": system, "cache_control": _CACHE_CONTROL}]
    tools: list[dict[str, Any]] = [
        {"name": t.name, "description": t.description, "input_schema": t.parameters}
        for t in request.tools
    ]
    if tools:
        tools[-1]["cache_control"] = _CACHE_CONTROL
    if request.hosted and "hosted" not in without:
        from refold.provider.hosted_mcp import anthropic_fields, anthropic_toolsets

        body |= anthropic_fields(request.hosted)
        tools += anthropic_toolsets(request.hosted)
    if tools:
        body["tools"] = tools
        if request.tool_choice == "none":
            body["tool_choice"] = {"type": "none"}
    body |= _thinking(
        request, without, continues_without_thinking=continues_without_thinking
    )
    if request.temperature is not None and "temperature" not in without:
        body["temperature"] = request.temperature
    if sanitize.has_schema(request) and "schema" not in without:
        answer_format = {"type": "json_schema", "schema": request.schema}
        # `output_config` may already have the effort.
        body["output_config"] = {**body.get("output_config", {}), "format": answer_format}
    return body_with(body, "messages", messages)


# Thoughts are sent back to this wire, and no MCP server is named.
_OWN_ECHO = EchoOptions(WIRE_NAME)


def message_to_wire(
    message: Message,
    pictures: Pictures = NO_PICTURES,
    *,
    echo: EchoOptions = _OWN_ECHO,
) -> Iterator[EncodedPiece]:
    """Yield a message, encoded as blocks. `echo` selects the thinking that is sent again.

    Speakers must alternate, so `encoding_cache` merges neighbouring messages with the same
    head. The API requires results directly after the response that made the calls, so results
    come first in the user's message.
    """
    role = "assistant" if message.role == "assistant" else "user"
    blocks = [b for part in message.parts for b in _blocks(part, echo, pictures)]
    blocks += _failure_image_blocks(message, pictures)
    while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        blocks.pop()  # "the final block in an assistant message cannot be thinking"
    if not blocks and role == "user":
        blocks = [{"type": "text", "text": "(no words)"}]
    if blocks:
        body = b",".join(msgspec.json.encode(block) for block in blocks)
        yield EncodedPiece(body, b'{"role":"%s","content":[' % role.encode(), b"]}")


class Anthropic:
    """A provider for Claude, and for other models with the same protocol."""

    def __init__(
        self, http: Http, own_wire: str = WIRE_NAME, *, hosts_mcp: bool = False
    ) -> None:
        self._http, self._own_wire, self._hosts_mcp = http, own_wire, hosts_mcp
        self._encodings = Encodings[EchoOptions](
            lambda manner: partial(message_to_wire, echo=manner)
        )
        self._call_run = IncrementalFold(_CallRun(), _extend_run)
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
            messages = _mark_for_cache(request, encoded)
            call_run = self._call_run.fold(request.messages)
            body = to_wire(
                request,
                messages,
                without,
                continues_without_thinking=call_run.begins_without_thinking(own_wire),
            )
            start = AnthropicStreamState(
                own_wire=self._own_wire, mcp_servers=echo.mcp_servers
            )
            splitter = partial(Events, events_of_body)
            reader = Reader(
                splitter=splitter,
                event=Event,
                start=start,
                step=from_wire,
                ending=done_if_complete,
                types=EVENT_TYPES,
            )
            http = _with_mcp_beta(self._http) if hosted else self._http
            return deltas(http, "/v1/messages", body, request, reader)

        def stream_without_refused_features(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            features = _refusable_features(request)
            return self._capabilities.stream(model, partial(ask, hidden), features)

        return self._images.stream(request, stream_without_refused_features)

    async def aclose(self) -> None:
        await self._http.aclose()


def _with_mcp_beta(http: Http) -> Http:
    from refold.provider.hosted_mcp import BETA_HEADER

    return http.with_headers(BETA_HEADER)


_CACHE_CONTROL = {"type": "ephemeral"}
_CACHE_MARK = b',"cache_control":{"type":"ephemeral"}'

_REFUSAL_PATTERNS: dict[Extra, str] = {
    # This pattern is first, because a refusal of a stored thought names thinking, too.
    "kept": r"signature|redacted_thinking.*(modified|invalid)|invalid.*redacted_thinking",
    "hosted": r"\bmcp",
    "pictures": NO_IMAGES_PATTERN,
    "temperature": r"temperature",
    "off": r"thinking",
    "schema": r"output_config\.format|output_format|schema|grammar|structured",
    "max": r"effort",
    "xhigh": r"effort",
    "high": r"effort",
    "medium": r"effort",
    "low": r"effort",
    "room": r"max_tokens\b.*maximum",
    "display": r"display",
    "adaptive": r"adaptive",
    "thinking": r"thinking",
}

# Models that need a thinking budget in tokens. Later models choose it themselves, and some
# refuse one.
_BUDGET_MODELS_PATTERN = re.compile(
    r"claude-(\d|instant|(opus|sonnet|haiku)-4(-[0-5]\b|-\d{8}|$))"
)


def _mark_for_cache(request: Request, encoded: Encoded) -> bytes:
    """Return the encoded messages, with a cache mark where the previous request ended.

    The server looks for a cache entry only up to twenty blocks before a mark. A response with
    ten calls adds more blocks than that, so a mark at the end alone would miss the earlier
    entry.
    """
    messages = request.messages
    joined = encoded.join(messages, request.pictures)
    # The previous request had the messages before the last response.
    earlier_count = len(messages) - 1
    while earlier_count > 0 and messages[earlier_count].message.role != "assistant":
        earlier_count -= 1
    if earlier_count <= 0:  # there was no previous request
        return joined
    end = encoded.end_of(earlier_count)
    brace = end - 1  # it closes the last block, and the mark is a field of the block
    if joined[brace:end] != b"}":  # there is no block that can be marked
        return joined
    return joined[:brace] + _CACHE_MARK + joined[brace:]


def _refusable_features(request: Request) -> frozenset[Extra]:
    """Return the optional features of this request, which the model may refuse."""
    features: set[Extra] = {"kept"}
    if request.hosted:
        features.add("hosted")
    if request.pictures:
        features.add("pictures")
    if sanitize.has_schema(request):
        features.add("schema")
    if request.temperature is not None:
        features.add("temperature")
    if request.effort == "off":
        features.add("off")
    elif request.effort:
        features |= {
            "room",
            "display",
            "adaptive",
            "thinking",
            *ANTHROPIC_LEVELS[request.effort],
        }
    return frozenset(features)


def _thinking(
    request: Request, without: frozenset[Extra], *, continues_without_thinking: bool
) -> dict[str, Any]:
    """Return the fields that request thinking, in the form that the model accepts; {} for none.

    `without` are the features that the model has refused. `continues_without_thinking` says
    that a run of calls began without thinking, so no thinking budget is requested for its next
    response.
    """
    if not request.effort or "thinking" in without:
        return {}
    if request.effort == "off":
        return {} if "off" in without else {"thinking": {"type": "disabled"}}
    needs_budget = "adaptive" in without or _BUDGET_MODELS_PATTERN.match(request.model)
    if needs_budget:
        if continues_without_thinking:
            return {}
        budget = ANTHROPIC_BUDGETS[request.effort]
        max_tokens = MAX_OUTPUT_TOKENS
        if output_limit := request.max_output:
            # The budget counts as output, so it is added, up to what every model accepts.
            limit_with_budget = min(output_limit + budget, MAX_OUTPUT_TOKENS)
            max_tokens = max(output_limit, limit_with_budget)
        budget_fields = {"type": "enabled", "budget_tokens": budget}
        return {"max_tokens": max_tokens, "thinking": budget_fields}
    fields: dict[str, Any] = {"thinking": {"type": "adaptive"}}
    if "display" not in without:
        fields["thinking"]["display"] = "summarized"  # otherwise the newest models hide it
    if effort_word := level(ANTHROPIC_LEVELS, request.effort, without):
        fields["output_config"] = {"effort": effort_word}
    thinks_long = request.effort in ("high", "max") and "room" not in without
    if thinks_long and not request.max_output:
        fields["max_tokens"] = LARGE_OUTPUT_TOKENS
    return fields


class _CallRun(Struct, frozen=True):
    """The responses with calls, and their results, at the end of a conversation.

    Only the first response of a run has thinking before its calls. The API demands that "a
    final assistant message must start with a thinking block", so a run that began without
    thinking (less effort, another provider, or refused thinking) continues without it.
    """

    first: Message | None = None
    has_results: bool = False  # whether its last response has results

    def begins_without_thinking(self, own_wire: str) -> bool:
        """Whether the run has results, and its first response is sent without thinking."""
        if self.first is None or not self.has_results:
            return False
        echo = EchoOptions(own_wire)
        blocks = (block for part in self.first.parts for block in _blocks(part, echo))
        first_block = next(blocks, None)
        if first_block is None:
            return True
        return first_block["type"] not in ("thinking", "redacted_thinking")


def _extend_run(run: _CallRun, stored: StoredMessage) -> _CallRun:
    """Return the run at the end of a conversation to which the message `stored` was added."""
    message = stored.message
    match message.role:
        case "assistant":
            # Only a response after results continues a run; any other begins a new one.
            continues_run = run.first is not None and run.has_results
            return _CallRun(run.first if continues_run else message)
        case "tool":
            return run if run.has_results else replace(run, has_results=True)
        case "user":  # it does not end the run
            return run


def _blocks(
    part: Part, echo: EchoOptions, pictures: Pictures = NO_PICTURES
) -> Iterable[dict[str, Any]]:
    """Yield the API's blocks for a part of a message.

    Thinking that another wire stored is left out.
    """
    match part:
        case Text() | Image():
            yield from map(_to_block, texts_and_images([part], pictures))
        case Thinking(text, wire, data) if wire and wire == echo.own_wire:
            yield from _thinking_blocks(text, _decode_stored(data), echo.mcp_servers)
        case ToolCall(id_):
            call = sanitize.original_call(part)
            # Our own id is sent, because the provider's may be missing, repeated, or from
            # another wire.
            yield {
                "type": "tool_use",
                "id": id_,
                "name": sanitize.name(call.name),
                "input": sanitize.arguments(call.arguments),
            }
        case ToolResult(call_id):
            block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
            text, images = result_content(part, pictures)
            if part.failed:  # a failure must have a text, and cannot have images
                block |= {
                    "content": text if text.strip() else "(no words)",
                    "is_error": True,
                }
            elif images:
                contents = [text, *images] if text.strip() else images
                block["content"] = [_to_block(content) for content in contents]
            elif text.strip():
                block["content"] = text
            yield block
        case _:
            return


def _thinking_blocks(
    text: str, data: Any, mcp_servers: tuple[str, ...]
) -> Iterable[dict[str, Any]]:
    """Yield the blocks for stored thinking, or for stored calls that the provider made itself.

    `data` is the decoded value that was stored with `text`; None if it could not be decoded.
    Thinking without a signature is left out, because the API would refuse it.
    """
    match data:
        case {"signature": str(signature)}:
            yield {"type": "thinking", "thinking": clean(text), "signature": signature}
        case {"redacted": str(redacted)}:
            yield {"type": "redacted_thinking", "data": redacted}
        case {"hosted": str()}:
            from refold.provider.hosted_mcp import restore_parts

            blocks, words = restore_parts(data, mcp_servers) or ([], "")
            yield from blocks
            if words:
                yield {"type": "text", "text": words}
        case _:
            return


def _failure_image_blocks(message: Message, pictures: Pictures) -> Iterator[dict[str, Any]]:
    """Yield the images of the failed results of a message, as separate blocks.

    The API accepts only text in a failed result.
    """
    for part in message.parts:
        if isinstance(part, ToolResult) and part.failed:
            _, images = result_content(part, pictures)
            yield from map(_to_block, images)


def _to_block(content: Content) -> dict[str, Any]:
    """Return the block of the Messages API for a text or an encoded image."""
    if isinstance(content, str):
        return {"type": "text", "text": content}
    source = {"type": "base64", "media_type": content.kind, "data": content.data}
    return {"type": "image", "source": source}


def _decode_stored(data: Raw) -> Any:
    """Decode a stored value. Return None if it is not JSON."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None
