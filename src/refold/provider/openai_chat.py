"""OpenAI's Chat Completions API, and the many servers that speak it too.

`to_wire` and `message_to_wire` say what we send, `from_wire` what a chunk of an
answer means; all three are pure. `OpenAIChat` carries bytes between them. What
only some servers do is said where it is dealt with.

https://platform.openai.com/docs/api-reference/chat
"""

from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.provider import sendable
from refold.provider.encoded import Encoded, Piece
from refold.provider.failures import Trouble
from refold.provider.http import Http
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Request,
    Stop,
    TextDelta,
    ThinkingDelta,
)
from refold.provider.sendable import functions
from refold.provider.spec import Quirks
from refold.provider.sse import Events
from refold.provider.stream import Reader, deltas
from refold.values.clean import clean
from refold.values.log import Log
from refold.values.messages import Message, Spoken, Text, Thinking, ToolResult
from refold.values.usage import Usage

OUTPUT_LIMIT = "max_completion_tokens"  # older servers know only "max_tokens"
PLAIN = Quirks(output_limit=OUTPUT_LIMIT)
BRIDGE = "(read)"  # what an answer says that is only there to stand between two others


def to_wire(request: Request, messages: bytes, output_limit: str = OUTPUT_LIMIT) -> bytes:
    """The body of a request, given its messages, joined, from `message_to_wire`."""
    if system := sendable.text(request.system).strip():
        told = msgspec.json.encode({"role": "system", "content": system})
        messages = told + b"," + messages if messages else told
    body: dict[str, Any] = {
        "model": clean(request.model),
        "stream": True,
        "stream_options": {"include_usage": True},  # else the tokens are never told
    }
    if request.max_output:
        body[output_limit] = request.max_output
    if request.tools:
        body["tools"] = functions(request.tools)
        body["tool_choice"] = request.tool_choice
    body["messages"] = Raw(b"[" + messages + b"]")
    return msgspec.json.encode(body)


def message_to_wire(message: Message, quirks: Quirks = PLAIN) -> Iterator[Piece]:
    """A message as one or, where it holds results, as one for each of them."""
    name = _short if quirks.short_ids else str
    for part in message.parts:
        if isinstance(part, ToolResult):
            answered = {"role": "tool", "tool_call_id": name(part.call_id)}
            yield _piece({**answered, "content": sendable.text(part.text)})
    said = "\n\n".join(sendable.words(message))
    if message.role == "assistant":
        # Our own ids: theirs may be missing, come twice, or be another wire's.
        calls: list[dict[str, Any]] = [
            {
                "id": name(call.id),
                "type": "function",
                "function": {
                    "name": sendable.name(call.name),
                    "arguments": bytes(sendable.arguments(call.arguments)).decode(),
                },
            }
            for call in message.calls
        ]
        if calls:
            thought = (
                {quirks.thinking_back: _thought(message)} if quirks.thinking_back else {}
            )
            answer = {"role": "assistant", "content": said or None, **thought}
            yield _piece({**answer, "tool_calls": calls})
        elif said:
            yield _piece({"role": "assistant", "content": said})
    elif said or message.role == "user":
        yield _piece({"role": "user", "content": said or "(no words)"})


class Chunk(Struct, frozen=True):
    choices: "list[_Choice] | None" = None
    usage: "_Usage | None" = None
    model: str | None = None
    error: Raw = Raw(b"")


class Reading(Struct, frozen=True):
    """What must be known of an answer's beginning to understand the rest."""

    calls: "tuple[_Known, ...]" = ()
    used: "_Usage | None" = None
    finish: str = ""
    refused: bool = False
    model: str = ""


def from_wire(
    reading: Reading, chunk: Chunk
) -> tuple[Reading, tuple[Delta | Trouble, ...]]:
    """What a chunk says, and how to read on."""
    if chunk.error and bytes(chunk.error) != b"null":
        return reading, (_trouble(chunk.error),)
    if chunk.usage or (chunk.model and not reading.model):
        reading = replace(
            reading,
            used=chunk.usage or reading.used,
            model=reading.model or chunk.model or "",
        )
    found: list[Delta | Trouble] = []
    for choice in chunk.choices or ():
        delta = choice.delta or _Delta()
        if thought := delta.reasoning_content or delta.reasoning:
            found.append(ThinkingDelta(thought))
        if said := delta.content or delta.refusal:
            found += _told(said)
        if delta.refusal and not reading.refused:
            reading = replace(reading, refused=True)
        for call in delta.tool_calls or ():
            reading, piece = _called(reading, call)
            found.append(piece)
        if choice.finish_reason == "error":  # a go-between tells us that its source failed
            found.append(Trouble(502, "the model's own server failed"))
        elif choice.finish_reason:
            reading = replace(reading, finish=choice.finish_reason)
    return reading, tuple(found)


def ending(reading: Reading) -> Done | None:
    """The end of an answer, if it may end here: usage comes after its last words."""
    if not reading.finish:
        return None
    stop = _STOPS.get(reading.finish, "end")
    if reading.refused:
        stop = "refused"
    elif reading.calls and stop == "end":  # several servers say "stop" after calls
        stop = "calls"
    return Done(_usage(reading.used or _Usage()), stop, reading.model)


class OpenAIChat:
    """GPT, or whatever speaks its older protocol: nearly every server does."""

    def __init__(self, http: Http, quirks: Quirks = PLAIN) -> None:
        self._http, self._quirks = http, quirks
        self._encoded = Encoded(lambda message: message_to_wire(message, quirks))
        self._bridge = Spoken(0, Message("assistant", (Text(BRIDGE),)))

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        talk = request.messages
        if self._quirks.bridged:
            talk = Log([*_bridged(talk, self._bridge)])
        body = to_wire(request, self._encoded.join(talk), self._quirks.output_limit)
        reader = Reader(Events, Chunk, Reading(), from_wire, ending, over=b"[DONE]")
        return deltas(self._http, "/chat/completions", body, request.model, reader)

    async def aclose(self) -> None:
        await self._http.aclose()


class _Function(Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _Call(Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Bit(Struct, frozen=True):
    """Mistral's models that think say things in such bits."""

    type: str = ""
    text: str = ""
    thinking: "list[_Bit] | None" = None


class _Delta(Struct, frozen=True):
    content: "str | list[_Bit] | None" = None
    refusal: str | None = None
    reasoning_content: str | None = None  # DeepSeek, vLLM, llama.cpp
    reasoning: str | None = None  # OpenRouter, Groq
    tool_calls: list[_Call] | None = None


class _Choice(Struct, frozen=True):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: dict[str, Any] | None = None
    completion_tokens_details: dict[str, Any] | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek


class _Known(Struct, frozen=True):
    """A call that has begun: where the server counts it, and as what."""

    theirs: int
    id: str


_STOPS: dict[str, Stop] = {
    "stop": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "refused",
}


def _bridged(talk: Iterable[Spoken], bridge: Spoken) -> Iterator[Spoken]:
    waiting = False  # for an answer to the results that came last
    for spoken in talk:
        message = spoken.message
        if waiting and message.role == "user":
            yield bridge
        if message.role != "assistant":
            waiting = message.role == "tool"
        elif waiting:  # an empty answer is not sent
            waiting = not (message.calls or sendable.words(message))
        yield spoken


def _short(id_: str) -> str:
    from hashlib import blake2s

    return blake2s(id_.encode("utf-8", "replace")).hexdigest()[:9]


def _thought(message: Message) -> str:
    """What this wire heard it think. What others understand is sealed for them."""
    texts = (p.text for p in message.parts if isinstance(p, Thinking) and not p.wire)
    return "\n\n".join(map(sendable.text, texts))


def _told(said: str | list[_Bit]) -> Iterable[Delta]:
    if isinstance(said, str):
        return (TextDelta(said),)
    return (
        ThinkingDelta("".join(inner.text for inner in bit.thinking))
        if bit.thinking
        else TextDelta(bit.text)
        for bit in said
    )


def _piece(message: dict[str, Any]) -> Piece:
    return Piece(msgspec.json.encode(message))


def _called(reading: Reading, call: _Call) -> tuple[Reading, CallDelta]:
    """A piece of a call, counted our way.

    Most servers count calls from 0; some give every one the same index or none
    at all, and then only a new id tells that this is another call.
    """
    function = call.function or _Function()
    arguments, name = function.arguments or "", function.name or ""
    known, theirs, id_ = reading.calls, call.index, call.id or ""
    if theirs is None:
        theirs = known[-1].theirs if known else 0
    for ours in range(len(known) - 1, -1, -1):
        if known[ours].theirs == theirs:
            if id_ and known[ours].id and known[ours].id != id_:
                break
            return reading, CallDelta(ours, arguments)
    calls = (*known, _Known(theirs, id_))
    return replace(reading, calls=calls), CallDelta(len(known), arguments, id_, name)


def _usage(used: _Usage) -> Usage:
    read = used.prompt_tokens_details or {}
    cached = _count(read, "cached_tokens") or used.prompt_cache_hit_tokens or 0
    cache_write = _count(read, "cache_write_tokens")
    return Usage(
        fresh=max((used.prompt_tokens or 0) - cached - cache_write, 0),  # theirs has all
        cached=cached,
        cache_write=cache_write,
        output=used.completion_tokens or 0,
        reasoning=_count(used.completion_tokens_details or {}, "reasoning_tokens"),
    )


def _count(details: dict[str, Any], name: str) -> int:
    found = details.get(name)
    return found if isinstance(found, int) else 0


def _trouble(error: Raw) -> Trouble:
    found: Any = msgspec.json.decode(error)
    match found:
        case {"message": str(message), "code": int(status)} if 400 <= status < 600:
            return Trouble(status, message)
        case {"message": str(message), **more}:
            kind = f"{more.get('type')} {more.get('code')}"
            refused = "invalid" in kind or "context_length" in kind
            status = 429 if "rate_limit" in kind else 400 if refused else 500
            return Trouble(status, message)
        case _:
            return Trouble(500, bytes(error).decode())
