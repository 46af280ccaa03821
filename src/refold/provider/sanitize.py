"""Makes any conversation valid for providers, whatever texts models and tools have produced.

Providers refuse a whole conversation because of one lone surrogate, one name with a space, one
call whose arguments are not a JSON object, or a system message that the model's template does
not support. So every text, name and argument passes through this module before it gets into a
request. The journal keeps the original.
"""

import math
import re
from collections.abc import Iterable
from typing import Any, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from refold.provider.port import Request
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text, ToolCall
from refold.values.text import clean
from refold.values.tools import ToolSpec


def text(text: str) -> str:
    """Return `text` without the characters that a strict JSON parser rejects."""
    return clean(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def words(message: Message) -> tuple[str, ...]:
    """Return the texts of a message, without blank ones, which some providers refuse."""
    return tuple(
        text(p.text) for p in message.parts if isinstance(p, Text) and p.text.strip()
    )


def name(label: str) -> str:
    """Convert a tool's name, which a model may have invented, to one that providers accept."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", label)[:64] or "unnamed"


def arguments(raw: Raw) -> Raw:
    """Return the arguments of a call as a JSON object.

    Arguments that are not an object are put into an object as text, so that the model sees what
    it wrote.
    """
    written = bytes(raw)
    try:
        msgspec.json.decode(written, type=dict[str, Any])
        if b"\\u0000" not in written:  # some providers refuse this character
            return raw
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    import json  # few models write what msgspec rejects

    try:
        value = _clean_value(json.loads(written or b"{}"))
        if isinstance(value, dict):
            return Raw(msgspec.json.encode(value))
    except (ValueError, RecursionError):
        pass
    wrapped_text = written.decode("utf-8", "replace")
    return Raw(msgspec.json.encode({"not_a_json_object": text(wrapped_text)}))


def original_call(call: ToolCall) -> ToolCall:
    """Return a call as the model made it, before it was translated to another tool."""
    if not call.via:
        return call
    call_fields = {"name": text(call.name), "arguments": arguments(call.arguments)}
    return replace(call, name=call.via, arguments=Raw(msgspec.json.encode(call_fields)))


def has_schema(request: Request) -> bool:
    """Whether the request has a schema for its answer."""
    return bytes(request.schema) not in (b"", b"null")


def cache_key(request: Request) -> str:
    """Return a key of at most 64 characters that is the same for all requests of a session.

    A provider uses it to find its cache.
    """
    return text(request.session)[:64]


def _clean_value(value: Any) -> Any:
    """Return a JSON value without texts and numbers that strict JSON encoders refuse."""
    match value:
        case str():
            return text(value)
        case float() if not math.isfinite(value):
            return str(value)
        case int() if not -(2**63) <= value < 2**64:
            return str(value)
        case dict():
            mapping = cast("dict[str, Any]", value)
            return {text(k): _clean_value(v) for k, v in mapping.items()}
        case list():
            return [_clean_value(v) for v in cast("list[Any]", value)]
        case _:
            return value


def functions(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Return tool definitions in the form of OpenAI's Chat API and similar ones."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in tools
    ]


# Errors of Gemma's template, of OpenAI and Bedrock, of Google, and of Mistral's templates, whose
# later versions use nearly the same words for other errors.
NO_SYSTEM_PATTERN = (
    r"system (role|message|prompt)s? (is |are )?(not supported|unsupported)"
    r"|does(n['’]t| not) support (the )?['\"]?(system|developer)\b"
    r"|(developer|system) instructions? (is|are) not (enabled|supported)"
    r"|only user and assistant roles are supported"
    r"|(?<!system message, )conversation roles must alternate"
)


class SystemAsUser:
    """Moves the system text into the first message, for models without system messages.

    It caches its last result, because wires recognize encoded messages by identity.
    """

    def __init__(self) -> None:
        # The first message and the system text from which the merged message was made.
        self._merged_from: tuple[StoredMessage | None, str] = (None, "")
        self._merged_message = StoredMessage(0, Message("user", ()))

    def apply(self, request: Request) -> Request:
        """Return the request with its system text at the start of the first user message."""
        system = request.system.strip()
        if not system:
            return request
        messages = request.messages
        first = messages[0] if messages and messages[0].message.role == "user" else None
        # The merged message is kept, because an encoding is reused only for the same object.
        merged_first, merged_system = self._merged_from
        if merged_first is not first or merged_system != system:
            parts = first.message.parts if first else ()
            message = Message("user", (Text(system), *parts))
            self._merged_from = first, system
            self._merged_message = StoredMessage(first.seq if first else 0, message)
        rest = messages[1:] if first else messages
        return replace(request, messages=Log([self._merged_message, *rest]), system="")
