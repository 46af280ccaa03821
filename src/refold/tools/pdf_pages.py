"""Draws pages of a PDF as images, in a limited process. `document_text` extracts the text."""

import base64
import struct
import sys
import zlib
from importlib.util import find_spec
from typing import Any, cast

from msgspec import Struct

from refold.errors import ToolFailed
from refold.tools.bounded_process import (
    CannotRead,
    LimitExceeded,
    exit_unreadable,
    run_bounded,
)

_PIXELS_PER_POINT = 1.5  # 108 pixels per inch
_MAX_SIDE_PIXELS = 2000


class PdfPage(Struct, frozen=True):
    """One page of a PDF as a PNG, and the number of pages in the document."""

    png: bytes
    pages: int


def draw_page(content: bytes, number: int) -> PdfPage:
    """Draw the page with this number, from 1. Raises `ToolFailed` if that is impossible."""
    if find_spec("pypdfium2") is None:
        raise ToolFailed("pages of a PDF are shown with: pip install 'refold[docs]'")
    try:
        printed = run_bounded(print_page, content, str(number))
    except LimitExceeded as error:
        raise ToolFailed(
            f"page {number} takes {error} to draw: download the file"
        ) from error
    except CannotRead as error:
        reason = str(error).rstrip(".")
        raise ToolFailed(f"page {number} of the PDF cannot be drawn: {reason}") from error
    pages, _, image = printed.partition(" ")
    return PdfPage(base64.b64decode(image), int(pages))


def print_page(number: str) -> None:
    """Draw a page of the PDF on standard input, and print it. This runs in a process with
    limits.
    """
    import pypdfium2  # pyright: ignore[reportMissingTypeStubs] - it has none

    try:
        document = cast("Any", pypdfium2).PdfDocument(sys.stdin.buffer.read())
        if not 1 <= int(number) <= len(document):
            exit_unreadable(f"it has {len(document)} pages")
            return
        page = document[int(number) - 1]
        scale = min(_PIXELS_PER_POINT, _MAX_SIDE_PIXELS / max(*page.get_size(), 1.0))
        bitmap = page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False)
    except pypdfium2.PdfiumError as error:
        exit_unreadable(str(error))
        return
    pixels = bytes(bitmap.buffer)
    # In the buffer, each line of pixels is padded to `stride` bytes.
    line_bytes = bitmap.width * bitmap.n_channels
    starts = range(0, len(pixels), bitmap.stride)
    lines = [pixels[start : start + line_bytes] for start in starts]
    image = _png(bitmap.width, bitmap.n_channels, lines)
    sys.stdout.write(f"{len(document)} {base64.b64encode(image).decode()}")


def _png(width: int, channels: int, lines: list[bytes]) -> bytes:
    """Encode lines of pixels as a PNG."""
    colour_type = {1: 0, 3: 2, 4: 6}[channels]  # gray, RGB, RGB with alpha
    # 8 bits for each channel; the zeros are the usual methods, and no interlacing.
    header = struct.pack(">IIBBBBB", width, len(lines), 8, colour_type, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + line for line in lines))  # 0: no filter

    def chunk(kind: bytes, body: bytes) -> bytes:
        length = struct.pack(">I", len(body))
        checksum = struct.pack(">I", zlib.crc32(kind + body))
        return length + kind + body + checksum

    chunks = (chunk(b"IHDR", header), chunk(b"IDAT", data), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
