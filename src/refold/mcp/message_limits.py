"""Limits the nesting, the values and the parts of one message of a server, before it is parsed.

A parser fails on deeply nested JSON and reports no error to the caller, who would wait for the
time limit. A small message with many empty values takes a hundred times its size in memory. So
a result beyond a limit is replaced by an error, which answers the same request. From a list of
tools, only the parts that are nested too deeply are cut; `as_tools` then refuses these tools.
`flood` limits the number of messages, and `transports` the length of one.
"""

import json
import re
from typing import Any, cast

import mcp_types as types
from msgspec import Struct

MAX_LEVELS = 150  # nesting of a message; our parsers stop at 200
MAX_VALUES = 200_000  # objects and lists in a message
MAX_PARTS = 1_000  # in one result or resource
INVALID_ANSWER = "its answer is not what the protocol allows, and was not read"

_TOKEN_PATTERN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_ID_VALUE = re.compile(rb'\s*+:\s*+(-?[0-9]{1,18}|"[^"\\]{0,200}")')
_LAST_ID = re.compile(
    rb'"id"\s*+:\s*+(-?[0-9]{1,18}|"[^"\\]{0,200}")\s*+(?:,\s*+"jsonrpc"\s*+:\s*+"2.0"\s*+)?\}\s*+\Z'
)
_ID_TAIL_BYTES = 400  # from the end, where a message may have its id
_SCANNED_BYTES = 64 * 1024  # of an invalid message, searched for the id of its request
_LIST_NAMES = frozenset((b'"tools"', b'"prompts"', b'"resources"', b'"resourceTemplates"'))
_ANSWER_KEYS = frozenset((b'"result"', b'"error"'))
_LEFT_OUT = b'"[left out: it is nested too deeply]"'
_INTERNAL_ERROR = -32603


def limit_message(message: bytes) -> bytes:
    """Return the message if it is within the limits; otherwise a replacement.

    A result becomes an error, and a list of tools loses what is nested too deeply. A message
    that answers nothing, such as a notice, becomes b"".
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
    """Return an error that replaces the invalid `message` as the answer to a request.

    Return b"" if the message is not an answer, or the id of its request is not found.
    """
    scan = _scan(message[:_SCANNED_BYTES])
    if not scan.is_answer:
        return b""
    return _failure(scan.id or _id_at_end(message), INVALID_ANSWER)


def limit_parts(message: types.JSONRPCMessage) -> types.JSONRPCMessage:
    """Return the message, with its result cut to `MAX_PARTS` parts.

    In the result of a tool, a note replaces the parts that are left out.
    """
    if not isinstance(message, types.JSONRPCResponse):
        return message
    result: dict[str, Any] = dict(message.result)
    for key in ("content", "contents", "messages"):  # a valid result has one of them
        value: object = result.get(key)
        if not isinstance(value, list):
            continue
        parts = cast("list[object]", value)
        if len(parts) <= MAX_PARTS:
            continue
        limited_parts = parts[:MAX_PARTS]
        if key == "content":
            dropped = len(parts) - MAX_PARTS
            text = f"[{dropped:,} more parts of the result were left out]"
            limited_parts.append({"type": "text", "text": text})
        result[key] = limited_parts
    return message.model_copy(update={"result": result})


class _Scan(Struct, frozen=True):
    """What a scan found in a message.

    `id` is the JSON text of the message's id, or b"". `cut` is the message without the parts
    that are nested too deeply, or None if there are no such parts.
    """

    values: int
    id: bytes
    is_listing: bool = False
    is_answer: bool = False
    cut: bytes | None = None


def _scan(message: bytes) -> _Scan:
    """Scan a message for its nesting, values, id and kind, without parsing it."""
    level = values = 0
    is_listing = is_answer = False
    request_id = b""
    # The message up to the offset `copied`, without the parts that are nested too deeply.
    pieces: list[bytes] = []
    copied = too_deep_start = 0
    for token in _TOKEN_PATTERN.finditer(message):
        match message[token.start()]:
            case 0x7B | 0x5B:  # the characters { and [
                level += 1
                values += 1
                if values > MAX_VALUES:  # the rest may be long, so it is not scanned
                    return _Scan(values, request_id or _id_at_end(message))
                if level == MAX_LEVELS + 1:
                    too_deep_start = token.start()
            case 0x7D | 0x5D:  # the characters } and ]
                if level == MAX_LEVELS + 1:
                    pieces += (message[copied:too_deep_start], _LEFT_OUT)
                    copied = token.end()
                level -= 1
            case _ if level == 1 and token[0] == b'"id"':
                id_match = _ID_VALUE.match(message, token.end())
                request_id = id_match[1] if id_match else request_id
            case _ if level == 1 and token[0] in _ANSWER_KEYS:
                is_answer = True
            case _ if level == 2 and token[0] in _LIST_NAMES:
                is_listing = True
            case _:
                pass
    cut = b"".join((*pieces, message[copied:])) if pieces else None
    return _Scan(values, request_id, is_listing, is_answer, cut)


def _id_at_end(message: bytes) -> bytes:
    """Return the last id near the end of a message, where some servers write it, or b""."""
    last_id = _LAST_ID.search(message, max(0, len(message) - _ID_TAIL_BYTES))
    return last_id[1] if last_id else b""


def _too_large(reason: str) -> str:
    return f"its answer {reason}, and was not read"


def _failure(request_id: bytes, reason: str) -> bytes:
    """Return an error that answers the request with this id, or b"" if the id is unknown."""
    if not request_id:
        return b""
    text = json.dumps(reason)
    return (
        b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":%b}}'
        % (request_id, _INTERNAL_ERROR, text.encode())
    )  # fmt: skip
