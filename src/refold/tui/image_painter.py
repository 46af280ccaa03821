"""Draws images over blank rows of a frame, on terminals that support images.

There are two protocols. With kitty's, the terminal stores an image, and commands place parts of
it. With iTerm2's, the complete image is sent each time that it is placed. The raw bytes of an
image are never sent, only numbers and base64.

Sixel is not supported: each image would have to be decoded and its colours reduced, which none
of our libraries does. Inside tmux and screen the outer terminal is unknown, so nothing is
drawn.

A terminal is recognized by its environment. It is never queried, because a late reply would be
typed into the shell. kitty's Unicode placeholders would scroll like text, but the environment
does not show which version supports them.
"""

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.tui.image_sizes import ImageSize
from refold.views.styled import ImageRow, Line
from refold.views.wrap import cells

Protocol: TypeAlias = Literal["", "kitty", "iterm"]
# Variables that show a terminal inside a terminal.
_NESTING_VARIABLES = ("TMUX", "STY", "NVIM", "VIM_TERMINAL", "INSIDE_EMACS")
_KITTY_TERMS = ("xterm-kitty", "xterm-ghostty")
_KITTY_PROGRAMS = ("kitty", "ghostty")
_ITERM_PROGRAMS = ("iTerm.app", "WezTerm")
# The size of an image file.
_MAX_FILE_BYTES: Mapping[Protocol, int] = {"kitty": 4_000_000, "iterm": 1_000_000}
_MAX_SSH_FILE_BYTES = 256_000
_CHUNK_CHARS = 4_096  # of base64 in one command, a limit of kitty
_MAX_TERMINAL_IMAGES = 24  # images that the terminal is asked to store
_DELETE_ALL_IMAGES = "\x1b_Ga=d,d=A,q=2\x1b\\"


class PlacedImage(Struct, frozen=True):
    """An image on the screen, of which the rows from `first` to `last` are visible."""

    image: str
    top: int
    left: int
    columns: int
    rows: int
    first: int
    last: int

    @property
    def is_whole(self) -> bool:
        return self.first == 0 and self.last == self.rows - 1


def image_protocol(environ: Mapping[str, str]) -> Protocol:
    """Return the protocol with which this terminal draws images; "" if none is known."""
    term, program = environ.get("TERM", ""), environ.get("TERM_PROGRAM", "")
    is_nested = any(environ.get(variable) for variable in _NESTING_VARIABLES)
    if is_nested or term.startswith(("tmux", "screen")):
        return ""
    if term in _KITTY_TERMS:  # the other variables may be inherited from another terminal
        return "kitty"
    if program in _ITERM_PROGRAMS or environ.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    is_kitty = program in _KITTY_PROGRAMS or environ.get("KITTY_WINDOW_ID")
    return "kitty" if is_kitty else ""


def images_in_rows(rows: Sequence[Line]) -> list[PlacedImage]:
    """Return the images of a frame, from top to bottom."""
    images = list[PlacedImage]()
    for y, row in enumerate(rows):
        x = 0
        for style, text in row:
            width = cells(text)
            if isinstance(style, ImageRow) and width == style.columns:
                _add_row(images, style, y, x)
            x += width
    return images


def _add_row(images: list[PlacedImage], style: ImageRow, y: int, x: int) -> None:
    """Add one row of an image to `images`.

    If the row continues the last image, that image grows; otherwise a new image is added.
    """
    if images:
        newest = images[-1]
        is_next_row = newest.image == style.image and newest.last == style.row - 1
        rows_below_top = style.row - newest.first
        if is_next_row and newest.top + rows_below_top == y:
            images[-1] = replace(newest, last=style.row)
            return
    images.append(
        PlacedImage(
            image=style.image, top=y, left=x, columns=style.columns, rows=style.rows,
            first=style.row, last=style.row,
        )
    )  # fmt: skip


class ImagePainter:
    """Knows which images the terminal has stored, and where they are on the screen."""

    def __init__(self, environ: Mapping[str, str], *, wanted: bool = True) -> None:
        self.protocol: Protocol = image_protocol(environ) if wanted else ""
        is_remote = environ.get("SSH_CONNECTION") or environ.get("SSH_TTY")
        max_bytes = _MAX_FILE_BYTES.get(self.protocol, 0)
        self._max_bytes = min(max_bytes, _MAX_SSH_FILE_BYTES) if is_remote else max_bytes
        self._sizes = dict[str, ImageSize]()
        self._contents = dict[str, bytes]()  # contents of the drawn images, newest last
        self._sent = dict[str, int]()  # the number of each image in the terminal
        self._placed = dict[tuple[str, int], PlacedImage]()
        # Numbers have 32 bits. The upper ones depend on the process, because other programs
        # number their images, too.
        self._next_number = (os.getpid() & 0x7FFF) << 16 | 1

    def can_draw(self, content: bytes) -> bool:
        """Return whether the terminal can draw the image: it is small enough, and kitty needs PNG."""
        if len(content) > self._max_bytes:
            return False
        return self.protocol == "iterm" or content.startswith(b"\x89PNG")

    def set_size(self, image: str, size: ImageSize) -> None:
        self._sizes[image] = size

    def missing_images(self, rows: Sequence[Line]) -> list[str]:
        """Return the names of the images in these rows whose bytes are needed."""
        names = dict.fromkeys(image.image for image in images_in_rows(rows))
        return [
            name for name in names if name not in self._sent and name not in self._contents
        ]

    def add_content(self, image: str, content: bytes) -> None:
        self._contents[image] = content

    def delete_images_sequence(self) -> str:
        """Return the sequence that deletes all images from the terminal, and forget them."""
        has_images = bool(self._sent)
        self._sent.clear()
        self._placed.clear()
        return _DELETE_ALL_IMAGES if has_images and self.protocol == "kitty" else ""

    def frame_sequences(
        self, rows: Sequence[Line], written_rows: frozenset[int], *, moved: bool
    ) -> tuple[str, str]:
        """Return the sequences to write before and after a frame.

        `written_rows` are the rows that the frame writes again. `moved` says that the terminal
        scrolled.
        """
        if not self.protocol or not (self._placed or self._sizes):
            return "", ""
        now = dict[tuple[str, int], PlacedImage]()
        for image in images_in_rows(rows):
            if image.image not in self._sizes:
                continue
            copy_index = 0  # the same image may be on the screen several times
            while (image.image, copy_index) in now:
                copy_index += 1
            now[image.image, copy_index] = image
        if self.protocol == "iterm":
            return "", "".join(self._inline_sequences(now, written_rows))
        uploads = "".join(self._transmissions(now))
        return uploads, "".join(self._placement_sequences(now, written_rows, moved=moved))

    def _transmissions(self, now: Mapping[tuple[str, int], PlacedImage]) -> Iterator[str]:
        """Yield sequences that store new images, or delete images that are not shown.

        `now` has the images of the frame, by name and number of the copy.
        """
        for name in dict.fromkeys(image for image, _ in now):
            if name in self._sent or name not in self._contents:
                continue
            number = self._next_number
            self._next_number += 1
            self._sent[name] = number
            encoded = base64.b64encode(self._contents.pop(name)).decode()
            for start in range(0, len(encoded), _CHUNK_CHARS):
                end = start + _CHUNK_CHARS
                more_follows = int(end < len(encoded))
                arguments = f"m={more_follows},q=2"
                if start == 0:
                    arguments = f"a=t,f=100,i={number},q=2,m={more_follows}"
                yield f"\x1b_G{arguments};{encoded[start:end]}\x1b\\"
        shown_names = {image for image, _ in now}
        hidden_names = [name for name in self._sent if name not in shown_names]
        excess_count = max(len(self._sent) - _MAX_TERMINAL_IMAGES, 0)
        for name in hidden_names[:excess_count]:
            yield f"\x1b_Ga=d,d=I,i={self._sent.pop(name)},q=2\x1b\\"

    def _placement_sequences(
        self,
        now: Mapping[tuple[str, int], PlacedImage],
        written_rows: frozenset[int],
        *,
        moved: bool,
    ) -> Iterator[str]:
        """Yield sequences that remove images, then those that place new or overwritten ones.

        If the terminal has scrolled (`moved`), all are placed again. `now` has the images of
        the frame, by name and number of the copy.
        """
        before, self._placed = self._placed, dict[tuple[str, int], PlacedImage]()
        for name, copy_index in before:
            if (name, copy_index) not in now and name in self._sent:
                yield f"\x1b_Ga=d,d=i,i={self._sent[name]},p={copy_index + 1},q=2\x1b\\"
        for (name, copy_index), image in now.items():
            if name not in self._sent:
                continue  # the bytes of the image were not sent yet
            self._placed[name, copy_index] = image
            is_new = before.get((name, copy_index)) != image
            if is_new or moved or _is_overwritten(image, written_rows):
                yield self._placement_sequence(image, copy_index)

    def _placement_sequence(self, image: PlacedImage, copy_index: int) -> str:
        """Return the sequence that shows the visible rows of an image, for kitty's protocol."""
        size = self._sizes[image.image]
        first_pixel = size.height * image.first // image.rows
        end_pixel = size.height * (image.last + 1) // image.rows
        height = max(end_pixel - first_pixel, 1)
        row_count = image.last - image.first + 1
        order = (
            f"a=p,i={self._sent[image.image]},p={copy_index + 1},x=0,y={first_pixel},"
            f"w={size.width},h={height},c={image.columns},r={row_count},C=1,q=2"
        )
        return f"{_cursor_sequence(image)}\x1b_G{order}\x1b\\"

    def _inline_sequences(
        self, now: Mapping[tuple[str, int], PlacedImage], written_rows: frozenset[int]
    ) -> Iterator[str]:
        """Yield sequences that draw the images that are new or were overwritten, by iTerm2's
        protocol.
        """
        before, self._placed = self._placed, dict[tuple[str, int], PlacedImage]()
        for key, image in now.items():
            content = self._contents.get(image.image)
            if content is None or not image.is_whole:
                continue
            self._placed[key] = image
            if key in before and not _is_overwritten(image, written_rows):
                continue
            encoded = base64.b64encode(content).decode()
            arguments = (
                f"inline=1;size={len(content)};width={image.columns};height={image.rows};"
                "preserveAspectRatio=0"
            )
            yield f"{_cursor_sequence(image)}\x1b]1337;File={arguments}:{encoded}\x07"
        hidden_names = [name for name in self._contents if (name, 0) not in now]
        excess_count = max(len(self._contents) - _MAX_TERMINAL_IMAGES, 0)
        for name in hidden_names[:excess_count]:
            del self._contents[name]


def _cursor_sequence(image: PlacedImage) -> str:
    return f"\x1b[{image.top + 1};{image.left + 1}H"


def _is_overwritten(image: PlacedImage, written_rows: frozenset[int]) -> bool:
    """Return whether one of the screen rows of the image was written again."""
    bottom = image.top + image.last - image.first
    return any(image.top <= row <= bottom for row in written_rows)
