"""How large an image is: in pixels, by the first bytes of its file, and in cells of the screen.
Drawing it is `image_painter`'s.

Nothing is decoded. A file that claims a size that no picture has is not an image here.
"""

import fcntl
import struct
import termios

from msgspec import Struct

from refold.values.image_files import pixel_size

_MAX_SIDE_PIXELS = 16_384  # width or height
_MOST_PIXELS = 50_000_000
_FOLDED, _WHOLE = 12, 40  # rows of the screen


class CellSize(Struct, frozen=True):
    """Of one letter, in pixels."""

    width: int = 8
    height: int = 16


class ImageSize(Struct, frozen=True):
    """In pixels; `cells` are the columns and rows that these take, at least one."""

    width: int
    height: int
    cells: tuple[int, int] = (1, 1)

    def fit(self, room: int, *, whole: bool) -> tuple[int, int]:
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
        answer = fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return CellSize()
    rows, columns, width, height = struct.unpack("HHHH", answer)
    if not (rows and columns and width >= columns and height >= rows):
        return CellSize()
    return CellSize(width // columns, height // rows)


def image_size(content: bytes, cell: CellSize) -> ImageSize | None:
    """The size of a PNG, GIF, JPEG or WebP file; None: it is none, or none to be drawn."""
    if (size := pixel_size(content)) is None:
        return None
    width, height = size
    if (
        not (0 < width <= _MAX_SIDE_PIXELS and 0 < height <= _MAX_SIDE_PIXELS)
        or width * height > _MOST_PIXELS
    ):
        return None
    across = -(-width // max(cell.width, 1))
    down = -(-height // max(cell.height, 1))
    return ImageSize(width, height, (across, down))
