"""A provider for OpenAI's Chat Completions API, and the many servers compatible with it.

`to_wire` and `message_to_wire` encode a request and are pure; `openai_chat_stream` parses the
chunks of a response. `OpenAIChat` connects the two with HTTP. `Quirks` lists the differences
between servers.

https://platform.openai.com/docs/api-reference/chat
"""

from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.provider import sanitize
from refold.provider.api_client import Http
from refold.provider.capability_fallback import CapabilityFallback
from refold.provider.efforts import OPENAI_LEVELS, Level, level
from refold.provider.encoding_cache import Encode, EncodedPiece, IncrementalFold, body_with
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
from refold.provider.openai_chat_stream import (
    ChatStreamState,
    Chunk,
    done_if_complete,
    from_wire,
)
from refold.provider.port import NO_PICTURES, Delta, Pictures, Request
from refold.provider.sanitize import NO_SYSTEM_PATTERN, SystemAsUser, functions
from refold.provider.spec import Quirks
from refold.provider.sse import Events, WholeBody
from refold.provider.wire_stream import Reader, deltas
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text, Thinking, ToolResult
from refold.values.text import clean

DEFAULT_QUIRKS = Quirks(output_limit="max_completion_tokens")
BRIDGE_TEXT = "(read)"  # the text of a bridge message

# Features that a model or a server may refuse.
Extra: TypeAlias = (
    Literal["system", "pictures", "schema", "cache", "kept", "temperature"]
    | Level
    # Variants that a server may require. "usage": no usage in streams; "ids": short ids;
    # "back": the thinking of calls is sent back; "bridge": a response between a result and a
    # user's message; "limit": the other name of the output limit.
    | Literal["usage", "ids", "back", "bridge", "limit"]
)


def to_wire(
    request: Request,
    messages: bytes,
    quirks: Quirks = DEFAULT_QUIRKS,
    without: frozenset[Extra] = frozenset(),
) -> bytes:
    """Return the body of a request. `messages` is the joined output of `message_to_wire`.

    `without` are the features that the model has refused.
    """
    system_message = b""
    if system := sanitize.text(request.system).strip():
        system_message = msgspec.json.encode({"role": "system", "content": system})
    body: dict[str, Any] = {"model": clean(request.model), "stream": quirks.stream}
    if quirks.stream and "usage" not in without:
        body["stream_options"] = {"include_usage": True}  # otherwise usage is not reported
    if quirks.costs:
        body["usage"] = {"include": True}
    if request.max_output:
        body[quirks.output_limit] = request.max_output
    if request.tools:
        body["tools"] = functions(request.tools)
        body["tool_choice"] = request.tool_choice
    effort_word = level(OPENAI_LEVELS, request.effort, without)
    if effort_word and quirks.effort_in:
        is_object = quirks.effort_in == "reasoning"  # all other fields take the word alone
        body[quirks.effort_in] = {"effort": effort_word} if is_object else effort_word
    if request.temperature is not None and "temperature" not in without:
        body["temperature"] = request.temperature
    if _asks_for_schema(request, quirks) and "schema" not in without:
        json_schema = {"name": "answer", "schema": request.schema, "strict": False}
        body["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    if request.session and quirks.cache_key and "cache" not in without:
        body["prompt_cache_key"] = sanitize.cache_key(request)
    return body_with(body, "messages", system_message, messages)


def message_to_wire(
    message: Message,
    pictures: Pictures = NO_PICTURES,
    *,
    quirks: Quirks = DEFAULT_QUIRKS,
    with_details: bool = True,
) -> Iterator[EncodedPiece]:
    """Yield a message, encoded as one message of the API for each result and one for the rest.

    If `with_details`, reasoning that only its own server can read is included.
    """
    yield from _result_pieces(message, pictures, quirks)
    contents = texts_and_images(message.parts, pictures)
    if message.role == "assistant":
        text = join_texts(contents)
        yield from _answer_pieces(message, text, quirks, with_details=with_details)
    elif any(isinstance(content, EncodedImage) for content in contents):
        yield _piece({"role": "user", "content": [*map(_to_content, contents)]})
    elif contents or message.role == "user":
        yield _piece({"role": "user", "content": join_texts(contents) or "(no words)"})


class OpenAIChat:
    """A provider for GPT models and nearly all other servers, with OpenAI's older protocol."""

    def __init__(self, http: Http, quirks: Quirks = DEFAULT_QUIRKS) -> None:
        bridge = StoredMessage(0, Message("assistant", (Text(BRIDGE_TEXT),)))
        self._http, self._quirks = http, quirks
        self._encodings = Encodings[tuple[bool, Quirks]](_encoder)
        self._bridge_fold = IncrementalFold(
            _BridgeState(Log()), partial(_add_bridge, bridge)
        )
        self._system_as_user = SystemAsUser()
        self._capabilities = CapabilityFallback[Extra](_REFUSAL_PATTERNS)
        self._images = ImageFallback()

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response. Features and images that the model refuses are left out."""
        model = request.model

        def ask(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            """Send the request once. The images in `hidden` are described in words."""
            without = self._capabilities.features_to_leave_out(model)
            quirks = _adapt_quirks(self._quirks, without)
            sent = self._system_as_user.apply(request) if "system" in without else request
            conversation = sent.messages
            # The server requires a response between a result and a message of the user.
            if quirks.bridged:
                conversation = self._bridge_fold.fold(conversation).conversation
            with_details = "kept" not in without
            encoded = self._encodings.encoding_for(
                (with_details, quirks), shown="pictures" not in without, hidden=hidden
            )
            messages = encoded.join(conversation, request.pictures)
            body = to_wire(sent, messages, quirks, without)
            splitter = Events if quirks.stream else WholeBody
            start = ChatStreamState(own_wire=quirks.details)
            reader = Reader(
                splitter=splitter,
                event=Chunk,
                start=start,
                step=from_wire,
                ending=done_if_complete,
                end_mark=b"[DONE]",
                think_tags=True,
            )
            return deltas(self._http, "/chat/completions", body, request, reader)

        def stream_without_refused_features(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            features = _refusable_features(request, self._quirks)
            bridged = self._bridge_fold.fold(request.messages).conversation
            lacks_bridge = len(bridged) > len(request.messages)
            if lacks_bridge and not self._quirks.bridged:
                features = _BRIDGE_FEATURE | features
            return self._capabilities.stream(model, partial(ask, hidden), features)

        return self._images.stream(request, stream_without_refused_features)

    async def aclose(self) -> None:
        await self._http.aclose()


def _encoder(manner: tuple[bool, Quirks]) -> Encode:
    """Return an encoder of messages. `manner` is `with_details` and the server's quirks."""
    with_details, quirks = manner
    return partial(message_to_wire, with_details=with_details, quirks=quirks)


_REFUSAL_PATTERNS: dict[Extra, str] = {
    "system": NO_SYSTEM_PATTERN,
    "bridge": r"roles must alternate|unexpected role 'user' after role 'tool'",
    "usage": r"stream_options|include_usage",
    "ids": r"tool.?call.?id\b.{0,80}\bmust be\b",
    "back": r"reasoning_content",
    "limit": r"max_completion_tokens|max_tokens['\"`]* (is|are) (not supported|unsupported)",
    "pictures": NO_IMAGES_PATTERN,
    "temperature": r"temperature",
    "cache": r"prompt.?cache.?key",
    "schema": r"response_format|json_schema|schema|grammar|structured",
    "max": r"effort|reasoning",
    "xhigh": r"effort|reasoning",
    "high": r"effort|reasoning",
    "medium": r"effort|reasoning",
    "none": r"effort|reasoning",
    "minimal": r"effort|reasoning",
    "low": r"effort|reasoning",
    "kept": r"signature|reasoning.details|thinking.*block|encrypted",
}


_BRIDGE_FEATURE: frozenset[Extra] = frozenset(("bridge",))


def _adapt_quirks(quirks: Quirks, without: frozenset[Extra]) -> Quirks:
    """Return the quirks, changed so that requests avoid what the server has refused."""
    if "ids" in without:
        quirks = replace(quirks, short_ids=True)
    if "back" in without:
        quirks = replace(quirks, thinking_back="reasoning_content")
    if "bridge" in without:
        quirks = replace(quirks, bridged=True)
    if "limit" in without:
        is_older_name = quirks.output_limit == "max_tokens"
        new_name = "max_completion_tokens" if is_older_name else "max_tokens"
        quirks = replace(quirks, output_limit=new_name)
    return quirks


def _refusable_features(request: Request, quirks: Quirks) -> frozenset[Extra]:
    """Return the optional features of this request, which the model may refuse."""
    features = _refusable_variants(request, quirks)
    features |= {*OPENAI_LEVELS.get(request.effort, ())}
    if request.temperature is not None:
        features.add("temperature")
    if request.system.strip():
        features.add("system")
    if request.pictures:
        features.add("pictures")
    if _asks_for_schema(request, quirks):
        features.add("schema")
    if request.session and quirks.cache_key:
        features.add("cache")
    if quirks.details:
        features.add("kept")
    return frozenset(features)


def _refusable_variants(request: Request, quirks: Quirks) -> set[Extra]:
    """Return the changes, such as short ids, that a refusal of this request can lead to."""
    variants = set[Extra]()
    if not quirks.short_ids:
        variants.add("ids")
    if not quirks.thinking_back:
        variants.add("back")
    if quirks.stream:
        variants.add("usage")
    if request.max_output:
        variants.add("limit")
    return variants


def _asks_for_schema(request: Request, quirks: Quirks) -> bool:
    """Whether the request should contain the schema of its answer.

    If the response may be a call, most servers get no schema, because some apply it to every
    token, so that no call would be possible.
    """
    if not sanitize.has_schema(request):
        return False
    may_call = request.tools and request.tool_choice != "none"
    return quirks.schema_beside_tools or not may_call


def _result_pieces(
    message: Message, pictures: Pictures, quirks: Quirks
) -> Iterator[EncodedPiece]:
    """Yield the encoded results of a message, which contain only text.

    Their images follow in a user message.
    """
    to_id = _short_id if quirks.short_ids else str
    user_contents: list[Content] = []  # the images, each after the id of its call
    for part in message.parts:
        if isinstance(part, ToolResult):
            text, images = result_content(part, pictures)
            call_id = to_id(part.call_id)
            yield _piece({"role": "tool", "tool_call_id": call_id, "content": text})
            if images:
                user_contents += [f"[shown by {call_id}]", *images]
    if not user_contents:
        return
    if quirks.bridged:  # the server requires a response between a result and the user
        yield _piece({"role": "assistant", "content": BRIDGE_TEXT})
    yield _piece({"role": "user", "content": [*map(_to_content, user_contents)]})


def _answer_pieces(
    message: Message, text: str, quirks: Quirks, *, with_details: bool
) -> Iterator[EncodedPiece]:
    """Yield an encoded response with its calls; nothing if it has neither calls nor text."""
    to_id = _short_id if quirks.short_ids else str
    # Our own ids are sent, because the provider's may be missing, repeated, or from another
    # wire.
    calls: list[dict[str, Any]] = [
        {
            "id": to_id(call.id),
            "type": "function",
            "function": {
                "name": sanitize.name(call.name),
                "arguments": bytes(sanitize.arguments(call.arguments)).decode(),
            },
        }
        for call in map(sanitize.original_call, message.calls)
    ]
    if not calls and not text:
        return
    answer: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls and quirks.thinking_back:
        answer[quirks.thinking_back] = _own_thinking(message)
    if with_details and (details := _details(message, quirks)):
        answer["reasoning_details"] = details
    if calls:
        answer["tool_calls"] = calls
    yield _piece(answer)


def _to_content(content: Content) -> dict[str, Any]:
    if isinstance(content, str):
        return {"type": "text", "text": content}
    return {"type": "image_url", "image_url": {"url": content.url}}


class _BridgeState(Struct, frozen=True):
    """A conversation in which bridges are inserted.

    A bridge is a response between a result and a user's message, where some servers require
    one.
    """

    conversation: Log[StoredMessage]
    unanswered: bool = False  # whether no response to the last results has followed yet


def _add_bridge(
    bridge: StoredMessage, state: _BridgeState, stored: StoredMessage
) -> _BridgeState:
    """Return the conversation with the message `stored` added.

    If a user's message follows results, the bridge is added before it.
    """
    message = stored.message
    conversation = state.conversation
    if state.unanswered and message.role == "user":
        conversation = conversation.plus(bridge)
    if message.role == "assistant":
        # An empty response does not count as an answer, because it is not sent.
        unanswered = state.unanswered and not (message.calls or sanitize.words(message))
    else:
        unanswered = message.role == "tool"
    return _BridgeState(conversation.plus(stored), unanswered)


def _short_id(id_: str) -> str:
    """Return an id of nine letters and digits for a call id, as some servers require."""
    from hashlib import blake2s

    return blake2s(id_.encode("utf-8", "replace")).hexdigest()[:9]


def _own_thinking(message: Message) -> str:
    """Return the thinking of a response that may be sent to any server.

    Thinking that one wire stored is left out, because it may be encrypted.
    """
    texts = (p.text for p in message.parts if isinstance(p, Thinking) and not p.wire)
    return "\n\n".join(map(sanitize.text, texts))


def _details(message: Message, quirks: Quirks) -> list[Raw]:
    """Return the reasoning details in a message that this server sent, or [].

    `quirks.details` is the wire under which they are stored; "" means that the server has none.
    Details that cannot be decoded are left out.
    """
    if not quirks.details:
        return []
    details: list[Raw] = []
    for part in message.parts:
        if isinstance(part, Thinking) and part.wire == quirks.details:
            try:
                details += msgspec.json.decode(part.data, type=list[Raw])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    return details


def _piece(message: dict[str, Any]) -> EncodedPiece:
    return EncodedPiece(msgspec.json.encode(message))
