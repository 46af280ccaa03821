"""Google's Gemini API, `streamGenerateContent`.

`to_wire` and `message_to_wire` say what we send and are pure; what a chunk of an
answer means says `gemini_chunks`. `Gemini` carries bytes between them. A thought
of the model stays with Google; what we get is a signature on the part that came
of it, and it has to go back on that very part.

https://ai.google.dev/api/generate-content and …/gemini-api/docs/thought-signatures
"""

from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from refold.provider import sendable
from refold.provider.conceding import Concessions
from refold.provider.encoded import Encoded, Piece
from refold.provider.gemini_chunks import WIRE, Chunk, Kept, Reading, ending, from_wire
from refold.provider.http import Http
from refold.provider.port import (
    Delta,
    Request,
)
from refold.provider.sse import Events
from refold.provider.stream import Reader, deltas
from refold.values.clean import clean
from refold.values.messages import Message, Text, Thinking, ToolCall, ToolResult

# Google's word for "this call is not of your making": a model that insists on a
# signature takes it in the place of one.
UNSIGNED = "skip_thought_signature_validator"

# How signatures go back: those we have; a stand-in too, where a call has none; or
# only stand-ins, since ours are of another account.
Signing: TypeAlias = Literal["kept", "filled", "replaced"]
Extra: TypeAlias = Literal["thoughts", "signatures"]


class Called(Struct, frozen=True):
    """What a result must say of its call."""

    name: str
    id: str = ""  # theirs; older models give none, and then order tells


def to_wire(
    request: Request, contents: bytes, without: frozenset[Extra] = frozenset()
) -> bytes:
    """The body of a request, given its contents, joined, from `message_to_wire`."""
    body: dict[str, Any] = {}
    if system := sendable.text(request.system).strip():
        body["systemInstruction"] = {"parts": [{"text": system}]}
    if request.tools:
        declared = [
            {
                "name": t.name,
                "description": t.description,
                "parametersJsonSchema": t.parameters,
            }
            for t in request.tools
        ]
        body["tools"] = [{"functionDeclarations": declared}]
        if request.tool_choice == "none":
            body["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
    wanted: dict[str, Any] = {}
    if request.max_output:
        wanted["maxOutputTokens"] = request.max_output
    if "thoughts" not in without:
        wanted["thinkingConfig"] = {"includeThoughts": True}
    if wanted:
        body["generationConfig"] = wanted
    body["contents"] = Raw(b"[" + contents + b"]")
    return msgspec.json.encode(body)


def path(model: str) -> str:
    """Where a model is asked. Tuned ones are named with their folder."""
    name = clean(model)
    name = name if "/" in name else f"models/{name}"
    return f"/v1beta/{quote(name)}:streamGenerateContent?alt=sse"


def message_to_wire(
    message: Message, called: Mapping[str, Called], signing: Signing = "kept"
) -> Iterator[Piece]:
    """A message as parts. Speakers must alternate, so neighbours share a head.

    `called` says which call a result is of: Google pairs them by name and order,
    and by id where it gave one.
    """
    if message.role == "assistant":
        role, parts = b"model", [*_answered(message, signing)]
        if all("thought" in part or not part.get("text", True) for part in parts):
            return
    else:
        role, parts = b"user", [*_told(message, called)]
        if not parts and message.role == "user":
            parts = [{"text": "(no words)"}]
    if parts:
        body = b",".join(msgspec.json.encode(part) for part in parts)
        yield Piece(body, b'{"role":"%s","parts":[' % role, b"]}")


def calls_of(message: Message) -> dict[str, Called]:
    """The calls of a message, by our ids."""
    found: dict[str, Called] = {}
    for call in message.calls:
        theirs = _kept(call.data).id if call.wire == WIRE else ""
        found[call.id] = Called(sendable.name(call.name), theirs)
    return found


class Gemini:
    """A model of Google's."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._called: dict[str, Called] = {}  # for results that follow
        self._encoded: dict[Signing, Encoded] = {}
        self._concessions = Concessions[Extra](_ABOUT)

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        model = request.model

        def ask() -> AsyncGenerator[Delta, None]:
            without = self._concessions.of(model)
            signing = "replaced" if "signatures" in without else _signing(model)
            if not _thinks(model):
                without = without.union(_THOUGHTS)
            contents = self._encoder(signing).join(request.messages)
            body = to_wire(request, contents, without)
            reader = Reader(Events, Chunk, Reading(), from_wire, ending)
            return deltas(self._http, path(model), body, model, reader)

        return self._concessions.stream(model, ask)

    async def aclose(self) -> None:
        await self._http.aclose()

    def _encoder(self, signing: Signing) -> Encoded:
        if signing not in self._encoded:
            self._encoded[signing] = Encoded(partial(self._encode, signing))
        return self._encoded[signing]

    def _encode(self, signing: Signing, message: Message) -> Iterator[Piece]:
        self._called.update(calls_of(message))
        return message_to_wire(message, self._called, signing)


_THOUGHTS: frozenset[Extra] = frozenset({"thoughts"})
_ABOUT: dict[Extra, str] = {
    "signatures": r"thought.?signature",
    "thoughts": r"thinking\b.*\bnot (supported|enabled)|thinking.?config|include.?thoughts",
}


def _told(message: Message, called: Mapping[str, Called]) -> Iterator[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, ToolResult):
            call = called.get(part.call_id, Called("unnamed"))
            text = sendable.text(part.text)
            found: dict[str, Any] = {"id": call.id} if call.id else {}
            answer = {"error" if part.failed else "output": text}
            yield {"functionResponse": {**found, "name": call.name, "response": answer}}
    for text in sendable.words(message):
        yield {"text": text}


def _answered(message: Message, signing: Signing) -> Iterator[dict[str, Any]]:
    nothing = Kept()
    signature: dict[str, str] = {}  # of the words that come next
    insists = signing != "kept"  # the first call of an answer must have one
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                yield {"text": sendable.text(text), **signature}
                signature = {}
            case Thinking(text, wire, data) if wire == WIRE and signing != "replaced":
                kept = _kept(data)
                signature = _signature(kept.thought_signature)
                if signature and (kept.thought or kept.text is not None):
                    thought = {"thought": True} if kept.thought else {}
                    yield {"text": sendable.text(text), **thought, **signature}
                    signature = {}
            case ToolCall(_, name, arguments, _, wire, data):
                kept = _kept(data) if wire == WIRE else nothing
                signed = kept.thought_signature if signing != "replaced" else ""
                yield {
                    "functionCall": {
                        **({"id": kept.id} if kept.id else {}),
                        "name": sendable.name(name),
                        "args": sendable.arguments(arguments),
                    },
                    **_signature(signed or (UNSIGNED if insists else "")),
                }
                insists = False
            case _:
                continue


def _signature(signature: str) -> dict[str, str]:
    return {"thoughtSignature": signature} if signature else {}


def _kept(data: Raw) -> Kept:
    try:
        return msgspec.json.decode(data, type=Kept)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Kept()


def _signing(model: str) -> Signing:
    """The third generation was the first to insist on signatures."""
    older = ("gemini-1", "gemini-2", "gemma")
    return "kept" if model.rpartition("/")[2].startswith(older) else "filled"


def _thinks(model: str) -> bool:
    older = ("gemini-1", "gemini-2.0", "gemma")
    return not model.rpartition("/")[2].startswith(older)
