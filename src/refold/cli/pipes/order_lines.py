"""The lines of stdin, as they come, for a program at the other end. What stands in one
is the business of `orders`.
"""

import os
import sys
from collections.abc import AsyncGenerator

import anyio
from anyio import to_thread

LONGEST = 32 * 1024 * 1024  # bytes of one line
_PIECE = 65_536


async def lines() -> AsyncGenerator[bytes | None]:
    """Each without its end; None for one that is too long. The last may have no end."""
    source, left, too_long = sys.stdin.fileno(), bytearray(), False
    while piece := await _piece(source):
        begun, *others = piece.split(b"\n")
        too_long = too_long or len(left) + len(begun) > LONGEST
        left += b"" if too_long else begun
        for line in others:
            yield None if too_long else bytes(left)
            left, too_long = bytearray(line), False
    if too_long or left:
        yield None if too_long else bytes(left)


async def _piece(source: int) -> bytes:
    try:
        await anyio.wait_readable(source)
        return os.read(source, _PIECE)
    except PermissionError:  # a file is always readable, and cannot be waited for
        return await to_thread.run_sync(os.read, source, _PIECE)
    except OSError:  # whoever held the other end is gone
        return b""
