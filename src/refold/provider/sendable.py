"""What of a conversation can be sent, whatever models and tools have put in it.

Providers refuse a whole history for one lone surrogate, one name with a space
or one call whose arguments are no JSON object. So nothing of the talk enters a
request except through here. What the journal holds stays as it was.
"""

import json
import math
import re
from collections.abc import Iterable
from typing import Any, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from refold.provider.port import Request
from refold.values.clean import clean
from refold.values.messages import Message, Text, ToolCall
from refold.values.tools import ToolSpec


def text(words: str) -> str:
    """`words` without what a strict reader of JSON refuses."""
    return clean(words).replace("\0", "\N{REPLACEMENT CHARACTER}")


def words(message: Message) -> tuple[str, ...]:
    """The texts of a message that say something. Blank ones are refused by some."""
    return tuple(
        text(p.text) for p in message.parts if isinstance(p, Text) and p.text.strip()
    )


def name(called: str) -> str:
    """A tool's name as every provider takes it. A model may have called anything."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", called)[:64] or "unnamed"


def arguments(raw: Raw) -> Raw:
    """A call's arguments as a JSON object.

    What is none is wrapped, so that the model reads back what it really said.
    """
    written = bytes(raw)
    try:
        msgspec.json.decode(written, type=dict[str, Any])
        if b"\\u0000" not in written:
            return raw
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        found = _cleaned(json.loads(written or b"{}"))
        if isinstance(found, dict):
            return Raw(msgspec.json.encode(found))
    except (ValueError, RecursionError):
        pass
    said = written.decode("utf-8", "replace")
    return Raw(msgspec.json.encode({"not_a_json_object": text(said)}))


def as_made(call: ToolCall) -> ToolCall:
    """The call as the model made it: of the tool that it asked to make this one."""
    if not call.via:
        return call
    told = {"name": text(call.name), "arguments": arguments(call.arguments)}
    return replace(call, name=call.via, arguments=Raw(msgspec.json.encode(told)))


def schema(request: Request) -> bool:
    """Is there one that an answer should match?"""
    return bytes(request.schema) not in (b"", b"null")


def cache_key(request: Request) -> str:
    """What tells a provider that requests belong together. It takes 64 characters."""
    return text(request.session)[:64]


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return text(value)
        case float() if not math.isfinite(value):
            return str(value)
        case int() if not -(2**63) <= value < 2**64:
            return str(value)
        case dict():
            found = cast("dict[str, Any]", value)
            return {text(k): _cleaned(v) for k, v in found.items()}
        case list():
            return [_cleaned(v) for v in cast("list[Any]", value)]
        case _:
            return value


def functions(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Tools as OpenAI's Chat API has them, and those that resemble it."""
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
