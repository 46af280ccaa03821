"""OpenAI's Chat Completions API, and the many servers compatible with it.

`to_wire` and `message_to_wire` encode a request and are pure; `openai_chat_stream`
parses the chunks of a response. `OpenAIChat` connects the two with HTTP. `Quirks` has
what differs between servers.

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
from refold.provider.efforts import OPENAI, Level, level
from refold.provider.encoding_cache import EncodedPiece, IncrementalFold, body_with
from refold.provider.image_fallback import Hidden, ImageFallback
from refold.provider.images import BLIND, Encodings, Seen, Shown, joined, result, seen
from refold.provider.openai_chat_stream import ChatStreamState, Chunk, ending, from_wire
from refold.provider.port import NO_PICTURES, Delta, Pictures, Request
from refold.provider.sanitize import REFUSED as NO_SYSTEM
from refold.provider.sanitize import SystemAsUser, functions
from refold.provider.spec import Quirks
from refold.provider.sse import Events, WholeBody
from refold.provider.wire_stream import Reader, deltas
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text, Thinking, ToolResult
from refold.values.text import clean

PLAIN = Quirks(output_limit="max_completion_tokens")
BRIDGE = "(read)"  # what an answer says that is only there to stand between two others

# What a model or a server may refuse.
Extra: TypeAlias = (
    Literal["system", "pictures", "schema", "cache", "kept", "temperature"]
    | Level
    # and how it wants the rest: without usage, with short ids, with the thinking of calls,
    # with an answer between result and user, with a limit of the other name
    | Literal["usage", "ids", "back", "bridge", "limit"]
)


def to_wire(
    request: Request,
    messages: bytes,
    quirks: Quirks = PLAIN,
    without: frozenset[Extra] = frozenset(),
) -> bytes:
    """The body of a request, given its messages, joined, from `message_to_wire`."""
    told = b""
    if system := sanitize.text(request.system).strip():
        told = msgspec.json.encode({"role": "system", "content": system})
    body: dict[str, Any] = {"model": clean(request.model), "stream": quirks.stream}
    if quirks.stream and "usage" not in without:
        body["stream_options"] = {"include_usage": True}  # else it is never told
    if quirks.costs:
        body["usage"] = {"include": True}
    if request.max_output:
        body[quirks.output_limit] = request.max_output
    if request.tools:
        body["tools"] = functions(request.tools)
        body["tool_choice"] = request.tool_choice
    wished = level(OPENAI, request.effort, without)
    if wished and quirks.effort_in:
        nested = quirks.effort_in == "reasoning"
        body[quirks.effort_in] = {"effort": wished} if nested else wished
    if request.temperature is not None and "temperature" not in without:
        body["temperature"] = request.temperature
    if _asks_for_schema(request, quirks) and "schema" not in without:
        wanted = {"name": "answer", "schema": request.schema, "strict": False}
        body["response_format"] = {"type": "json_schema", "json_schema": wanted}
    if request.session and quirks.cache_key and "cache" not in without:
        body["prompt_cache_key"] = sanitize.cache_key(request)
    return body_with(body, "messages", told, messages)


def message_to_wire(
    message: Message,
    pictures: Pictures = NO_PICTURES,
    *,
    quirks: Quirks = PLAIN,
    kept: bool = True,
) -> Iterator[EncodedPiece]:
    """A message as one or, where it holds results, as one for each of them.

    `kept`: with the reasoning that only its own server can read.
    """
    yield from _results(message, pictures, quirks)
    said = seen(message.parts, pictures)
    if message.role == "assistant":
        yield from _answered(message, joined(said), quirks, kept)
    elif any(isinstance(each, Shown) for each in said):
        yield _piece({"role": "user", "content": [*map(_shown, said)]})
    elif said or message.role == "user":
        yield _piece({"role": "user", "content": joined(said) or "(no words)"})


class OpenAIChat:
    """GPT, and nearly every other server, through its older protocol."""

    def __init__(self, http: Http, quirks: Quirks = PLAIN) -> None:
        bridge = StoredMessage(0, Message("assistant", (Text(BRIDGE),)))
        self._http, self._quirks = http, quirks
        self._encoded = Encodings[tuple[bool, Quirks]](
            lambda how: partial(message_to_wire, kept=how[0], quirks=how[1])
        )
        self._bridged = IncrementalFold(_Bridged(Log()), partial(_bridged, bridge))
        self._system_as_user = SystemAsUser()
        self._concessions = CapabilityFallback[Extra](_ABOUT)
        self._images = ImageFallback()

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        model = request.model

        def ask(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            without = self._concessions.of(model)
            quirks = _wanted(self._quirks, without)
            asked = self._system_as_user.apply(request) if "system" in without else request
            conversation = asked.messages
            if quirks.bridged:
                conversation = self._bridged.of(conversation).conversation
            encoder = self._encoded.of(
                ("kept" not in without, quirks),
                shown="pictures" not in without,
                hidden=hidden,
            )
            messages = encoder.join(conversation, request.pictures)
            body = to_wire(asked, messages, quirks, without)
            splitter = Events if quirks.stream else WholeBody
            start = ChatStreamState(keeping=quirks.details)
            reader = Reader(
                splitter, Chunk, start, from_wire, ending, over=b"[DONE]", think_tags=True
            )
            return deltas(
                self._http, "/chat/completions", body, model, reader, trace=request.trace
            )

        def concede(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            sent = _sent(request, self._quirks)
            bridged = self._bridged.of(request.messages).conversation
            if not self._quirks.bridged and len(bridged) > len(request.messages):
                sent = _BRIDGE | sent
            return self._concessions.stream(model, partial(ask, hidden), sent)

        return self._images.stream(request, concede)

    async def aclose(self) -> None:
        await self._http.aclose()


_ABOUT: dict[Extra, str] = {
    "system": NO_SYSTEM,
    "bridge": r"roles must alternate|unexpected role 'user' after role 'tool'",
    "usage": r"stream_options|include_usage",
    "ids": r"tool.?call.?id\b.{0,80}\bmust be\b",
    "back": r"reasoning_content",
    "limit": r"max_completion_tokens|max_tokens['\"`]* (is|are) (not supported|unsupported)",
    "pictures": BLIND,
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


_BRIDGE: frozenset[Extra] = frozenset(("bridge",))


def _wanted(quirks: Quirks, without: frozenset[Extra]) -> Quirks:
    """How the server wants its requests, after what it has refused."""
    if "ids" in without:
        quirks = replace(quirks, short_ids=True)
    if "back" in without:
        quirks = replace(quirks, thinking_back="reasoning_content")
    if "bridge" in without:
        quirks = replace(quirks, bridged=True)
    if "limit" in without:
        names = {"max_tokens": "max_completion_tokens"}
        other = names.get(quirks.output_limit, "max_tokens")
        quirks = replace(quirks, output_limit=other)
    return quirks


def _sent(request: Request, quirks: Quirks) -> frozenset[Extra]:
    """What a refusal of this request may be about."""
    found: set[Extra] = {*OPENAI.get(request.effort, ())}
    found |= {"ids"} if not quirks.short_ids else set()
    found |= {"back"} if not quirks.thinking_back else set()
    found |= {"usage"} if quirks.stream else set()
    found |= {"limit"} if request.max_output else set()
    if request.temperature is not None:
        found.add("temperature")
    if request.system.strip():
        found.add("system")
    if request.pictures:
        found.add("pictures")
    if _asks_for_schema(request, quirks):
        found.add("schema")
    if request.session and quirks.cache_key:
        found.add("cache")
    if quirks.details:
        found.add("kept")
    return frozenset(found)


def _asks_for_schema(request: Request, quirks: Quirks) -> bool:
    """Several servers apply the schema to every token, so no call would be possible."""
    calls = request.tools and request.tool_choice != "none"
    return sanitize.schema(request) and (quirks.schema_beside_tools or not calls)


def _results(
    message: Message, pictures: Pictures, quirks: Quirks
) -> Iterator[EncodedPiece]:
    """A result contains only text. Its images follow all results in a user message."""
    name = _short if quirks.short_ids else str
    shown: list[Seen] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            text, images = result(part, pictures)
            answered = {"role": "tool", "tool_call_id": name(part.call_id)}
            yield _piece({**answered, "content": text})
            if images:
                shown += [f"[shown by {name(part.call_id)}]", *images]
    if shown and quirks.bridged:
        yield _piece({"role": "assistant", "content": BRIDGE})
    if shown:
        yield _piece({"role": "user", "content": [*map(_shown, shown)]})


def _answered(
    message: Message, said: str, quirks: Quirks, kept: bool
) -> Iterator[EncodedPiece]:
    name = _short if quirks.short_ids else str
    # Our own ids: theirs may be missing, come twice, or be another wire's.
    calls: list[dict[str, Any]] = [
        {
            "id": name(call.id),
            "type": "function",
            "function": {
                "name": sanitize.name(call.name),
                "arguments": bytes(sanitize.arguments(call.arguments)).decode(),
            },
        }
        for call in map(sanitize.original_call, message.calls)
    ]
    if not (calls or said):
        return
    answer: dict[str, Any] = {"role": "assistant", "content": said or None}
    if calls and quirks.thinking_back:
        answer[quirks.thinking_back] = _thought(message)
    if kept and (details := _details(message, quirks)):
        answer["reasoning_details"] = details
    yield _piece({**answer, "tool_calls": calls} if calls else answer)


def _shown(thing: Seen) -> dict[str, Any]:
    if isinstance(thing, str):
        return {"type": "text", "text": thing}
    return {"type": "image_url", "image_url": {"url": thing.url}}


class _Bridged(Struct, frozen=True):
    """A conversation with the bridge message between a result and a user's message."""

    conversation: Log[StoredMessage]
    waiting: bool = False  # for an answer to the results that came last


def _bridged(bridge: StoredMessage, made: _Bridged, spoken: StoredMessage) -> _Bridged:
    message, conversation, waiting = spoken.message, made.conversation, made.waiting
    if waiting and message.role == "user":
        conversation = conversation.plus(bridge)
    if message.role != "assistant":
        waiting = message.role == "tool"
    elif waiting:  # an empty answer is not sent
        waiting = not (message.calls or sanitize.words(message))
    return _Bridged(conversation.plus(spoken), waiting)


def _short(id_: str) -> str:
    from hashlib import blake2s

    return blake2s(id_.encode("utf-8", "replace")).hexdigest()[:9]


def _thought(message: Message) -> str:
    """The thinking that this wire received. Other wires' thinking is encrypted for them."""
    texts = (p.text for p in message.parts if isinstance(p, Thinking) and not p.wire)
    return "\n\n".join(map(sanitize.text, texts))


def _details(message: Message, quirks: Quirks) -> list[Raw]:
    """What this very server said of its reasoning."""
    found: list[Raw] = []
    for part in message.parts:
        if quirks.details and isinstance(part, Thinking) and part.wire == quirks.details:
            try:
                found += msgspec.json.decode(part.data, type=list[Raw])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    return found


def _piece(message: dict[str, Any]) -> EncodedPiece:
    return EncodedPiece(msgspec.json.encode(message))
