"""OpenAI's Responses API, and the servers that speak it too.

`to_wire` and `message_to_wire` say what we send and are pure; what an event of
an answer means says `responses_events`. `OpenAIResponses` carries bytes between
them. Nothing is stored there: the talk is ours, and reasoning travels with it,
encrypted, in items that go back as they came.

https://platform.openai.com/docs/api-reference/responses
"""

from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw

from refold.provider import sendable
from refold.provider.conceding import Concessions
from refold.provider.encoded import Encoded, Piece
from refold.provider.http import Http
from refold.provider.port import (
    Delta,
    Request,
)
from refold.provider.responses_events import TYPES, WIRE, Event, Reading, from_wire
from refold.provider.sse import Events
from refold.provider.stream import Reader, deltas
from refold.values.clean import clean
from refold.values.messages import Message, Text, Thinking, ToolCall, ToolResult

# What a model or an account may refuse: to sum its reasoning up for people, to
# hand it out encrypted, and to take back what another one has encrypted.
Extra: TypeAlias = Literal["summary", "encrypted", "kept"]


def to_wire(
    request: Request, items: bytes, without: frozenset[Extra] = frozenset()
) -> bytes:
    """The body of a request, given its items, joined, from `message_to_wire`."""
    body: dict[str, Any] = {
        "model": clean(request.model),
        "stream": True,
        "store": False,
    }
    if "encrypted" not in without:
        body["include"] = ["reasoning.encrypted_content"]
    if "summary" not in without:
        body["reasoning"] = {"summary": "auto"}  # else nothing is told of it
    if system := sendable.text(request.system).strip():
        body["instructions"] = system
    if request.max_output:
        body["max_output_tokens"] = request.max_output
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": t.name,
                "description": t.description,
                "parameters": t.parameters,
                "strict": False,  # strict is the default, and refuses most schemas
            }
            for t in request.tools
        ]
        body["tool_choice"] = request.tool_choice
    body["input"] = Raw(b"[" + items + b"]")
    return msgspec.json.encode(body)


def message_to_wire(message: Message, *, kept: bool = True) -> Iterator[Piece]:
    """A message as items. `kept`: with what only this wire can read."""
    if message.role == "assistant":
        items = [*_answered(message, kept)]
        while items and items[-1]["type"] == "reasoning":
            items.pop()  # "provided without its required following item"
    else:
        items = [*_told(message)]
    for item in items:
        yield Piece(msgspec.json.encode(item))


class OpenAIResponses:
    """GPT, or whatever speaks its newer protocol."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._encoded = Encoded(message_to_wire)
        self._plain = Encoded(partial(message_to_wire, kept=False))
        self._concessions = Concessions[Extra](_ABOUT)

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        def ask() -> AsyncGenerator[Delta, None]:
            without = self._concessions.of(request.model)
            encoded = self._plain if "kept" in without else self._encoded
            body = to_wire(request, encoded.join(request.messages), without)
            reader = Reader(Events, Event, Reading(), from_wire, types=TYPES)
            return deltas(self._http, "/responses", body, request.model, reader)

        return self._concessions.stream(request.model, ask)

    async def aclose(self) -> None:
        await self._http.aclose()


_ABOUT: dict[Extra, str] = {
    "kept": r"could not be (verified|decrypted)|invalid_encrypted_content|\brs_\w",
    "encrypted": r"encrypted.content is not supported|reasoning\.encrypted|'include",
    "summary": r"summary|summaries|reasoning\b.*not supported|unsupported.*reasoning",
}


def _told(message: Message) -> Iterator[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, ToolResult):
            yield {
                "type": "function_call_output",
                "call_id": part.call_id,
                "output": sendable.text(part.text),
            }
    said = "\n\n".join(sendable.words(message))
    if said or message.role == "user":
        yield {"type": "message", "role": "user", "content": said or "(no words)"}


def _answered(message: Message, kept: bool) -> Iterator[dict[str, Any]]:
    phase: dict[str, Any] = {}  # of the words that come next
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                said = {"type": "message", "role": "assistant", **phase}
                yield {**said, "content": sendable.text(text)}
                phase = {}
            case Thinking(_, wire, data) if wire == WIRE and kept:
                match _decoded(data):
                    case {"type": "reasoning", **_more} as item:
                        yield cast("dict[str, Any]", item)
                    case {"phase": str()} as found:
                        phase = cast("dict[str, Any]", found)
                    case _:
                        continue
            case ToolCall(id_, name, arguments):
                # Our own id: theirs may be missing, come twice, or be another wire's.
                yield {
                    "type": "function_call",
                    "call_id": id_,
                    "name": sendable.name(name),
                    "arguments": bytes(sendable.arguments(arguments)).decode(),
                }
            case _:
                continue


def _decoded(data: Raw) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
