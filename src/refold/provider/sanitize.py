"""Makes a conversation valid for providers, whatever models and tools have put in it.

Providers refuse a whole conversation for one lone surrogate, one name with a space, one
call whose arguments are not a JSON object, or a system message that the model's template
has no place for. So every text, name and argument passes through here on its way into a
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
    """`text` without what a strict JSON parser refuses."""
    return clean(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def words(message: Message) -> tuple[str, ...]:
    """The texts of a message that are not blank: some providers refuse blank ones."""
    return tuple(
        text(p.text) for p in message.parts if isinstance(p, Text) and p.text.strip()
    )


def name(label: str) -> str:
    """A tool's name in a form that every provider accepts. Models may invent any name."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", label)[:64] or "unnamed"


def arguments(raw: Raw) -> Raw:
    """A call's arguments as a JSON object.

    Anything else is wrapped in one, so that the model sees what it wrote.
    """
    written = bytes(raw)
    try:
        msgspec.json.decode(written, type=dict[str, Any])
        if b"\\u0000" not in written:
            return raw
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    import json  # few models write what msgspec refuses

    try:
        value = _clean_value(json.loads(written or b"{}"))
        if isinstance(value, dict):
            return Raw(msgspec.json.encode(value))
    except (ValueError, RecursionError):
        pass
    wrapped_text = written.decode("utf-8", "replace")
    return Raw(msgspec.json.encode({"not_a_json_object": text(wrapped_text)}))


def original_call(call: ToolCall) -> ToolCall:
    """The call as the model made it: of the tool by which it requested this one."""
    if not call.via:
        return call
    call_fields = {"name": text(call.name), "arguments": arguments(call.arguments)}
    return replace(call, name=call.via, arguments=Raw(msgspec.json.encode(call_fields)))


def has_schema(request: Request) -> bool:
    """Return True if the request has a schema for its answer."""
    return bytes(request.schema) not in (b"", b"null")


def cache_key(request: Request) -> str:
    """The value by which a provider recognizes that requests belong together: at most 64
    characters.
    """
    return text(request.session)[:64]


def _clean_value(value: Any) -> Any:
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
    """Tools in the form of OpenAI's Chat API and similar ones."""
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


# Gemma's template, wherever it runs · OpenAI, Bedrock · Google · Mistral's templates,
# of which the later ones complain of other things in nearly the same words.
NO_SYSTEM_PATTERN = (
    r"system (role|message|prompt)s? (is |are )?(not supported|unsupported)"
    r"|does(n['’]t| not) support (the )?['\"]?(system|developer)\b"
    r"|(developer|system) instructions? (is|are) not (enabled|supported)"
    r"|only user and assistant roles are supported"
    r"|(?<!system message, )conversation roles must alternate"
)


class SystemAsUser:
    """Puts the system text before the conversation.

    It caches its last result, because wires recognize encoded messages by identity.
    """

    def __init__(self) -> None:
        self._key: tuple[StoredMessage | None, str] = (None, "")
        self._first_message = StoredMessage(0, Message("user", ()))

    def apply(self, request: Request) -> Request:
        """The same request without a system text of its own."""
        messages, system = request.messages, request.system.strip()
        first = messages[0] if messages and messages[0].message.role == "user" else None
        known, known_system = self._key
        if not system:
            return request
        if known is not first or known_system != system:
            parts = first.message.parts if first else ()
            message = Message("user", (Text(system), *parts))
            self._key, self._first_message = (
                (first, system),
                StoredMessage(first.seq if first else 0, message),
            )
        rest = messages[1:] if first else messages
        return replace(request, messages=Log([self._first_message, *rest]), system="")
