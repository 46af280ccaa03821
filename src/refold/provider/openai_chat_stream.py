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
    # Some servers put the fields of `error` at the top level.
    message: Any = None
    code: Any = None


class ChatStreamState(Struct, frozen=True):
    """What the parser must know of the response so far to read the next chunk."""

    calls: "tuple[_Known, ...]" = ()
    used: "_Usage | None" = None
    counted: bool = False  # whether the final usage has arrived, and nothing since
    begun: bool = False  # whether a part of the response has arrived
    finish: str = ""
    refused: bool = False
    model: str = ""
    own_wire: str = ""  # the wire that needs its reasoning back; "": none
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
    if chunk.choices:  # a whole body is complete, whatever its finish reason
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
                pieces.append(ThinkingDelta("", state.own_wire, data))
    return state, tuple(pieces)


def done_if_complete(state: ChatStreamState, marked: bool) -> Done | None:
    """The end of a response, if it may end here: usage comes after its text.

    `[DONE]` or the last usage is an end, too: several servers send no finish reason.
    """
    if not (state.finish or marked or state.counted):
        return None
    stop = _STOP_REASONS.get(state.finish, "end")
    why = state.finish if stop == "refused" else ""
    if state.refused:
        stop = "refused"  # its text is the reason
    elif state.calls and stop == "end":  # several servers say "stop" after calls
        stop = "calls"
    used = state.used or _Usage()
    return Done(_usage(used), stop, state.model, cost=_cost(used), why=why)


class _Function(Struct, frozen=True):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None  # several send the object itself


class _Call(Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _ContentPart(Struct, frozen=True):
    """A part of the content from Mistral's thinking models."""

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


class _Known(Struct, frozen=True):
    """A call that has begun: the server's index and id of it."""

    theirs: int
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
    """The failure that the finish reason reports, or ""."""
    reason = choice.finish_reason or ""
    if reason == "error":  # a gateway reports that its source failed
        return "the model's own server failed"
    if reason == "abort":  # vLLM, SGLang and LMDeploy, when shut down or overloaded
        return "the model's server stopped in the middle"
    for why in (reason, choice.native_finish_reason or ""):
        if why.upper().endswith(("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")):
            return f"the model made a call that cannot be read ({why})"
    return ""


def _read_choice(
    state: ChatStreamState, choice: _Choice
) -> tuple[ChatStreamState, list[Delta | StreamError]]:
    whole = None if state.begun else choice.message  # some repeat all of it at the end
    delta = choice.delta or whole or _Delta()
    if not state.begun and (delta.content or delta.tool_calls):
        state = replace(state, begun=True)
    pieces: list[Delta | StreamError] = []
    thought = delta.reasoning_content or delta.reasoning or ""
    if details := delta.reasoning_details:
        thought = thought or reasoning_text(details)
        for detail in details if state.own_wire else ():
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
    for place, call in enumerate(_calls(delta)):
        if choice.message and call.index is None:  # whole calls need not be counted
            call = replace(call, index=place)
        state, piece = _add_call_piece(state, call)
        pieces.append(piece)
    return state, pieces


def _calls(delta: _Delta) -> Sequence[_Call]:
    if delta.function_call and not delta.tool_calls:
        return (_Call(0, function=delta.function_call),)
    return delta.tool_calls or ()


def _part_to_delta(part: _ContentPart) -> Delta:
    if isinstance(part.thinking, str):
        return ThinkingDelta(part.thinking)
    if part.thinking:
        return ThinkingDelta("".join(inner.text or "" for inner in part.thinking))
    return TextDelta(part.text or "")


def _add_call_piece(
    state: ChatStreamState, call: _Call
) -> tuple[ChatStreamState, CallDelta]:
    """A piece of a call, with our index.

    Most servers count calls from 0; some give every call the same index or none at all, and
    then only a new id with a name shows that this is another call. Some give each piece an id
    of its own, or let the name end in a mark of the model's format.
    """
    function = call.function or _Function()
    arguments = _arguments_text(function.arguments)
    name = (function.name or "").partition("<|")[0].strip()
    known, server_index, id_ = state.calls, call.index, call.id or ""
    if server_index is None:
        server_index = known[-1].theirs if known else 0
    for index in range(len(known) - 1, -1, -1):
        if known[index].theirs == server_index:
            if name and id_ and known[index].id and known[index].id != id_:
                break
            if known[index].named or not name:
                return state, CallDelta(index, arguments)
            # Several send the arguments first.
            known_call = replace(known[index], named=True)
            calls = (*known[:index], known_call, *known[index + 1 :])
            return replace(state, calls=calls), CallDelta(index, arguments, name=name)
    calls = (*known, _Known(server_index, id_, bool(name)))
    return replace(state, calls=calls), CallDelta(len(known), arguments, id_, name)


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
    if isinstance(usage.cost, bool) or not isinstance(usage.cost, int | float):
        return None
    match usage.cost_details:
        case {"upstream_inference_cost": int() | float() as more} if usage.is_byok is True:
            return usage.cost + more
        case _:
            return float(usage.cost)


def _stream_error(error: Any) -> StreamError:
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


# The fields of a block that grow with each piece. Others are sent once, or repeated.
_GROWING_FIELDS = ("text", "summary")


def reasoning_text(details: Iterable[dict[str, Any]]) -> str:
    """The readable texts among the details."""
    words = (detail.get(name) for detail in details for name in _GROWING_FIELDS)
    return "".join(word for word in words if isinstance(word, str))


def join_details(pieces: Iterable[dict[str, Any]]) -> Raw | None:
    """The details in the form to send back; None if they cannot be encoded."""
    blocks: list[_Block] = []
    for piece in pieces:
        if not (blocks and blocks[-1].continues_with(piece)):
            blocks.append(_Block())
        blocks[-1].add(piece)
    try:
        return Raw(msgspec.json.encode([block.to_dict() for block in blocks]))
    except (UnicodeEncodeError, OverflowError):  # half a character, a huge number
        return None


class _Block:
    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._grown: dict[str, list[str]] = {}

    def continues_with(self, piece: dict[str, Any]) -> bool:
        """Whether a piece continues this block: same type and index, and not encrypted."""
        sealed = piece.get("type") == "reasoning.encrypted"
        same = (self._fields.get(name) == piece.get(name) for name in ("type", "index"))
        return not sealed and all(same)

    def add(self, piece: dict[str, Any]) -> None:
        for name, value in piece.items():
            if name in _GROWING_FIELDS and isinstance(value, str):
                self._fields.setdefault(name, "")
                self._grown.setdefault(name, []).append(value)
            elif value is not None:
                self._fields[name] = value

    def to_dict(self) -> dict[str, Any]:
        return self._fields | {
            name: "".join(pieces) for name, pieces in self._grown.items()
        }
