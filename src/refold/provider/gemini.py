"""Google's Gemini API, `streamGenerateContent`: requests, and the provider.

`to_wire` and `message_to_wire` encode a request and are pure; `gemini_stream` parses the
chunks of a response. `Gemini` connects the two with HTTP. Google keeps the thoughts of a
model and sends a signature on the part that followed from one; the signature must be
returned on that very part.

https://ai.google.dev/api/generate-content and …/gemini-api/docs/thought-signatures
"""

from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from refold.provider import sanitize
from refold.provider.api_client import Http
from refold.provider.capability_fallback import CapabilityFallback
from refold.provider.efforts import (
    GEMINI_BUDGETS,
    GEMINI_LEVELS,
    GEMINI_PRO_BUDGETS,
    Level,
    level,
)
from refold.provider.encoding_cache import EncodedPiece, body_with
from refold.provider.gemini_stream import (
    WIRE_NAME,
    Chunk,
    GeminiStreamState,
    ThoughtSignature,
    done_if_complete,
    from_wire,
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
from refold.provider.sanitize import NO_SYSTEM_PATTERN, SystemAsUser
from refold.provider.sse import Events
from refold.provider.wire_stream import Reader, deltas
from refold.values.messages import Message, Text, Thinking, ToolCall, ToolResult
from refold.values.text import clean

# Google's placeholder for the signature of a call that its model did not make: models that
# require a signature accept it.
MISSING_SIGNATURE = "skip_thought_signature_validator"

# Which signatures are sent: the stored ones; a placeholder, too, for a call without one; or
# only placeholders, if the stored ones belong to another account.
Signing: TypeAlias = Literal["kept", "filled", "replaced"]
# What a model may refuse: a system text; images, or only those inside results; a schema;
# each effort, to return its thoughts, and signatures of another model.
Extra: TypeAlias = (
    Literal[
        "system", "pictures", "nested", "schema", "thoughts", "signatures", "temperature"
    ]
    | Level
)

IMAGE_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}
)


class GeminiEncoding(Struct, frozen=True):
    """How messages are encoded. `nested`: the images of a result are part of it."""

    signing: Signing = "kept"
    nested: bool = True
    own_wire: str = WIRE_NAME  # the name under which signatures and ids of calls are kept


class NamedCall(Struct, frozen=True):
    """The call of a result, as the API identifies it."""

    name: str
    id: str = ""  # Google's; older models give none, then the order counts


def to_wire(
    request: Request, contents: bytes, without: frozenset[Extra] = frozenset()
) -> bytes:
    """Encode the body of a request. `contents`: the joined output of `message_to_wire`."""
    body: dict[str, Any] = {}
    if system := sanitize.text(request.system).strip():
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
    if wanted := _generation_config(request, without):
        body["generationConfig"] = wanted
    return body_with(body, "contents", contents)


def path(model: str) -> str:
    """The path of the API for a model. Names of tuned models include their folder."""
    name = clean(model)
    name = name if "/" in name else f"models/{name}"
    return f"/v1beta/{quote(name)}:streamGenerateContent?alt=sse"


def message_to_wire(
    message: Message,
    pictures: Pictures = NO_PICTURES,
    *,
    calls: Mapping[str, NamedCall],
    encoding: GeminiEncoding | None = None,
) -> Iterator[EncodedPiece]:
    """A message as parts. Speakers must alternate, so neighbours share a head.

    `calls` says which call a result is of: Google pairs them by name and order,
    and by id where it gave one.
    """
    encoding = encoding or GeminiEncoding()
    if message.role == "assistant":
        role, parts = b"model", [*_model_parts(message, encoding)]
        if all("thought" in part or not part.get("text", True) for part in parts):
            return
    else:
        role, parts = b"user", [*_user_parts(message, pictures, calls, encoding.nested)]
        if not parts and message.role == "user":
            parts = [{"text": "(no words)"}]
    if parts:
        body = b",".join(msgspec.json.encode(part) for part in parts)
        yield EncodedPiece(body, b'{"role":"%s","parts":[' % role, b"]}")


def calls_of(message: Message, own_wire: str = WIRE_NAME) -> dict[str, NamedCall]:
    """The calls of a message, by our ids. `own_wire`: as in `GeminiEncoding`."""
    calls: dict[str, NamedCall] = {}
    for call in message.calls:
        theirs = _decode_signature(call.data).id if call.wire == own_wire else ""
        calls[call.id] = NamedCall(sanitize.name(sanitize.original_call(call).name), theirs)
    return calls


class Gemini:
    """A model of Google."""

    def __init__(self, http: Http, own_wire: str = WIRE_NAME) -> None:
        self._http, self._own_wire = http, own_wire
        self._called: dict[str, NamedCall] = {}  # for results that follow
        self._encoded = Encodings[GeminiEncoding](
            lambda manner: partial(self._encode, manner)
        )
        self._system_as_user = SystemAsUser()
        self._concessions = CapabilityFallback[Extra](_REFUSAL_PATTERNS)
        self._images = ImageFallback()

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        model = request.model

        def ask(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            without = self._concessions.features_to_leave_out(model) | _missing_features(
                model
            )
            nested = "nested" not in without
            encoding = GeminiEncoding(_signing(model, without), nested, self._own_wire)
            encoder = self._encoded.encoding_for(
                encoding, shown="pictures" not in without, hidden=hidden
            )
            asked = self._system_as_user.apply(request) if "system" in without else request
            contents = encoder.join(asked.messages, request.pictures)
            body = to_wire(asked, contents, without)
            start = GeminiStreamState(own_wire=self._own_wire)
            reader = Reader(
                Events, Chunk, start, from_wire, done_if_complete, over=b"[DONE]"
            )
            return deltas(self._http, path(model), body, request, reader)

        def stream_without_refused_features(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            return self._concessions.stream(
                model, partial(ask, hidden), _refusable_features(request)
            )

        return self._images.stream(request, stream_without_refused_features)

    async def aclose(self) -> None:
        await self._http.aclose()

    def _encode(
        self, encoding: GeminiEncoding, message: Message, pictures: Pictures
    ) -> Iterator[EncodedPiece]:
        self._called.update(calls_of(message, self._own_wire))
        return message_to_wire(message, pictures, calls=self._called, encoding=encoding)


_REFUSAL_PATTERNS: dict[Extra, str] = {
    "system": NO_SYSTEM_PATTERN,
    "nested": r"function.?response\W?parts|multimodal function response",
    "pictures": NO_IMAGES_PATTERN,
    "temperature": r"temperature",
    "schema": r"schema|response.?mime.?type",
    "xhigh": r"thinking|invalid argument",
    "high": r"thinking",
    "medium": r"thinking",
    "minimal": r"thinking",
    "low": r"thinking",
    "signatures": r"thought.?signature",
    "thoughts": r"thinking\b.*\bnot (supported|enabled)|thinking.?config|include.?thoughts",
}


def _refusable_features(request: Request) -> frozenset[Extra]:
    """The features of this request that a refusal may be about."""
    features: set[Extra] = {"signatures", "thoughts"}
    if request.temperature is not None:
        features.add("temperature")
    if not _takes_budget(request.model):
        features |= {*GEMINI_LEVELS.get(request.effort, ())}
    if request.system.strip():
        features.add("system")
    if request.pictures:
        features |= {"pictures", "nested"}
    if sanitize.has_schema(request):
        features.add("schema")
    return frozenset(features)


def _missing_features(model: str) -> frozenset[Extra]:
    """The features that a model is too old for."""
    name = model.rpartition("/")[2]
    features: set[Extra] = set()
    if name.startswith(("gemini-1", "gemini-2", "gemma")):
        features.add("nested")
    if name.startswith(("gemini-1", "gemini-2.0", "gemma")):
        features.add("thoughts")
    return frozenset(features)


def _generation_config(request: Request, without: frozenset[Extra]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if request.max_output:
        config["maxOutputTokens"] = request.max_output
    if "thoughts" not in without:
        include_thoughts = request.effort != "off"  # no thoughts to return
        config["thinkingConfig"] = {
            "includeThoughts": include_thoughts,
            **_effort(request, without),
        }
    if request.temperature is not None and "temperature" not in without:
        config["temperature"] = request.temperature
    # The second generation has either tools or a schema.
    both = not request.tools or "nested" not in _missing_features(request.model)
    if sanitize.has_schema(request) and both and "schema" not in without:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = request.schema
    return config


def _effort(request: Request, without: frozenset[Extra]) -> dict[str, Any]:
    if not _takes_budget(request.model):
        effort_word = level(GEMINI_LEVELS, request.effort, without)
        return {"thinkingLevel": effort_word.upper()} if effort_word else {}
    budgets = GEMINI_PRO_BUDGETS if "-pro" in request.model else GEMINI_BUDGETS
    budget = budgets.get(request.effort)
    return {} if budget is None else {"thinkingBudget": budget}


def _takes_budget(model: str) -> bool:
    """Return True for the second generation, which takes a thinking budget in tokens."""
    return model.rpartition("/")[2].startswith("gemini-2")


def _user_parts(
    message: Message, pictures: Pictures, calls: Mapping[str, NamedCall], nested: bool
) -> Iterator[dict[str, Any]]:
    extra_parts: list[dict[str, Any]] = []  # responses stay together
    for part in message.parts:
        if isinstance(part, ToolResult):
            call = calls.get(part.call_id, NamedCall("unnamed"))
            text, images = result_content(part, pictures, IMAGE_TYPES)
            shown = [_to_part(image) for image in images]
            response: dict[str, Any] = {"id": call.id} if call.id else {}
            answer = {"error" if part.failed else "output": text}
            response |= {"name": call.name, "response": answer}
            if shown and nested:
                response["parts"] = shown
            else:
                extra_parts += shown
            yield {"functionResponse": response}
    yield from extra_parts
    yield from map(_to_part, texts_and_images(message.parts, pictures, IMAGE_TYPES))


def _to_part(content: Content) -> dict[str, Any]:
    if isinstance(content, str):
        return {"text": content}
    return {"inlineData": {"mimeType": content.kind, "data": content.data}}


def _model_parts(message: Message, encoding: GeminiEncoding) -> Iterator[dict[str, Any]]:
    signing, own_wire = encoding.signing, encoding.own_wire
    nothing = ThoughtSignature()
    signature: dict[str, str] = {}  # of the text that follows
    insists = signing != "kept"  # the first call of an answer must have one
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                yield {"text": sanitize.text(text), **signature}
                signature = {}
            case Thinking(text, wire, data) if wire == own_wire and signing != "replaced":
                stored = _decode_signature(data)
                signature = _signature(stored.thought_signature)
                if signature and (stored.thought or stored.text is not None):
                    thought = {"thought": True} if stored.thought else {}
                    yield {"text": sanitize.text(text), **thought, **signature}
                    signature = {}
            case ToolCall(wire=wire, data=data):
                call = sanitize.original_call(part)
                stored = _decode_signature(data) if wire == own_wire else nothing
                signed = stored.thought_signature if signing != "replaced" else ""
                yield {
                    "functionCall": {
                        **({"id": stored.id} if stored.id else {}),
                        "name": sanitize.name(call.name),
                        "args": sanitize.arguments(call.arguments),
                    },
                    **_signature(signed or (MISSING_SIGNATURE if insists else "")),
                }
                insists = False
            case _:
                continue


def _signature(signature: str) -> dict[str, str]:
    return {"thoughtSignature": signature} if signature else {}


def _decode_signature(data: Raw) -> ThoughtSignature:
    try:
        return msgspec.json.decode(data, type=ThoughtSignature)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ThoughtSignature()


def _signing(model: str, without: frozenset[Extra]) -> Signing:
    """Which signatures to send. Models require them from the third generation on."""
    if "signatures" in without:
        return "replaced"
    older = ("gemini-1", "gemini-2", "gemma")
    return "kept" if model.rpartition("/")[2].startswith(older) else "filled"
