"""Parses the chunks of a response of OpenAI's Chat API into deltas.

The functions are pure: they get the state so far and a chunk, and return the next state and
deltas. A server that does not stream sends one chunk. OpenRouter's `reasoning_details` are
assembled here, too. `openai_chat` encodes the requests.

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
    # Some servers put the fields of `error` at the top level.
    message: Any = None
    code: Any = None


class ChatStreamState(Struct, frozen=True):
    """The state of the parser between two chunks of a response."""

    calls: "tuple[_BegunCall, ...]" = ()
    used: "_Usage | None" = None
    # whether the last chunk had the final usage or the whole message
    counted: bool = False
    begun: bool = False  # whether a part of the response has arrived
    finish: str = ""
    refused: bool = False
    model: str = ""
    own_wire: str = ""  # the name of the wire that needs its reasoning back; "": none
    details: Log[dict[str, Any]] = msgspec.field(default_factory=Log[dict[str, Any]])


def from_wire(
    state: ChatStreamState, chunk: Chunk
) -> tuple[ChatStreamState, tuple[Delta | StreamError, ...]]:
    """Return the next state and the deltas of a chunk."""
    if chunk.error and bytes(chunk.error) != b"null":
        return state, (_stream_error(msgspec.json.decode(chunk.error)),)
    if chunk.message and chunk.code and chunk.choices is None:
        return state, (_stream_error({"message": chunk.message, "code": chunk.code}),)
    if chunk.usage or (chunk.model and not state.model):
        state = replace(
            state,
            used=chunk.usage or state.used,
            model=state.model or chunk.model or "",
        )
    # Several servers send no finish reason. Then a whole body, or usage alone in a chunk, shows
    # that the response is complete.
    if chunk.choices:
        counted = any(c.message is not None and c.delta is None for c in chunk.choices)
    else:
        counted = bool(chunk.usage and chunk.usage.completion_tokens)
    if counted != state.counted:
        state = replace(state, counted=counted)
    pieces: list[Delta | StreamError] = []
    for choice in chunk.choices or ():
        state, choice_pieces = _read_choice(state, choice)
        pieces += choice_pieces
        if broken := _failure_reason(choice):
            pieces.append(StreamError(502, broken))
        elif choice.finish_reason:
            state = replace(state, finish=choice.finish_reason)
            if state.details and (data := join_details(state.details)):
                pieces.append(ThinkingDelta(wire=state.own_wire, data=data))
    return state, tuple(pieces)


def done_if_complete(state: ChatStreamState, marked: bool) -> Done | None:
    """Return the `Done` of a response that may end here, or None if it was cut off.

    Several servers send no finish reason. So usage counts as an end, too, and so does `[DONE]`.
    `marked` says whether `[DONE]` has arrived.
    """
    is_complete = state.finish or marked or state.counted
    if not is_complete:
        return None
    stop = _STOP_REASONS.get(state.finish, "end")
    why = state.finish if stop == "refused" else ""
    if state.refused:
        stop = "refused"  # the response's text is the reason
    elif state.calls and stop == "end":  # several servers say "stop" after calls
        stop = "calls"
    used = state.used or _Usage()
    return Done(_usage(used), stop, state.model, cost=_cost(used), why=why)


class _Function(Struct, frozen=True):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None  # several servers send an object instead


class _Call(Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _ContentPart(Struct, frozen=True):
    """A part of the text from one of Mistral's thinking models."""

    text: str | None = None
    thinking: "list[_ContentPart] | str | None" = None


class _Delta(Struct, frozen=True):
    content: "str | list[_ContentPart] | None" = None
    refusal: str | None = None
    reasoning_content: str | None = None  # DeepSeek, vLLM, llama.cpp
    reasoning: str | None = None  # OpenRouter, Groq
    reasoning_details: list[dict[str, Any]] | None = None  # OpenRouter
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None  # the only call, from older servers


class _Choice(Struct, frozen=True):
    delta: _Delta | None = None
    message: _Delta | None = None  # the whole message, if it was not streamed
    finish_reason: str | None = None
    native_finish_reason: str | None = None  # OpenRouter: the reason from its source


class _Usage(Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: dict[str, Any] | None = None
    completion_tokens_details: dict[str, Any] | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek
    cost: Any = None  # OpenRouter: US dollars
    is_byok: Any = None  # the model's own seller is paid with another key
    cost_details: Any = None


class _BegunCall(Struct, frozen=True):
    """A call that has begun, with the server's index and id for it."""

    server_index: int
    id: str
    named: bool = True


_STOP_REASONS: dict[str, Stop] = {
    "stop": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "refused",
}


def _failure_reason(choice: _Choice) -> str:
    """Return the failure that the finish reason reports, in words, or "" if it reports none."""
    reason = choice.finish_reason or ""
    if reason == "error":  # a gateway reports that its source failed
        return "the model's own server failed"
    # vLLM, SGLang and LMDeploy report this when they are shut down or overloaded
    if reason == "abort":
        return "the model's server stopped in the middle"
    for why in (reason, choice.native_finish_reason or ""):
        if why.upper().endswith(("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")):
            return f"the model made a call that cannot be read ({why})"
    return ""


def _read_choice(
    state: ChatStreamState, choice: _Choice
) -> tuple[ChatStreamState, list[Delta | StreamError]]:
    """Return the next state, and the deltas of a choice."""
    # A server that does not stream sends a whole message. Some servers that do stream repeat
    # it at the end, where it is ignored.
    whole_message = None if state.begun else choice.message
    delta = choice.delta or whole_message or _Delta()
    if not state.begun and (delta.content or delta.tool_calls):
        state = replace(state, begun=True)
    pieces: list[Delta | StreamError] = []
    thought = delta.reasoning_content or delta.reasoning or ""
    if details := delta.reasoning_details:
        thought = thought or reasoning_text(details)
        kept_details = details if state.own_wire else ()
        for detail in kept_details:
            state = replace(state, details=state.details.plus(detail))
    if thought:
        pieces.append(ThinkingDelta(thought))
    content = delta.content or delta.refusal
    if isinstance(content, str):
        pieces.append(TextDelta(content))
    elif content:
        pieces += map(_part_to_delta, content)
    if delta.refusal and not state.refused:
        state = replace(state, refused=True)
    for index, call in enumerate(_calls(delta)):
        if choice.message and call.index is None:  # complete calls need no index
            call = replace(call, index=index)
        state, piece = _add_call_piece(state, call)
        pieces.append(piece)
    return state, pieces


def _calls(delta: _Delta) -> Sequence[_Call]:
    """Return the pieces of calls in a delta, also from an old field for a single call."""
    if delta.function_call and not delta.tool_calls:
        return (_Call(0, function=delta.function_call),)
    return delta.tool_calls or ()


def _part_to_delta(part: _ContentPart) -> Delta:
    """Return a part as a delta of thinking, or of text if the part has no thinking."""
    if isinstance(part.thinking, str):
        return ThinkingDelta(part.thinking)
    if part.thinking:
        return ThinkingDelta("".join(inner.text or "" for inner in part.thinking))
    return TextDelta(part.text or "")


def _add_call_piece(
    state: ChatStreamState, call: _Call
) -> tuple[ChatStreamState, CallDelta]:
    """Return the next state, and the delta for a piece of a call, with our index for the call.

    Most servers count calls from 0. Some give every call the same index or none at all, and
    then only a new id with a name shows that another call begins. Some give each piece another
    id, or append a mark of the model's format to the name.
    """
    function = call.function or _Function()
    arguments = _arguments_text(function.arguments)
    name = (function.name or "").partition("<|")[0].strip()
    begun = state.calls
    id_ = call.id or ""
    server_index = call.index
    if server_index is None:
        server_index = begun[-1].server_index if begun else 0
    # The newest call with the server's index is the one that may continue.
    for index in reversed(range(len(begun))):
        begun_call = begun[index]
        if begun_call.server_index != server_index:
            continue
        has_other_id = id_ and begun_call.id and begun_call.id != id_
        if name and has_other_id:
            break  # another call begins
        if begun_call.named or not name:
            return state, CallDelta(index, arguments)
        # Several servers send the arguments before the name.
        named_call = replace(begun_call, named=True)
        calls = (*begun[:index], named_call, *begun[index + 1 :])
        return replace(state, calls=calls), CallDelta(index, arguments, name=name)
    calls = (*begun, _BegunCall(server_index, id_, named=bool(name)))
    return replace(state, calls=calls), CallDelta(len(begun), arguments, id_, name)


def _arguments_text(arguments: str | dict[str, Any] | None) -> str:
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    return arguments or ""


def _usage(usage: _Usage) -> Usage:
    return openai_usage(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens_details,
        usage.completion_tokens_details,
        usage.prompt_cache_hit_tokens,
    )


def _cost(usage: _Usage) -> float | None:
    """Return the cost in US dollars that a server reports, or None if it reports none.

    If OpenRouter uses the user's own key at another provider (`is_byok`), the cost there is
    added.
    """
    if isinstance(usage.cost, bool) or not isinstance(usage.cost, int | float):
        return None
    match usage.cost_details:
        case {"upstream_inference_cost": int() | float() as more} if usage.is_byok is True:
            return usage.cost + more
        case _:
            return float(usage.cost)


def _stream_error(error: Any) -> StreamError:
    """Return an error, with the status that the server names or that its words suggest."""
    match error:
        case {"message": str(message), "code": int() | str() as code} if re.fullmatch(
            "[45][0-9][0-9]", str(code)
        ):
            return StreamError(int(code), message)
        case {"message": str(message), **more}:
            kind = f"{more.get('type')} {more.get('code')}".lower()
            if "rate_limit" in kind:
                return StreamError(429, message)
            refused = "invalid" in kind or "context_length" in kind
            return StreamError(400 if refused else 500, message)
        case _:
            return StreamError(500, error if isinstance(error, str) else str(error))


# Fields of a block that grow with each piece. Others are sent once, or repeated.
_GROWING_FIELDS = ("text", "summary")


def reasoning_text(details: Iterable[dict[str, Any]]) -> str:
    """Return the readable text in reasoning details, joined."""
    words = (detail.get(name) for detail in details for name in _GROWING_FIELDS)
    return "".join(word for word in words if isinstance(word, str))


def join_details(pieces: Iterable[dict[str, Any]]) -> Raw | None:
    """Join the pieces of reasoning details to the JSON that must be sent back.

    Return None if it cannot be encoded.
    """
    blocks: list[_Block] = []
    for piece in pieces:
        if not blocks or not blocks[-1].continues_with(piece):
            blocks.append(_Block())
        blocks[-1].add(piece)
    try:
        return Raw(msgspec.json.encode([block.to_dict() for block in blocks]))
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair, or a huge number
        return None


class _Block:
    """One block of reasoning details, to which pieces are added as they arrive."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._joined_texts: dict[str, list[str]] = {}

    def continues_with(self, piece: dict[str, Any]) -> bool:
        """Whether a piece continues this block: same type and index, and not encrypted."""
        if piece.get("type") == "reasoning.encrypted":
            return False
        return all(self._fields.get(name) == piece.get(name) for name in ("type", "index"))

    def add(self, piece: dict[str, Any]) -> None:
        """Add a piece. Growing texts are joined; other values, unless None, are replaced."""
        for name, value in piece.items():
            if name in _GROWING_FIELDS and isinstance(value, str):
                self._fields.setdefault(name, "")
                self._joined_texts.setdefault(name, []).append(value)
            elif value is not None:
                self._fields[name] = value

    def to_dict(self) -> dict[str, Any]:
        """Return the whole block, with the texts that arrived in pieces joined."""
        return self._fields | {
            name: "".join(pieces) for name, pieces in self._joined_texts.items()
        }
