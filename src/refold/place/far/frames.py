"""Reads and writes frames, the messages of both sides of the pipe to a place.

A frame is a JSON object and raw bytes, each with its length before. Neither side trusts the
other: a frame that is too long or has no valid object raises `BadFrame`, and the pipe cannot be
read any further.

File names may contain any byte. JSON has them as `os.fsdecode` returns them, with lone
surrogates.
"""

import json
import os
import struct
from collections.abc import Mapping
from typing import Any, cast

PROTOCOL_VERSION = 1
MAX_RECORD_BYTES = 16 * 1024 * 1024
MAX_RAW_BYTES = 48 * 1024 * 1024  # a complete file and its metadata
# the bootstrap prints it before it reads the zip
READY_MARK = b"refold-place-sends-source\n"
# `refold place --stdio` prints it before the first frame
INSTALLED_MARK = b"refold-place-is-installed\n"
NO_PYTHON_MARK = b"refold-place-has-no-python\n"
END_OF_SCRIPT = "# end of the script that starts a place\n"
_LENGTHS_STRUCT = struct.Struct(">II")


class BadFrame(Exception):
    """The other side sent bytes that are not a valid frame."""


def pack_frame(record: Mapping[str, Any], raw: bytes = b"") -> bytes:
    """Return a frame: both lengths, `record` as JSON, and `raw`. Raises `BadFrame`."""
    encoded = json.dumps(record, separators=(",", ":")).encode()
    if len(encoded) > MAX_RECORD_BYTES or len(raw) > MAX_RAW_BYTES:
        raise BadFrame("too large for one frame")
    return _LENGTHS_STRUCT.pack(len(encoded), len(raw)) + encoded + raw


def read_frame(descriptor: int) -> tuple[dict[str, Any], bytes] | None:
    """Return the next frame: its object and its bytes. Return None at the end of the pipe.

    Raises `BadFrame`.
    """
    head = _read_exactly(descriptor, _LENGTHS_STRUCT.size)
    if not head:
        return None
    record_bytes, raw_bytes = _LENGTHS_STRUCT.unpack(head)
    if record_bytes > MAX_RECORD_BYTES or raw_bytes > MAX_RAW_BYTES:
        raise BadFrame("a frame is longer than allowed")
    body = _read_exactly(descriptor, record_bytes + raw_bytes)
    try:
        record = json.loads(body[:record_bytes])
    except (ValueError, RecursionError) as error:
        raise BadFrame("a frame is not JSON") from error
    if not isinstance(record, dict):
        raise BadFrame("a frame is not an object")
    return cast("dict[str, Any]", record), body[record_bytes:]


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`: one call may write only a part."""
    unwritten = memoryview(data)
    while unwritten:
        written_count = os.write(descriptor, unwritten)
        unwritten = unwritten[written_count:]


def _read_exactly(descriptor: int, count: int) -> bytes:
    """Return the next `count` bytes; b"" if the pipe ends before the first of them.

    Raises `BadFrame` if it ends after some of them.
    """
    pieces = list[bytes]()
    left = count
    while left:
        piece = os.read(descriptor, min(left, 1024 * 1024))
        if not piece:
            if pieces:
                raise BadFrame("the pipe ended within a frame")
            return b""
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
