"""A provider for Ollama's own API, `/api/chat`, which sends JSON lines.

`to_wire` and `message_to_wire` encode a request, `from_wire` parses a line of a response, and
`model_of` the description of a model; all are pure. `Ollama` connects them with HTTP. It asks
for a model's context window once and sets it in every request: otherwise the server silently
cuts each conversation after a few thousand tokens.

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

DEFAULT_WINDOW_TOKENS = 8192  # used if the server does not report the model's own
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp"})

# Features that a model may refuse.
Extra: TypeAlias = Literal["pictures", "schema", "think"]


class OllamaModel(Struct, frozen=True):
    """What an Ollama server reports about a model."""

    window: int = 0  # tokens; 0: not reported
    # "completion", "tools", "vision", "thinking" …; None: not reported
    abilities: frozenset[str] | None = None
    # levels of thinking, if it has more than on and off
    levels: frozenset[str] = frozenset()

    def can(self, ability: str) -> bool:
        """Whether the model has an ability; True also if the server reports no abilities."""
        return self.abilities is None or ability in self.abilities


def to_wire(
    request: Request,
    messages: bytes,
    window: int,
    model: OllamaModel | None = None,
    without: frozenset[Extra] = frozenset(),
) -> bytes:
    """Return the body of a request. `messages` is the joined output of `message_to_wire`.

    `window` is the context window to set; `without` are the features that the model has
    refused.
    """
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
    # The API has no tool choice, so a model that may not call gets no tools.
    if request.tools and request.tool_choice != "none":
        body["tools"] = functions(request.tools)
    elif sanitize.has_schema(request) and "schema" not in without:
        # the schema applies to all output, so no call would be possible
        body["format"] = request.schema
    if "think" not in without:
        body |= _think(request, model or OllamaModel())
    return body_with(body, "messages", system_message, messages)


def message_to_wire(
    message: Message, pictures: Pictures = NO_PICTURES, *, names: Mapping[str, str]
) -> Iterator[EncodedPiece]:
    """Yield a message, encoded as one message of the API for each result and one for the rest.

    `names` maps the ids of calls to the names of their tools.
    """
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
                "id": call.id,  # newer servers pair by id, older ones by order
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
    """A JSON line of a response."""

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
    """Return the next state, and the deltas of a line."""
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
    if part.done or part.done_reason:  # some servers send only the second field
        usage = Usage(fresh=part.prompt_eval_count or 0, output=part.eval_count or 0)
        stop = "length" if part.done_reason == "length" else "end"
        if stop == "end" and state.calls:
            stop = "calls"
        pieces.append(Done(usage, stop, part.model))
    return state, tuple(pieces)


class Ollama:
    """A provider for the models of an Ollama server.

    `window` is the context window in tokens, which overrides the one that the server reports. 0
    means the reported one.
    """

    def __init__(self, http: Http, *, window: int = 0) -> None:
        self._http, self._window = http, window
        self._models: dict[str, OllamaModel] = {}
        self._names: dict[str, str] = {}  # maps call ids to tools, for results that follow
        self._encodings = Encodings[None](lambda _: self._encode)
        self._capabilities = CapabilityFallback[Extra](_REFUSAL_PATTERNS)
        self._images = ImageFallback()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response. Raises `Refused` for tools that the model does not support."""
        name = request.model
        model = OllamaModel()
        needs_abilities = request.tools or request.effort or request.pictures
        if needs_abilities or not self._window:
            model = await self._model(name)
        if request.tools and not model.can("tools"):
            # The server would refuse tools, too. After this error, the caller writes calls
            # as text.
            raise Refused(f"{self._http.peer.label}'s {name!r} does not support tools")
        window = self._window or model.window or DEFAULT_WINDOW_TOKENS

        def ask(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            """Send the request once. The images in `hidden` are described in words."""
            without = self._capabilities.features_to_leave_out(name)
            shown = model.can("vision") and "pictures" not in without
            encoded = self._encodings.encoding_for(manner=None, shown=shown, hidden=hidden)
            messages = encoded.join(request.messages, request.pictures)
            body = to_wire(request, messages, window, model, without)
            reader = Reader(
                splitter=Lines,
                event=AnswerLine,
                start=OllamaStreamState(),
                step=from_wire,
                think_tags=True,
            )
            return deltas(self._http, "/api/chat", body, request, reader)

        def stream_without_refused_features(hidden: Hidden) -> AsyncGenerator[Delta, None]:
            return self._capabilities.stream(
                name, partial(ask, hidden), _refusable_features(request)
            )

        async with aclosing(
            self._images.stream(request, stream_without_refused_features)
        ) as answer:
            async for delta in answer:
                yield delta

    async def window(self, model: str) -> int:
        """Return the context window in tokens: as set, as reported, or else a default."""
        if self._window:
            return self._window
        description = await self._model(model)
        return description.window or DEFAULT_WINDOW_TOKENS

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _model(self, name: str) -> OllamaModel:
        """Return the server's description of a model, which is requested only once.

        It is empty if the server cannot describe models.
        """
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
        """Return the encoded pieces of a message, and remember the tools that it calls.

        Ollama wants the name of the tool with each result.
        """
        calls = map(sanitize.original_call, message.calls)
        self._names.update((call.id, call.name) for call in calls)
        return message_to_wire(message, pictures, names=self._names)


_REFUSAL_PATTERNS: dict[Extra, str] = {
    "pictures": NO_IMAGES_PATTERN,
    "schema": r"format|schema|grammar",
    "think": r"think",
}


def _refusable_features(request: Request) -> frozenset[Extra]:
    """Return the optional features of this request, which the model may refuse."""
    features: set[Extra] = {"pictures"} if request.pictures else set()
    if request.effort:
        features.add("think")
    if sanitize.has_schema(request):
        features.add("schema")
    return frozenset(features)


def _think(request: Request, model: OllamaModel) -> dict[str, Any]:
    """Return the field that requests thinking, with a value for this model; {} for none."""
    if not request.effort or not model.can("thinking"):
        return {}
    levels = model.levels
    if not levels and "gpt-oss" in request.model:  # an older server
        levels = frozenset({"low", "medium", "high"})
    if levels:
        all_levels = set[str]().union(*OLLAMA_LEVELS.values())
        missing_levels = all_levels - levels
        effort_word = level(OLLAMA_LEVELS, request.effort, missing_levels)
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
    """Return a complete call as one delta. `index` is its number in the response."""
    function = call.function or _Function()
    arguments = bytes(function.arguments)
    if arguments.startswith(b'"'):  # some templates send the object as a string
        arguments = msgspec.json.decode(arguments, type=str).encode()
    return CallDelta(index, arguments.decode(), call.id or "", function.name)


def model_of(body: bytes) -> OllamaModel:
    """Parse a response of `/api/show`. Return an empty description for any other body."""
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
    """Return the context window in tokens that the server reports, or 0.

    It is `num_ctx` if the author of the model set that, otherwise the length used in training.
    """
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
