"""Ollama's own API, `/api/chat`: JSON lines, with whole calls that have no ids.

`to_wire` and `message_to_wire` encode a request, `from_wire` parses a line of a
response, `model_of` the description of a model; all are pure. `Ollama` connects them
with HTTP. It asks for a model's context window once and sets it in every request:
otherwise the server silently cuts each conversation at a few thousand tokens.

https://docs.ollama.com/api
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.errors import ProviderError, Refused, Unreachable
from refold.provider import sanitize
from refold.provider.api_client import Http
from refold.provider.capability_fallback import CapabilityFallback
from refold.provider.efforts import OLLAMA_LEVELS, OLLAMA_SWITCH, level
from refold.provider.encoding_cache import EncodedPiece, body_with
from refold.provider.error_mapping import StreamError
from refold.provider.image_fallback import Hidden, ImageFallback
from refold.provider.images import (
    NO_IMAGES_PATTERN,
    EncodedImage,
    Encodings,
    join_texts,
    result_content,
    texts_and_images,
)
from refold.provider.port import (
    NO_PICTURES,
    CallDelta,
    Delta,
    Done,
    Pictures,
    Request,
    TextDelta,
    ThinkingDelta,
)
from refold.provider.sanitize import functions
from refold.provider.sse import Lines
from refold.provider.wire_stream import Reader, deltas
from refold.values.messages import Message, ToolResult
from refold.values.text import clean
from refold.values.usage import Usage

DEFAULT_WINDOW_TOKENS = 8192  # if the server does not report the model's own
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp"})

# What a model may refuse.
Extra: TypeAlias = Literal["pictures", "schema", "think"]


class OllamaModel(Struct, frozen=True):
    window: int = 0  # tokens; 0: not reported
    # "completion", "tools", "vision", "thinking" …; None: not reported
    abilities: frozenset[str] | None = None
    levels: frozenset[str] = frozenset()  # of thinking, if there are more than on and off

    def can(self, ability: str) -> bool:
        """Return True unless the server lists its abilities without this one."""
        return self.abilities is None or ability in self.abilities


def to_wire(
    request: Request,
    messages: bytes,
    window: int,
    model: OllamaModel | None = None,
    without: frozenset[Extra] = frozenset(),
) -> bytes:
    """Encode the body of a request. `messages`: the joined output of `message_to_wire`."""
    system_message = b""
    if system := sanitize.text(request.system).strip():
        system_message = msgspec.json.encode({"role": "system", "content": system})
    options: dict[str, float] = {"num_ctx": window}
    if request.max_output:
        options["num_predict"] = request.max_output
    if request.temperature is not None:
        options["temperature"] = request.temperature
    body: dict[str, Any] = {
        "model": clean(request.model),
        "stream": True,
        "options": options,
    }
    # There is no tool choice: a model that may not call is shown no tools.
    if request.tools and request.tool_choice != "none":
        body["tools"] = functions(request.tools)
    elif sanitize.has_schema(request) and "schema" not in without:
        body["format"] = request.schema  # it applies to all output, so no call is possible
    if "think" not in without:
        body |= _think(request, model or OllamaModel())
    return body_with(body, "messages", system_message, messages)


def message_to_wire(
    message: Message, pictures: Pictures = NO_PICTURES, *, names: Mapping[str, str]
) -> Iterator[EncodedPiece]:
    """Encode a message, or one for each result in it. `names`: tools by call id."""
    for part in message.parts:
        if isinstance(part, ToolResult):
            text, images = result_content(part, pictures, IMAGE_TYPES)
            fields = {"role": "tool", "content": text, **_images(images)}
            if part.call_id in names:
                fields["tool_name"] = sanitize.name(names[part.call_id])
            yield _piece({**fields, "tool_call_id": part.call_id})
    contents = texts_and_images(message.parts, pictures, IMAGE_TYPES)
    words = join_texts(contents)
    if message.role == "assistant":
        calls: list[dict[str, Any]] = [
            {
                "id": call.id,  # newer servers pair by it, older ones by order
                "function": {
                    "name": sanitize.name(call.name),
                    "arguments": sanitize.arguments(call.arguments),
                },
            }
            for call in map(sanitize.original_call, message.calls)
        ]
        if calls:
            yield _piece({"role": "assistant", "content": words, "tool_calls": calls})
        elif words:
            yield _piece({"role": "assistant", "content": words})
    elif contents or message.role == "user":
        images = [item for item in contents if isinstance(item, EncodedImage)]
        content = words if contents else "(no words)"
        yield _piece({"role": "user", "content": content, **_images(images)})


class AnswerLine(Struct, frozen=True):
    """A line of a response."""

    message: "_Message | None" = None
    done: bool = False
    done_reason: str | None = None
    model: str = ""
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: str = ""


class OllamaStreamState(Struct, frozen=True):
    calls: int = 0


def from_wire(
    state: OllamaStreamState, part: AnswerLine
) -> tuple[OllamaStreamState, tuple[Delta | StreamError, ...]]:
    """Return the next state and the deltas of a line."""
    if part.error:
        return state, (StreamError(500, part.error),)
    pieces: list[Delta | StreamError] = []
    message = part.message or _Message()
    if message.thinking:
        pieces.append(ThinkingDelta(message.thinking))
    if message.content:
        pieces.append(TextDelta(message.content))
    for call in message.tool_calls or ():
        pieces.append(_call_delta(state.calls, call))
        state = replace(state, calls=state.calls + 1)
    if part.done or part.done_reason:  # some servers leave out the first
        usage = Usage(fresh=part.prompt_eval_count or 0, output=part.eval_count or 0)
        stop = "length" if part.done_reason == "length" else "end"
        if stop == "end" and state.calls:
            stop = "calls"
        pieces.append(Done(usage, stop, part.model))
    return state, tuple(pieces)


class Ollama:
    """Models of an Ollama server. `window` overrides the window that it reports."""

    def __init__(self, http: Http, *, window: int = 0) -> None:
        self._http, self._window = http, window
        self._models: dict[str, OllamaModel] = {}
        self._names: dict[str, str] = {}  # call id to tool, for results that follow
        self._encoded = Encodings[None](lambda _: self._encode)
        self._concessions = CapabilityFallback[Extra](_REFUSAL_PATTERNS)
        self._images = ImageFallback()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        name = request.model
        need = request.tools or request.effort or request.pictures or not self._window
        model = await self._model(name) if need else OllamaModel()
        if request.tools and not model.can("tools"):
            # The server would refuse them, too. The caller then writes calls as text.
            raise Refused(f"{self._http.peer.label}'s {name!r} does not support tools")
        window = self._window or model.window or DEFAULT_WINDOW_TOKENS

        def ask(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            without = self._concessions.features_to_leave_out(name)
            shown = model.can("vision") and "pictures" not in without
            encoded = self._encoded.encoding_for(None, shown=shown, hidden=hidden)
            messages = encoded.join(request.messages, request.pictures)
            body = to_wire(request, messages, window, model, without)
            reader = Reader(
                Lines, AnswerLine, OllamaStreamState(), from_wire, think_tags=True
            )
            return deltas(self._http, "/api/chat", body, request, reader)

        def stream_without_refused_features(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            return self._concessions.stream(
                name, partial(ask, hidden), _refusable_features(request)
            )

        async with aclosing(
            self._images.stream(request, stream_without_refused_features)
        ) as answer:
            async for delta in answer:
                yield delta

    async def window(self, model: str) -> int:
        """The context window that the server reports for the model. Requested once."""
        return self._window or (await self._model(model)).window or DEFAULT_WINDOW_TOKENS

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _model(self, name: str) -> OllamaModel:
        """The server's description of a model. Requested once."""
        if name not in self._models:
            body = msgspec.json.encode({"model": clean(name)})
            try:
                async with self._http.post("/api/show", body, model=name) as answer:
                    shown = b""
                    while chunk := await answer.read():
                        shown += chunk
            except Unreachable:
                raise
            except ProviderError:
                # Some compatible servers lack this endpoint; the chat request reports
                # errors.
                return OllamaModel()
            self._models[name] = model_of(shown)
        return self._models[name]

    def _encode(self, message: Message, pictures: Pictures) -> Iterator[EncodedPiece]:
        calls = map(sanitize.original_call, message.calls)
        self._names.update((call.id, call.name) for call in calls)
        return message_to_wire(message, pictures, names=self._names)


_REFUSAL_PATTERNS: dict[Extra, str] = {
    "pictures": NO_IMAGES_PATTERN,
    "schema": r"format|schema|grammar",
    "think": r"think",
}


def _refusable_features(request: Request) -> frozenset[Extra]:
    """The features of this request that a refusal may be about."""
    features: set[Extra] = {"pictures"} if request.pictures else set()
    if request.effort:
        features.add("think")
    if sanitize.has_schema(request):
        features.add("schema")
    return frozenset(features)


def _think(request: Request, model: OllamaModel) -> dict[str, Any]:
    """Whether to think, or how hard: models differ in the value that they accept."""
    if not request.effort or not model.can("thinking"):
        return {}
    levels = model.levels
    if not levels and "gpt-oss" in request.model:  # from an older server
        levels = frozenset({"low", "medium", "high"})
    if levels:
        unknown = {word for row in OLLAMA_LEVELS.values() for word in row} - levels
        effort_word = level(OLLAMA_LEVELS, request.effort, unknown)
        return {"think": effort_word} if effort_word else {}
    return {"think": OLLAMA_SWITCH[request.effort]}


def _images(images: Iterable[EncodedImage]) -> dict[str, Any]:
    data = [image.data for image in images]
    return {"images": data} if data else {}


class _Function(Struct, frozen=True):
    name: str = ""
    arguments: Raw = Raw(b"{}")


class _Call(Struct, frozen=True):
    id: str | None = None
    function: _Function | None = None


class _Message(Struct, frozen=True):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


def _piece(message: dict[str, Any]) -> EncodedPiece:
    return EncodedPiece(msgspec.json.encode(message))


def _call_delta(index: int, call: _Call) -> CallDelta:
    function = call.function or _Function()
    written = bytes(function.arguments)
    if written.startswith(b'"'):  # some templates give the object as a string
        written = msgspec.json.decode(written, type=str).encode()
    return CallDelta(index, written.decode(), call.id or "", function.name)


def model_of(body: bytes) -> OllamaModel:
    """Read the description of a model that `/api/show` returns."""
    try:
        description = msgspec.json.decode(body, type=_ModelDescription)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return OllamaModel()
    values = (description.thinking or _Thinking()).values or ()
    return OllamaModel(
        _window(description),
        frozenset(description.capabilities) if description.capabilities else None,
        frozenset(value for value in values if isinstance(value, str)),
    )


class _Thinking(Struct, frozen=True):
    values: list[bool | str] | None = None


class _ModelDescription(Struct, frozen=True):
    parameters: str | None = None
    model_info: dict[str, Any] | None = None
    capabilities: list[str] | None = None
    thinking: _Thinking | None = None


def _window(description: _ModelDescription) -> int:
    """The context window: `num_ctx` if the author set it, else that of the training."""
    for line in (description.parameters or "").splitlines():
        match line.split():
            case ["num_ctx", number] if number.isdecimal():
                return int(number)
            case _:
                continue
    for name, value in (description.model_info or {}).items():
        if name.endswith(".context_length") and isinstance(value, int):
            return value
    return 0
