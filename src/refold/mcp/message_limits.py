"""Limits on one message of a server, before it is parsed: levels, values, parts of a result.

Parsers fail on deeply nested JSON without an error to the caller: the call would wait for
its time limit. A small message of many empty values takes a hundred times its size in
memory. So a result beyond a limit becomes an error that answers the same request, and in a
list of tools what is too deep is cut out: `as_tools` then refuses that tool, and the others
work. `flood` limits how many messages there are, and `transports` how long one is.
"""

import json
import re
from typing import Any, cast

import mcp_types as types
from msgspec import Struct

MAX_LEVELS = 150  # of a message; parsers here stop at 200
MAX_VALUES = 200_000  # objects and lists
MAX_PARTS = 1_000  # of one result or resource
INVALID_ANSWER = "its answer is not what the protocol allows, and was not read"

_TOKEN_PATTERN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_ID_VALUE = re.compile(rb'\s*+:\s*+(-?[0-9]{1,18}|"[^"\\]{0,200}")')
_LAST_ID = re.compile(
    rb'"id"\s*+:\s*+(-?[0-9]{1,18}|"[^"\\]{0,200}")\s*+(?:,\s*+"jsonrpc"\s*+:\s*+"2.0"\s*+)?\}\s*+\Z'
)
_ID_TAIL_BYTES = 400  # from the end, in which a message whose id is last has it
_SCANNED_BYTES = 64 * 1024  # of an invalid message, for what it answers
_LIST_NAMES = frozenset((b'"tools"', b'"prompts"', b'"resources"', b'"resourceTemplates"'))
_ANSWER_KEYS = frozenset((b'"result"', b'"error"'))
_LEFT_OUT = b'"[left out: it is nested too deeply]"'
_INTERNAL_ERROR = -32603


def limit_message(message: bytes) -> bytes:
    """Return the same message if it is within the limits, or a replacement.

    Empty for a message that answers nothing, like a notice that is nested too deeply.
    """
    if message.count(b"{") + message.count(b"[") <= MAX_LEVELS:
        return message
    scan = _scan(message)
    if scan.values > MAX_VALUES:
        return _failure(
            scan.id, _too_large(f"has more than {MAX_VALUES:,} objects and lists")
        )
    if scan.cut is None:
        return message
    if scan.is_listing:
        return scan.cut
    return _failure(scan.id, _too_large(f"is nested more than {MAX_LEVELS} levels deep"))


def to_failure(message: bytes) -> bytes:
    """Return an error for the request that an invalid message answers, or b""."""
    scan = _scan(message[:_SCANNED_BYTES])
    if not scan.is_answer:
        return b""
    last = _LAST_ID.search(message, max(0, len(message) - _ID_TAIL_BYTES))
    request = scan.id or (last[1] if last else b"")
    return _failure(request, INVALID_ANSWER)


def limit_parts(message: types.JSONRPCMessage) -> types.JSONRPCMessage:
    """Return the message with at most `MAX_PARTS` parts of a result, and a note."""
    if not isinstance(message, types.JSONRPCResponse):
        return message
    result: dict[str, Any] = message.result
    for key in ("content", "contents", "messages"):
        parts: object = result.get(key)
        if isinstance(parts, list) and len(cast("list[object]", parts)) > MAX_PARTS:
            blocks = cast("list[object]", parts)[:MAX_PARTS]
            left = len(cast("list[object]", parts)) - MAX_PARTS
            if key == "content":
                text = f"[{left:,} more parts of the result were left out]"
                blocks.append({"type": "text", "text": text})
            message = message.model_copy(update={"result": {**result, key: blocks}})
    return message


class _Scan(Struct, frozen=True):
    """The scan of a message. `cut` is the message without what is too deep; None if nothing
    is.
    """

    values: int
    id: bytes
    is_listing: bool = False
    is_answer: bool = False
    cut: bytes | None = None


def _scan(message: bytes) -> _Scan:
    level = values = copied = start = 0
    pieces, request, is_listing, is_answer = list[bytes](), b"", False, False
    for token in _TOKEN_PATTERN.finditer(message):
        match message[token.start()]:
            case 0x7B | 0x5B:  # { [
                level += 1
                values += 1
                if values > MAX_VALUES:  # the rest is not scanned: it may be long
                    last = _LAST_ID.search(message, max(0, len(message) - _ID_TAIL_BYTES))
                    return _Scan(values, request or (last[1] if last else b""))
                if level == MAX_LEVELS + 1:
                    start = token.start()
            case 0x7D | 0x5D:  # } ]
                if level == MAX_LEVELS + 1:
                    pieces += (message[copied:start], _LEFT_OUT)
                    copied = token.end()
                level -= 1
            case _ if level == 1 and token[0] == b'"id"':
                match = _ID_VALUE.match(message, token.end())
                request = match[1] if match else request
            case _ if level == 1 and token[0] in _ANSWER_KEYS:
                is_answer = True
            case _ if level == 2 and token[0] in _LIST_NAMES:
                is_listing = True
            case _:
                pass
    cut = b"".join((*pieces, message[copied:])) if pieces else None
    return _Scan(values, request, is_listing, is_answer, cut)


def _too_large(reason: str) -> str:
    return f"its answer {reason}, and was not read"


def _failure(request: bytes, reason: str) -> bytes:
    if not request:
        return b""
    text = json.dumps(reason)
    return (
        b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":%b}}'
        % (request, _INTERNAL_ERROR, text.encode())
    )  # fmt: skip
