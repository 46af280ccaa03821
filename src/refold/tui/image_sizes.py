"""How large an image is: in pixels, by the first bytes of its file, and in cells of the screen.
Drawing it is `image_painter`'s.

Nothing is decoded. A file that claims a size that no picture has is not an image here.
"""

import fcntl
import struct
import termios

from msgspec import Struct

_MOST = 16_384  # pixels of a side
_MOST_PIXELS = 50_000_000
_FOLDED, _WHOLE = 12, 40  # rows of the screen
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # of JPEG: they begin a picture


class CellSize(Struct, frozen=True):
    """Of one letter, in pixels."""

    width: int = 8
    height: int = 16


class ImageSize(Struct, frozen=True):
    """In pixels; `cells` are the columns and rows that these take, at least one."""

    width: int
    height: int
    cells: tuple[int, int] = (1, 1)

    def fitted(self, room: int, *, whole: bool) -> tuple[int, int]:
        """Columns and rows on the screen: never larger than it is, and in proportion."""
        columns, rows = self.cells
        most = _WHOLE if whole else _FOLDED
        scale = min(1.0, max(room, 1) / columns, most / rows)
        return (
            max(min(round(columns * scale), room), 1),
            max(min(round(rows * scale), most), 1),
        )


def cell_size() -> CellSize:
    """Of this terminal, as it says; else the usual one."""
    try:
        found = fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return CellSize()
    rows, columns, width, height = struct.unpack("HHHH", found)
    if not (rows and columns and width >= columns and height >= rows):
        return CellSize()
    return CellSize(width // columns, height // rows)


def image_size(content: bytes, cell: CellSize) -> ImageSize | None:
    """The size of a PNG, GIF, JPEG or WebP file; None: it is none, or none to be drawn."""
    if (found := _pixels(content)) is None:
        return None
    width, height = found
    if not (0 < width <= _MOST and 0 < height <= _MOST) or width * height > _MOST_PIXELS:
        return None
    across = -(-width // max(cell.width, 1))
    down = -(-height // max(cell.height, 1))
    return ImageSize(width, height, (across, down))


def _pixels(content: bytes) -> tuple[int, int] | None:
    if content.startswith(b"\x89PNG\r\n\x1a\n") and content[12:16] == b"IHDR":
        return _big(content[16:20]), _big(content[20:24])
    if content.startswith((b"GIF87a", b"GIF89a")):
        return _little(content[6:8]), _little(content[8:10])
    if content.startswith(b"\xff\xd8\xff"):
        return _of_jpeg(content)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return _of_webp(content)
    return None


def _of_jpeg(content: bytes) -> tuple[int, int] | None:
    """In the header of its frame, behind segments that each say how long they are."""
    at = 2
    while at + 9 <= len(content) and content[at] == 0xFF:
        kind = content[at + 1]
        if kind in _FRAMES:
            return _big(content[at + 7 : at + 9]), _big(content[at + 5 : at + 7])
        if kind == 0xFF or 0xD0 <= kind <= 0xD8:  # filled up, or without a length
            at += 1 if kind == 0xFF else 2
            continue
        at += 2 + max(_big(content[at + 2 : at + 4]), 2)
    return None


def _of_webp(content: bytes) -> tuple[int, int] | None:
    match content[12:16]:
        case b"VP8X":
            return _little(content[24:27]) + 1, _little(content[27:30]) + 1
        case b"VP8L":
            bits = _little(content[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return _little(content[26:28]) & 0x3FFF, _little(content[28:30]) & 0x3FFF
        case _:
            return None


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
