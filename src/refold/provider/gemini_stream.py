"""Parses the chunks of a response of the Gemini API into deltas.

The functions are pure: they get the state so far and a chunk, and return the next state and
deltas. `gemini` encodes the requests.

https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse
"""

import json
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.provider.error_mapping import StreamError
from refold.provider.port import CallDelta, Delta, Done, Stop, TextDelta, ThinkingDelta
from refold.values.usage import Usage

WIRE_NAME = "gemini"  # also the name under which Google's signatures are stored


class ThoughtSignature(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A signature that must be sent back with its call, thought or text; and the call's id.

    A signature that arrived after all text has the empty `text`, with which it is sent back.
    """

    thought_signature: str = ""
    id: str = ""
    text: str | None = None
    thought: bool = False


class Chunk(Struct, frozen=True, rename="camel"):
    candidates: "list[_Candidate] | None" = None
    prompt_feedback: "_Feedback | None" = None
    usage_metadata: "_Usage | None" = None
    model_version: str | None = None
    error: Any = None


class GeminiStreamState(Struct, frozen=True):
    """The state of the parser between two chunks of a response."""

    calls: int = 0
    # whether the last text was signed: other text must not be joined to it
    signed: bool = False
    used: "_Usage | None" = None
    finish: str = ""
    why: str = ""  # the reason, in the provider's words
    model: str = ""
    own_wire: str = WIRE_NAME  # the name under which this response's signatures are stored


def from_wire(
    state: GeminiStreamState, chunk: Chunk
) -> tuple[GeminiStreamState, tuple[Delta | StreamError, ...]]:
    """Return the next state and the deltas of a chunk."""
    if chunk.error:
        return state, (_stream_error(chunk.error),)
    if chunk.usage_metadata or (chunk.model_version and not state.model):
        state = replace(
            state,
            used=chunk.usage_metadata or state.used,
            model=state.model or chunk.model_version or "",
        )
    if (feedback := chunk.prompt_feedback) and feedback.block_reason:
        why = feedback.block_reason_message or feedback.block_reason
        state = replace(state, finish="BLOCKED", why=why)
    pieces: list[Delta | StreamError] = []
    for candidate in chunk.candidates or ():
        content = candidate.content or _Content()
        for part in content.parts or ():
            if part.text and part.function_call is not None:  # some gateways send both
                pieces.append(TextDelta(part.text))
            state, part_pieces = _parse_part(state, part)
            pieces += part_pieces
        if reason := candidate.finish_reason:
            message = candidate.finish_message
            state = replace(state, finish=reason, why=message or reason)
            if reason in _FAILURE_REASONS:
                status, explanation = _FAILURE_REASONS[reason]
                detail = f": {message}" if message else ""
                pieces.append(StreamError(status, f"{explanation} ({reason}){detail}"))
    return state, tuple(pieces)


def done_if_complete(state: GeminiStreamState, marked: bool) -> Done | None:
    """Return the `Done` of a response that may end here, or None if it was cut off.

    `marked` says whether the stream's end mark has arrived.
    """
    if not state.finish and not marked:
        return None
    stop = _STOP_REASONS.get(state.finish, "end")
    if state.finish in _REFUSAL_REASONS:
        stop = "refused"
    if stop == "end" and state.calls:
        stop = "calls"
    why = state.why if stop == "refused" else ""
    return Done(_usage(state.used or _Usage()), stop, state.model, why=why)


class _Call(Struct, frozen=True):
    name: str = ""
    args: Any = None
    id: str | None = None


class _Part(Struct, frozen=True, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _Call | None = None


class _Content(Struct, frozen=True):
    parts: list[_Part] | None = None


class _Candidate(Struct, frozen=True, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Feedback(Struct, frozen=True, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _Usage(Struct, frozen=True, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


_STOP_REASONS: dict[str, Stop] = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
}

_REFUSAL_REASONS = frozenset(
    {
        "BLOCKED",
        "BLOCKLIST",
        "ESCALATION",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "IMAGE_SAFETY",
        "LANGUAGE",
        "MODEL_ARMOR",
        "PROHIBITED_CONTENT",
        "PUP_LIMITED_DISABLED",
        "RECITATION",
        "SAFETY",
        "SPII",
    }
)

# Finish reasons without a response. The status decides whether a retry may help.
_FAILURE_REASONS = {
    "MALFORMED_FUNCTION_CALL": (500, "the model made a call that cannot be read"),
    "MALFORMED_RESPONSE": (500, "the model's answer cannot be read"),
    "UNEXPECTED_TOOL_CALL": (500, "the model called a tool that it was not given"),
    "OTHER": (500, "the model stopped and does not say why"),
    "TOO_MANY_TOOL_CALLS": (400, "the model called too many tools in a row"),
    "MISSING_THOUGHT_SIGNATURE": (400, "a call of ours went back without its signature"),
}


def _parse_part(
    state: GeminiStreamState, part: _Part
) -> tuple[GeminiStreamState, tuple[Delta, ...]]:
    """Return the next state, and the deltas of a part, which is a call, a thought or text.

    A signature is in the delta of the call or the thought, or in a separate delta before the
    text.
    """
    text, signature = part.text or "", part.thought_signature or ""
    own_wire = state.own_wire
    if (call := part.function_call) is not None:
        delta = CallDelta(state.calls, _json(call.args or {}), call.id or "", call.name)
        stored = ThoughtSignature(signature, call.id or "")
        if stored != ThoughtSignature():  # otherwise there is nothing to store
            delta = replace(delta, wire=own_wire, data=_to_raw(stored))
        return replace(state, calls=state.calls + 1, signed=False), (delta,)
    if part.thought and signature:
        signed_thought = _to_raw(ThoughtSignature(signature, thought=True))
        return state, (ThinkingDelta(text, own_wire, signed_thought),)
    if part.thought:
        return state, (ThinkingDelta(text),) if text else ()
    if signature and not text:  # a signature at the end of a stream, after all text
        data = _to_raw(ThoughtSignature(signature, text=""))
        return state, (ThinkingDelta(wire=own_wire, data=data),)
    if not text:
        return state, ()
    if signature or state.signed:
        # Signed and unsigned text must stay apart. The delta between them has the
        # signature.
        between = ThinkingDelta(wire=own_wire, data=_to_raw(ThoughtSignature(signature)))
        return replace(state, signed=bool(signature)), (between, TextDelta(text))
    return state, (TextDelta(text),)


def _to_raw(signature: ThoughtSignature) -> Raw:
    return Raw(msgspec.json.encode(signature))


def _json(value: Any) -> str:
    """Encode arguments as JSON, including values that our strict encoder refuses."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair, or a huge number
        return json.dumps(value, ensure_ascii=False)


def _usage(usage: _Usage) -> Usage:
    """Return the tokens as refold counts them: cached ones apart, and thoughts in `output`."""
    prompt = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
    cached = usage.cached_content_token_count or 0
    thought = usage.thoughts_token_count or 0
    return Usage(
        fresh=max(prompt - cached, 0),  # their count includes cached tokens
        cached=cached,
        # their count excludes thoughts
        output=(usage.candidates_token_count or 0) + thought,
        reasoning=thought,
    )


def _stream_error(error: Any) -> StreamError:
    """Return the error with its HTTP status, or with 500 if it has no valid one."""
    match error:
        case {"message": str(message), "code": int(status)} if 400 <= status < 600:
            return StreamError(status, message)
        case {"message": str(message)}:
            return StreamError(500, message)
        case _:
            return StreamError(500, str(error))
