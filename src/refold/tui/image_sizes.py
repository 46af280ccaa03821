"""Finds the size of an image in pixels, from the first bytes of its file, and in cells.

The image is not decoded. A file with an impossible size does not count as an image.
`image_painter` draws images.
"""

import fcntl
import struct
import termios
from math import ceil

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
    """The size of an image in pixels.

    `cells` is the number of columns and rows that it takes at full size, at least 1 each.
    """

    width: int
    height: int
    cells: tuple[int, int] = (1, 1)

    def fit(self, width: int, *, whole: bool) -> tuple[int, int]:
        """Return the columns and rows that the drawn image takes.

        It keeps its proportions and is never enlarged. `width` is the maximum number of
        columns. With `whole`, more rows are allowed.
        """
        columns, rows = self.cells
        max_rows = _WHOLE_ROWS if whole else _FOLDED_ROWS
        scale = min(1.0, max(width, 1) / columns, max_rows / rows)
        return (
            max(min(round(columns * scale), width), 1),
            max(min(round(rows * scale), max_rows), 1),
        )


def cell_size() -> CellSize:
    """Return the size of a cell that this terminal reports, or a usual size if it reports none."""
    try:
        answer = fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return CellSize()
    rows, columns, width, height = struct.unpack("HHHH", answer)
    has_pixels = width >= columns and height >= rows  # at least one in each cell
    if not (rows and columns and has_pixels):
        return CellSize()
    return CellSize(width // columns, height // rows)


def image_size(content: bytes, cell: CellSize) -> ImageSize | None:
    """Return the size of a PNG, GIF, JPEG or WebP image.

    Return None if the content is not one of these, or if the image is too large to draw.
    """
    size = pixel_size(content)
    if size is None:
        return None
    width, height = size
    if min(size) <= 0 or max(size) > _MAX_SIDE_PIXELS:
        return None
    if width * height > _MAX_IMAGE_PIXELS:
        return None
    columns = ceil(width / max(cell.width, 1))
    rows = ceil(height / max(cell.height, 1))
    return ImageSize(width, height, (columns, rows))
