"""OpenAI's Chat API: the chunks of a response, parsed into deltas.

Pure: the state so far and a chunk in, the next state and deltas out. A server that does
not stream sends one chunk. OpenRouter's `reasoning_details` are assembled here, too.
`openai_chat` encodes the requests.

https://platform.openai.com/docs/api-reference/chat-streaming
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.provider.error_mapping import StreamError
from refold.provider.port import CallDelta, Delta, Done, Stop, TextDelta, ThinkingDelta
from refold.provider.wire_stream import openai_usage
from refold.values.growing import Log
from refold.values.usage import Usage


class Chunk(Struct, frozen=True):
    choices: "list[_Choice] | None" = None
    usage: "_Usage | None" = None
    model: str | None = None
    error: Raw = Raw(b"")
    # Some servers write what belongs into `error` on the outside.
    message: Any = None
    code: Any = None


class ChatStreamState(Struct, frozen=True):
    """What must be known of an answer's beginning to understand the rest."""

    calls: "tuple[_Known, ...]" = ()
    used: "_Usage | None" = None
    counted: bool = False  # has the usage of all of it come, and nothing since?
    heard: bool = False  # has a part of the answer come?
    finish: str = ""
    refused: bool = False
    model: str = ""
    keeping: str = ""  # the wire that wants its reasoning back; "": none does
    details: Log[dict[str, Any]] = msgspec.field(default_factory=Log[dict[str, Any]])


def from_wire(
    reading: ChatStreamState, chunk: Chunk
) -> tuple[ChatStreamState, tuple[Delta | StreamError, ...]]:
    """What a chunk says, and how to read on."""
    if chunk.error and bytes(chunk.error) != b"null":
        return reading, (_trouble(msgspec.json.decode(chunk.error)),)
    if chunk.message and chunk.code and chunk.choices is None:
        return reading, (_trouble({"message": chunk.message, "code": chunk.code}),)
    if chunk.usage or (chunk.model and not reading.model):
        reading = replace(
            reading,
            used=chunk.usage or reading.used,
            model=reading.model or chunk.model or "",
        )
    if chunk.choices:  # a body that was not streamed has all, whatever it says of its end
        counted = any(c.message is not None and c.delta is None for c in chunk.choices)
    else:
        counted = bool(chunk.usage and chunk.usage.completion_tokens)
    if counted != reading.counted:
        reading = replace(reading, counted=counted)
    found: list[Delta | StreamError] = []
    for choice in chunk.choices or ():
        reading, told = _said(reading, choice)
        found += told
        if broken := _broken_end(choice):
            found.append(StreamError(502, broken))
        elif choice.finish_reason:
            reading = replace(reading, finish=choice.finish_reason)
            if reading.details and (data := joined(reading.details)):
                found.append(ThinkingDelta("", reading.keeping, data))
    return reading, tuple(found)


def ending(reading: ChatStreamState, marked: bool) -> Done | None:
    """The end of a response, if it may end here: usage comes after its text.

    `[DONE]` or the last usage is an end, too: several servers give no reason for it.
    """
    if not (reading.finish or marked or reading.counted):
        return None
    stop = _STOPS.get(reading.finish, "end")
    why = reading.finish if stop == "refused" else ""
    if reading.refused:
        stop = "refused"  # its words say why
    elif reading.calls and stop == "end":  # several servers say "stop" after calls
        stop = "calls"
    used = reading.used or _Usage()
    return Done(_usage(used), stop, reading.model, cost=_cost(used), why=why)


class _Function(Struct, frozen=True):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None  # several send the object itself


class _Call(Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Bit(Struct, frozen=True):
    """Mistral's models that think say things in such bits."""

    text: str | None = None
    thinking: "list[_Bit] | str | None" = None


class _Delta(Struct, frozen=True):
    content: "str | list[_Bit] | None" = None
    refusal: str | None = None
    reasoning_content: str | None = None  # DeepSeek, vLLM, llama.cpp
    reasoning: str | None = None  # OpenRouter, Groq
    reasoning_details: list[dict[str, Any]] | None = None  # OpenRouter
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None  # the only call, as older servers say it


class _Choice(Struct, frozen=True):
    delta: _Delta | None = None
    message: _Delta | None = None  # the whole of it, from one that does not stream
    finish_reason: str | None = None
    native_finish_reason: str | None = None  # OpenRouter: that of its source


class _Usage(Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: dict[str, Any] | None = None
    completion_tokens_details: dict[str, Any] | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek
    cost: Any = None  # OpenRouter: US dollars
    is_byok: Any = None  # the model's own seller is paid with another key
    cost_details: Any = None


class _Known(Struct, frozen=True):
    """A call that has begun: where the server counts it, and as what."""

    theirs: int
    id: str
    named: bool = True


_STOPS: dict[str, Stop] = {
    "stop": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "refused",
}


def _broken_end(choice: _Choice) -> str:
    """What went wrong, where the reason for the end says that this is no response."""
    reason = choice.finish_reason or ""
    if reason == "error":  # a go-between tells us that its source failed
        return "the model's own server failed"
    if reason == "abort":  # vLLM, SGLang and LMDeploy, when they are shut down or overrun
        return "the model's server stopped in the middle"
    for why in (reason, choice.native_finish_reason or ""):
        if why.upper().endswith(("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")):
            return f"the model made a call that cannot be read ({why})"
    return ""


def _said(
    reading: ChatStreamState, choice: _Choice
) -> tuple[ChatStreamState, list[Delta | StreamError]]:
    whole = None if reading.heard else choice.message  # some repeat all of it at the end
    delta = choice.delta or whole or _Delta()
    if not reading.heard and (delta.content or delta.tool_calls):
        reading = replace(reading, heard=True)
    found: list[Delta | StreamError] = []
    thought = delta.reasoning_content or delta.reasoning or ""
    if details := delta.reasoning_details:
        thought = thought or thought_in(details)
        for detail in details if reading.keeping else ():
            reading = replace(reading, details=reading.details.plus(detail))
    if thought:
        found.append(ThinkingDelta(thought))
    said = delta.content or delta.refusal
    if isinstance(said, str):
        found.append(TextDelta(said))
    elif said:
        found += map(_told, said)
    if delta.refusal and not reading.refused:
        reading = replace(reading, refused=True)
    for place, call in enumerate(_calls(delta)):
        if choice.message and call.index is None:  # whole calls need not be counted
            call = replace(call, index=place)
        reading, piece = _called(reading, call)
        found.append(piece)
    return reading, found


def _calls(delta: _Delta) -> Sequence[_Call]:
    if delta.function_call and not delta.tool_calls:
        return (_Call(0, function=delta.function_call),)
    return delta.tool_calls or ()


def _told(bit: _Bit) -> Delta:
    if isinstance(bit.thinking, str):
        return ThinkingDelta(bit.thinking)
    if bit.thinking:
        return ThinkingDelta("".join(inner.text or "" for inner in bit.thinking))
    return TextDelta(bit.text or "")


def _called(reading: ChatStreamState, call: _Call) -> tuple[ChatStreamState, CallDelta]:
    """A piece of a call, with our index.

    Most servers count calls from 0; some give every call the same index or none at all, and
    then only a new id with a name shows that this is another call. Some give each piece an id
    of its own, or let the name end in a mark of the model's format.
    """
    function = call.function or _Function()
    arguments = _written(function.arguments)
    name = (function.name or "").partition("<|")[0].strip()
    known, theirs, id_ = reading.calls, call.index, call.id or ""
    if theirs is None:
        theirs = known[-1].theirs if known else 0
    for ours in range(len(known) - 1, -1, -1):
        if known[ours].theirs == theirs:
            if name and id_ and known[ours].id and known[ours].id != id_:
                break
            if known[ours].named or not name:
                return reading, CallDelta(ours, arguments)
            now = replace(known[ours], named=True)  # several send the arguments first
            calls = (*known[:ours], now, *known[ours + 1 :])
            return replace(reading, calls=calls), CallDelta(ours, arguments, name=name)
    calls = (*known, _Known(theirs, id_, bool(name)))
    return replace(reading, calls=calls), CallDelta(len(known), arguments, id_, name)


def _written(arguments: str | dict[str, Any] | None) -> str:
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    return arguments or ""


def _usage(used: _Usage) -> Usage:
    return openai_usage(
        used.prompt_tokens,
        used.completion_tokens,
        used.prompt_tokens_details,
        used.completion_tokens_details,
        used.prompt_cache_hit_tokens,
    )


def _cost(used: _Usage) -> float | None:
    if isinstance(used.cost, bool) or not isinstance(used.cost, int | float):
        return None
    match used.cost_details:
        case {"upstream_inference_cost": int() | float() as more} if used.is_byok is True:
            return used.cost + more
        case _:
            return float(used.cost)


def _trouble(error: Any) -> StreamError:
    match error:
        case {"message": str(message), "code": int() | str() as code} if re.fullmatch(
            "[45][0-9][0-9]", str(code)
        ):
            return StreamError(int(code), message)
        case {"message": str(message), **more}:
            kind = f"{more.get('type')} {more.get('code')}".lower()
            refused = "invalid" in kind or "context_length" in kind
            status = 429 if "rate_limit" in kind else 400 if refused else 500
            return StreamError(status, message)
        case _:
            return StreamError(500, error if isinstance(error, str) else str(error))


# Of a block that comes in pieces: what grows. All else is said once, or again.
_GROWS = ("text", "summary")


def thought_in(details: Iterable[dict[str, Any]]) -> str:
    """The texts among them, for people."""
    words = (detail.get(name) for detail in details for name in _GROWS)
    return "".join(word for word in words if isinstance(word, str))


def joined(pieces: Iterable[dict[str, Any]]) -> Raw | None:
    """All of it, as it goes back; None if it cannot be said in JSON."""
    blocks: list[_Block] = []
    for piece in pieces:
        if not (blocks and blocks[-1].goes_on(piece)):
            blocks.append(_Block())
        blocks[-1].add(piece)
    try:
        return Raw(msgspec.json.encode([block.whole() for block in blocks]))
    except (UnicodeEncodeError, OverflowError):  # half a character, a huge number
        return None


class _Block:
    def __init__(self) -> None:
        self._said: dict[str, Any] = {}
        self._grown: dict[str, list[str]] = {}

    def goes_on(self, piece: dict[str, Any]) -> bool:
        """Text continues if it has the same number. Encrypted data arrives as a whole."""
        sealed = piece.get("type") == "reasoning.encrypted"
        same = (self._said.get(name) == piece.get(name) for name in ("type", "index"))
        return not sealed and all(same)

    def add(self, piece: dict[str, Any]) -> None:
        for name, value in piece.items():
            if name in _GROWS and isinstance(value, str):
                self._said.setdefault(name, "")
                self._grown.setdefault(name, []).append(value)
            elif value is not None:
                self._said[name] = value

    def whole(self) -> dict[str, Any]:
        return self._said | {name: "".join(said) for name, said in self._grown.items()}
