"""The size of an image: in pixels, by the first bytes of its file, and in cells.

Nothing is decoded. A file that claims an impossible size is not treated as an image.
`image_painter` draws.
"""

import fcntl
import struct
import termios

from msgspec import Struct

from refold.values.image_files import pixel_size

_MAX_SIDE_PIXELS = 16_384  # width or height
_MAX_IMAGE_PIXELS = 50_000_000
_FOLDED_ROWS, _WHOLE_ROWS = 12, 40  # rows of the screen


class CellSize(Struct, frozen=True):
    """The size of a character cell, in pixels."""

    width: int = 8
    height: int = 16


class ImageSize(Struct, frozen=True):
    """The size of an image in pixels; `cells` are the columns and rows that it takes, at
    least one.
    """

    width: int
    height: int
    cells: tuple[int, int] = (1, 1)

    def fit(self, width: int, *, whole: bool) -> tuple[int, int]:
        """Return columns and rows on the screen, in proportion and never enlarged."""
        columns, rows = self.cells
        most = _WHOLE_ROWS if whole else _FOLDED_ROWS
        scale = min(1.0, max(width, 1) / columns, most / rows)
        return (
            max(min(round(columns * scale), width), 1),
            max(min(round(rows * scale), most), 1),
        )


def cell_size() -> CellSize:
    """Return the cell size that this terminal reports, otherwise the usual one."""
    try:
        answer = fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return CellSize()
    rows, columns, width, height = struct.unpack("HHHH", answer)
    if not (rows and columns and width >= columns and height >= rows):
        return CellSize()
    return CellSize(width // columns, height // rows)


def image_size(content: bytes, cell: CellSize) -> ImageSize | None:
    """Return the size of a PNG, GIF, JPEG or WebP file; None if it cannot be drawn."""
    if (size := pixel_size(content)) is None:
        return None
    width, height = size
    if (
        not (0 < width <= _MAX_SIDE_PIXELS and 0 < height <= _MAX_SIDE_PIXELS)
        or width * height > _MAX_IMAGE_PIXELS
    ):
        return None
    across = -(-width // max(cell.width, 1))
    down = -(-height // max(cell.height, 1))
    return ImageSize(width, height, (across, down))
