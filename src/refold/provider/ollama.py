"""Ollama's own API, `/api/chat`: lines of JSON, calls whole and without ids.

`to_wire` and `message_to_wire` say what we send, `from_wire` what a line of an
answer means; all three are pure. `Ollama` carries bytes between them, and asks
once for a model's window: left alone, the server cuts every conversation at a
few thousand tokens and says nothing.

https://github.com/ollama/ollama/blob/main/docs/api.md
"""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.errors import ProviderError, Unreachable
from refold.provider import sendable
from refold.provider.encoded import Encoded, Piece
from refold.provider.failures import Trouble
from refold.provider.http import Http
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Request,
    TextDelta,
    ThinkingDelta,
)
from refold.provider.sendable import functions
from refold.provider.sse import Lines
from refold.provider.stream import Reader, deltas
from refold.values.clean import clean
from refold.values.messages import Message, ToolResult
from refold.values.usage import Usage

WINDOW = 8192  # tokens, for a server that will not tell a model's own


def to_wire(request: Request, messages: bytes, window: int) -> bytes:
    """The body of a request, given its messages, joined, from `message_to_wire`."""
    if system := sendable.text(request.system).strip():
        told = msgspec.json.encode({"role": "system", "content": system})
        messages = told + b"," + messages if messages else told
    options = {"num_ctx": window}
    if request.max_output:
        options["num_predict"] = request.max_output
    body: dict[str, Any] = {
        "model": clean(request.model),
        "stream": True,
        "options": options,
    }
    # There is no tool choice: a model that may not call is shown no tools.
    if request.tools and request.tool_choice != "none":
        body["tools"] = functions(request.tools)
    body["messages"] = Raw(b"[" + messages + b"]")
    return msgspec.json.encode(body)


def message_to_wire(message: Message, names: Mapping[str, str]) -> Iterator[Piece]:
    """A message, or one for each result in it. `names` says which tool a call was of."""
    for part in message.parts:
        if isinstance(part, ToolResult):
            found = {"role": "tool", "content": sendable.text(part.text)}
            if part.call_id in names:
                found["tool_name"] = sendable.name(names[part.call_id])
            yield _piece({**found, "tool_call_id": part.call_id})
    said = "\n\n".join(sendable.words(message))
    if message.role == "assistant":
        calls: list[dict[str, Any]] = [
            {
                "id": call.id,  # newer servers pair by it, older ones by order
                "function": {
                    "name": sendable.name(call.name),
                    "arguments": sendable.arguments(call.arguments),
                },
            }
            for call in message.calls
        ]
        if calls:
            yield _piece({"role": "assistant", "content": said, "tool_calls": calls})
        elif said:
            yield _piece({"role": "assistant", "content": said})
    elif said or message.role == "user":
        yield _piece({"role": "user", "content": said or "(no words)"})


class Part(Struct, frozen=True):
    """A line of an answer."""

    message: "_Message | None" = None
    done: bool = False
    done_reason: str | None = None
    model: str = ""
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: str = ""


class Reading(Struct, frozen=True):
    calls: int = 0


def from_wire(reading: Reading, part: Part) -> tuple[Reading, tuple[Delta | Trouble, ...]]:
    """What a line says, and how to read on."""
    if part.error:
        return reading, (Trouble(500, part.error),)
    found: list[Delta | Trouble] = []
    message = part.message or _Message()
    if message.thinking:
        found.append(ThinkingDelta(message.thinking))
    if message.content:
        found.append(TextDelta(message.content))
    for call in message.tool_calls or ():
        found.append(_called(reading.calls, call))
        reading = replace(reading, calls=reading.calls + 1)
    if part.done:
        usage = Usage(fresh=part.prompt_eval_count or 0, output=part.eval_count or 0)
        stop = "length" if part.done_reason == "length" else "end"
        if stop == "end" and reading.calls:
            stop = "calls"
        found.append(Done(usage, stop, part.model))
    return reading, tuple(found)


def window_of(shown: bytes) -> int:
    """A model's window in tokens, from what `/api/show` says; 0: it does not say.

    What its author set (`num_ctx`) goes before what it was trained for.
    """
    try:
        found = msgspec.json.decode(shown, type=_Shown)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0
    for line in (found.parameters or "").splitlines():
        match line.split():
            case ["num_ctx", number] if number.isdecimal():
                return int(number)
            case _:
                continue
    for name, value in (found.model_info or {}).items():
        if name.endswith(".context_length") and isinstance(value, int):
            return value
    return 0


class Ollama:
    """A model that runs on a machine of ours. `window` overrides what it says."""

    def __init__(self, http: Http, *, window: int = 0) -> None:
        self._http, self._window = http, window
        self._windows: dict[str, int] = {}
        self._names: dict[str, str] = {}  # call id to tool, for results that follow
        self._encoded = Encoded(self._encode)

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        messages = self._encoded.join(request.messages)
        body = to_wire(request, messages, await self.window(request.model))
        reader = Reader(Lines, Part, Reading(), from_wire)
        answer = deltas(self._http, "/api/chat", body, request.model, reader)
        async with aclosing(answer) as found:
            async for delta in found:
                yield delta

    async def window(self, model: str) -> int:
        """How many tokens the model may read, as the server says. Asked once."""
        if self._window:
            return self._window
        if model not in self._windows:
            body = msgspec.json.encode({"model": clean(model)})
            try:
                async with self._http.post("/api/show", body, model=model) as answer:
                    shown = b""
                    while chunk := await answer.read():
                        shown += chunk
            except Unreachable:
                raise
            except ProviderError:
                # Not every relative of it has this; the chat will say what is wrong.
                return WINDOW
            self._windows[model] = window_of(shown) or WINDOW
        return self._windows[model]

    async def aclose(self) -> None:
        await self._http.aclose()

    def _encode(self, message: Message) -> Iterator[Piece]:
        self._names.update((call.id, call.name) for call in message.calls)
        return message_to_wire(message, self._names)


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


class _Shown(Struct, frozen=True):
    parameters: str | None = None
    model_info: dict[str, Any] | None = None


def _piece(message: dict[str, Any]) -> Piece:
    return Piece(msgspec.json.encode(message))


def _called(index: int, call: _Call) -> CallDelta:
    function = call.function or _Function()
    written = bytes(function.arguments)
    if written.startswith(b'"'):  # some templates give the object as a string
        written = msgspec.json.decode(written, type=str).encode()
    return CallDelta(index, written.decode(), call.id or "", function.name)
