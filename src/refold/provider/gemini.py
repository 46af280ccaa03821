"""A provider for Google's Gemini API, `streamGenerateContent`.

`to_wire` and `message_to_wire` encode a request and are pure; `gemini_stream` parses the chunks
of a response. `Gemini` connects the two with HTTP. Google does not show a model's complete
thoughts, but sends a signature with the part that resulted from a thought; the signature must
be returned with exactly that part.

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

# Google's placeholder for the signature of a call that its model did not make. Models that
# require a signature accept it.
MISSING_SIGNATURE = "skip_thought_signature_validator"

# The signatures to send. "kept": the stored ones; "filled": also a placeholder for a call
# without one; "replaced": only placeholders, because the stored ones belong to another account.
Signing: TypeAlias = Literal["kept", "filled", "replaced"]
# Features that a model may refuse. "system": a system text; "nested":
# images inside results; "thoughts": returning its thoughts; "signatures": signatures of another
# model; and each effort.
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
    """How messages are encoded. `signing` says which thought signatures are sent.

    If `nested`, the images of a result are inside the result; otherwise they follow all
    results.
    """

    signing: Signing = "kept"
    nested: bool = True
    own_wire: str = WIRE_NAME  # the name under which signatures and ids of calls are kept


class NamedCall(Struct, frozen=True):
    """The name and id by which the API finds the call that a result belongs to."""

    name: str
    id: str = ""  # Google's id; older models send none, then the order counts


def to_wire(
    request: Request, contents: bytes, without: frozenset[Extra] = frozenset()
) -> bytes:
    """Return the body of a request. `contents` is the joined output of `message_to_wire`.

    `without` are the features that the model has refused.
    """
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
    if config := _generation_config(request, without):
        body["generationConfig"] = config
    return body_with(body, "contents", contents)


def path(model: str) -> str:
    """Return the API path of a model. Names of tuned models include their folder."""
    name = clean(model)
    resource = name if "/" in name else f"models/{name}"
    return f"/v1beta/{quote(resource)}:streamGenerateContent?alt=sse"


def message_to_wire(
    message: Message,
    pictures: Pictures = NO_PICTURES,
    *,
    calls: Mapping[str, NamedCall],
    encoding: GeminiEncoding | None = None,
) -> Iterator[EncodedPiece]:
    """Yield a message, encoded as parts.

    Speakers must alternate, so `encoding_cache` merges neighbouring messages with the same
    head. `calls` has the call of each result, by our call ids. Google matches a result to its
    call by name and order, or by id if Google has sent an id.
    """
    encoding = encoding or GeminiEncoding()
    if message.role == "assistant":
        role = b"model"
        parts = list(_model_parts(message, encoding))
        answer_parts = [part for part in parts if "thought" not in part]
        has_answer = any("text" not in part or part["text"] for part in answer_parts)
        if not has_answer:
            return  # there are only thoughts and empty texts
    else:
        role = b"user"
        parts = list(_user_parts(message, pictures, calls, nested=encoding.nested))
        if not parts and message.role == "user":
            parts = [{"text": "(no words)"}]
    if parts:
        body = b",".join(msgspec.json.encode(part) for part in parts)
        yield EncodedPiece(body, b'{"role":"%s","parts":[' % role, b"]}")


def calls_of(message: Message, own_wire: str = WIRE_NAME) -> dict[str, NamedCall]:
    """Return the calls of a message by our call ids.

    Ids that Google sent are read from data that was stored under the name `own_wire`.
    """
    calls: dict[str, NamedCall] = {}
    for call in message.calls:
        google_id = _decode_signature(call.data).id if call.wire == own_wire else ""
        calls[call.id] = NamedCall(
            sanitize.name(sanitize.original_call(call).name), google_id
        )
    return calls


class Gemini:
    """A provider for Google's models."""

    def __init__(self, http: Http, own_wire: str = WIRE_NAME) -> None:
        self._http, self._own_wire = http, own_wire
        self._called: dict[str, NamedCall] = {}  # all calls so far, for their results
        self._encodings = Encodings[GeminiEncoding](
            lambda manner: partial(self._encode, manner)
        )
        self._system_as_user = SystemAsUser()
        self._capabilities = CapabilityFallback[Extra](_REFUSAL_PATTERNS)
        self._images = ImageFallback()

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response. Features and images that the model refuses are left out."""
        model = request.model

        def ask(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            """Send the request once. The images in `hidden` are described in words."""
            refused = self._capabilities.features_to_leave_out(model)
            without = refused | _missing_features(model)
            encoding = GeminiEncoding(
                signing=_signing(model, without),
                nested="nested" not in without,
                own_wire=self._own_wire,
            )
            encoded = self._encodings.encoding_for(
                encoding, shown="pictures" not in without, hidden=hidden
            )
            sent = self._system_as_user.apply(request) if "system" in without else request
            contents = encoded.join(sent.messages, request.pictures)
            body = to_wire(sent, contents, without)
            start = GeminiStreamState(own_wire=self._own_wire)
            reader = Reader(
                splitter=Events,
                event=Chunk,
                start=start,
                step=from_wire,
                ending=done_if_complete,
                end_mark=b"[DONE]",
            )
            return deltas(self._http, path(model), body, request, reader)

        def stream_without_refused_features(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            return self._capabilities.stream(
                model, partial(ask, hidden), _refusable_features(request)
            )

        return self._images.stream(request, stream_without_refused_features)

    async def aclose(self) -> None:
        await self._http.aclose()

    def _encode(
        self, encoding: GeminiEncoding, message: Message, pictures: Pictures
    ) -> Iterator[EncodedPiece]:
        """Return the encoded pieces of a message, and remember its calls for their results."""
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
    """Return the optional features of this request, which the model may refuse."""
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
    """Return the features that this model is too old to have."""
    name = model.rpartition("/")[2]
    features: set[Extra] = set()
    if name.startswith(("gemini-1", "gemini-2", "gemma")):
        features.add("nested")
    if name.startswith(("gemini-1", "gemini-2.0", "gemma")):
        features.add("thoughts")
    return frozenset(features)


def _generation_config(request: Request, without: frozenset[Extra]) -> dict[str, Any]:
    """Return the API's `generationConfig` for a request, without the features in `without`."""
    config: dict[str, Any] = {}
    if request.max_output:
        config["maxOutputTokens"] = request.max_output
    if "thoughts" not in without:
        # otherwise the model has no thoughts to return
        include_thoughts = request.effort != "off"
        config["thinkingConfig"] = {
            "includeThoughts": include_thoughts,
            **_effort(request, without),
        }
    if request.temperature is not None and "temperature" not in without:
        config["temperature"] = request.temperature
    # Older models, which also lack nested images, support either tools or a schema.
    is_older = "nested" in _missing_features(request.model)
    may_have_schema = "schema" not in without and not (request.tools and is_older)
    if sanitize.has_schema(request) and may_have_schema:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = request.schema
    return config


def _effort(request: Request, without: frozenset[Extra]) -> dict[str, Any]:
    """Return the field that sets how much to think: a level, or a budget for older models.

    Return {} to use the model's default.
    """
    if not _takes_budget(request.model):
        effort_word = level(GEMINI_LEVELS, request.effort, without)
        return {"thinkingLevel": effort_word.upper()} if effort_word else {}
    budgets = GEMINI_PRO_BUDGETS if "-pro" in request.model else GEMINI_BUDGETS
    budget = budgets.get(request.effort)
    return {} if budget is None else {"thinkingBudget": budget}


def _takes_budget(model: str) -> bool:
    """Return True if the model takes a thinking budget: the second generation does."""
    return model.rpartition("/")[2].startswith("gemini-2")


def _user_parts(
    message: Message, pictures: Pictures, calls: Mapping[str, NamedCall], *, nested: bool
) -> Iterator[dict[str, Any]]:
    """Yield the results in a message, then its texts and images.

    If `nested`, the images of a result are inside the result; otherwise they follow all
    results.
    """
    extra_parts: list[dict[str, Any]] = []  # collected, because results must stay together
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
    """Yield the texts and calls of a response, and signed thoughts, with their signatures."""
    signing, own_wire = encoding.signing, encoding.own_wire
    signature: dict[str, str] = {}  # of the text that follows
    # Only the first call of a response must have a signature.
    needs_signature = signing != "kept"
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                yield {"text": sanitize.text(text), **signature}
                signature = {}
            case Thinking(text, wire, data) if wire == own_wire and signing != "replaced":
                stored = _decode_signature(data)
                signature = _signature(stored.thought_signature)
                is_own_part = stored.thought or stored.text is not None
                if signature and is_own_part:  # otherwise it belongs to the next text
                    thought = {"thought": True} if stored.thought else {}
                    yield {"text": sanitize.text(text), **thought, **signature}
                    signature = {}
            case ToolCall(wire=wire, data=data):
                call = sanitize.original_call(part)
                is_own = wire == own_wire
                stored = _decode_signature(data) if is_own else ThoughtSignature()
                call_signature = "" if signing == "replaced" else stored.thought_signature
                if needs_signature and not call_signature:
                    call_signature = MISSING_SIGNATURE
                yield {
                    "functionCall": {
                        **({"id": stored.id} if stored.id else {}),
                        "name": sanitize.name(call.name),
                        "args": sanitize.arguments(call.arguments),
                    },
                    **_signature(call_signature),
                }
                needs_signature = False
            case _:
                continue


def _signature(signature: str) -> dict[str, str]:
    """Return the field for a signature, or {} if `signature` is ""."""
    return {"thoughtSignature": signature} if signature else {}


def _decode_signature(data: Raw) -> ThoughtSignature:
    """Decode what was stored with a call or a thought. Return an empty value if invalid."""
    try:
        return msgspec.json.decode(data, type=ThoughtSignature)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ThoughtSignature()


def _signing(model: str, without: frozenset[Extra]) -> Signing:
    """Return which thought signatures to send to the model.

    Models since the third generation require a signature with the first call of a response.
    `without` are the features that the model has refused.
    """
    if "signatures" in without:
        return "replaced"
    _, _, name = model.rpartition("/")
    needs_none = name.startswith(("gemini-1", "gemini-2", "gemma"))
    return "kept" if needs_none else "filled"
