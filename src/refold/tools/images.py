"""Decides which images may be sent to models, and scales an image down if it is too large.

Every image passes `fit_image`, whether it comes from a tool or an MCP server, or is attached or
pasted (`session.recorder` calls it). It decodes the file in a process with limits of memory and
time. `provider.image_fallback` leaves out an image that a provider refuses nevertheless.

The limits are the same for every provider: the journal holds what is sent, a session can change
its provider, and a prefix that a provider has cached stays valid. Without a library for images,
most damage to a file would not be noticed.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from refold.errors import BadInput
from refold.safe_open import read_regular
from refold.tools.contract import FittedImage, ImageData
from refold.values.image_files import image_type, pixel_size

if TYPE_CHECKING:
    import PIL.Image

VISIBLE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MAX_FILE_BYTES = 30_000_000
# Base64 is a third longer: Anthropic accepts 5 MB of it, Gemini and OpenAI more.
MAX_SENT_BYTES = 3_700_000
# Anthropic accepts no larger images in a request with many; OpenAI and Gemini scale to
# less.
MAX_SIDE_PIXELS = 2_000
_MAX_UNSCALED_SIDE_PIXELS = 8_000  # the limit of Anthropic in a request with few images
_MAX_PIXELS = 100_000_000  # larger images are not decoded
_SMALLEST_SIDE_PIXELS = 250  # the smallest result of scaling an image with too many bytes
_INSTALL_HINT = "pip install 'refold[images]' for refold to scale images"


class _Printed(Struct, frozen=True):
    """What the process prints: the type, the size before and after, and the new file if it
    changed.
    """

    kind: str
    was: tuple[int, int]
    now: tuple[int, int]
    content: bytes = b""


def image_data(content: bytes, name: str, size: int = 0) -> ImageData:
    """Return `content` as an image of a type that models accept. Raises `BadInput` for other
    content.

    `size` is the length of the file if `content` is only its beginning.
    """
    size = size or len(content)
    kind = image_type(content)
    if kind not in VISIBLE_TYPES:
        raise BadInput(
            f"{name!r} is {kind or 'not an image'}: models see PNG, JPEG, GIF and WebP"
        )
    if size > MAX_FILE_BYTES:
        raise BadInput(
            f"{name!r} has {size:,} bytes, and images may have up to "
            f"{MAX_FILE_BYTES:,}: make it smaller first"
        )
    return ImageData(content, kind, name)


def image_file(path: Path, name: str) -> ImageData:
    """Return the image in a file. Raises `BadInput` if the file has no image that can be shown."""
    try:
        content, size = read_regular(path, MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{name!r} cannot be read: {error.strerror or error}") from error
    return image_data(content, name, size)


def fit_image(image: ImageData) -> FittedImage:
    """Return `image` in a form that every provider accepts. Raises `BadInput` if that is
    impossible.

    The type is recognized by the bytes of the image, not by its name.
    """
    name = image.name or "the image"
    image = image_data(image.content, name)
    try:
        import PIL
    except ImportError:
        return FittedImage(_check_unscaled(image))
    del PIL
    from refold.tools.bounded_process import CannotRead, LimitExceeded, run_bounded

    try:
        output = run_bounded(print_fitted, image.content, name)
        printed = msgspec.json.decode(output, type=_Printed)
    except LimitExceeded as error:
        raise BadInput(f"{name!r} takes {error} to decode") from error
    except CannotRead as error:
        raise BadInput(f"{name!r} cannot be decoded: {error}") from error
    content = printed.content or image.content
    note = ""
    if printed.was != printed.now:
        note = f"scaled from {_size(printed.was)} to {_size(printed.now)}"
    return FittedImage(ImageData(content, printed.kind, name), note)


def _check_unscaled(image: ImageData) -> ImageData:
    """Return an image that needs no scaling, if Pillow is missing. Raises `BadInput` if it is
    too large.
    """
    width, height = pixel_size(image.content) or (0, 0)
    if max(width, height) > _MAX_UNSCALED_SIDE_PIXELS:
        raise BadInput(
            f"{image.name!r} has {_size((width, height))}, but models accept at most "
            f"{_MAX_UNSCALED_SIDE_PIXELS:,} on a side: {_INSTALL_HINT}"
        )
    if len(image.content) > MAX_SENT_BYTES:
        raise BadInput(
            f"{image.name!r} has {len(image.content):,} bytes, and models take images of up "
            f"to {MAX_SENT_BYTES:,}: {_INSTALL_HINT}"
        )
    return image


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]:,} x {size[1]:,} pixels"


_OPEN_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
_PNG_END = b"IEND\xaeB`\x82"


def print_fitted(_name: str) -> None:
    """Print the image on standard input in a form that can be sent.

    This runs in a process with limits.
    """
    from warnings import simplefilter

    from refold.tools.bounded_process import exit_unreadable

    simplefilter("ignore")  # warnings about harmless damage would be printed
    content = sys.stdin.buffer.read()
    try:
        fitted = _fit(content)
        if fitted is not None:
            sys.stdout.buffer.write(msgspec.json.encode(fitted))
            return
    except (OSError, SyntaxError, ValueError, EOFError, MemoryError) as error:
        exit_unreadable(str(error).removesuffix(".") or type(error).__name__)
    exit_unreadable("it cannot be made small enough")


def _fit(content: bytes) -> _Printed | None:
    """Return an image that can be sent, or None if it cannot be made small enough."""
    from PIL import Image, ImageOps

    from refold.tools.bounded_process import exit_unreadable

    picture, is_damaged = _open(content)
    kind = Image.MIME.get(picture.format or "", "")
    size = picture.size
    if size[0] * size[1] > _MAX_PIXELS:
        exit_unreadable(f"it has {_size(size)}, and {_MAX_PIXELS:,} pixels are decoded")
    picture.load()
    is_small = max(size) <= MAX_SIDE_PIXELS and len(content) <= MAX_SENT_BYTES
    if is_small and not is_damaged:
        return _Printed(kind, was=size, now=size)
    return _scale(ImageOps.exif_transpose(picture), kind)


def _open(content: bytes) -> "tuple[PIL.Image.Image, bool]":
    """Return the image, which is not decoded yet, and whether its file has harmless damage."""
    from io import BytesIO

    from PIL import Image, ImageFile

    Image.MAX_IMAGE_PIXELS = None  # `_fit` checks the size
    try:
        return Image.open(BytesIO(content), formats=_OPEN_FORMATS), False
    except OSError:
        if not content.endswith(_PNG_END):
            raise
    # Only the checksum of an invisible part, such as a colour profile, is wrong.
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    return Image.open(BytesIO(content), formats=_OPEN_FORMATS), True


def _scale(picture: "PIL.Image.Image", kind: str) -> _Printed | None:
    """Return the image in the largest size that can be sent; None if it would be too small."""
    from io import BytesIO

    from PIL import Image

    old_size = picture.size
    side = min(MAX_SIDE_PIXELS, max(old_size))
    smallest_side = min(_SMALLEST_SIDE_PIXELS, side)
    picture = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
    # PNG keeps the letters of a screenshot sharp; WebP suits photographs.
    formats = ("JPEG",) if kind == "image/jpeg" else ("PNG", "WEBP")
    while side >= smallest_side:
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
        for format_name in formats:
            output = BytesIO()
            picture.save(output, format_name, quality=85)
            if output.tell() <= MAX_SENT_BYTES:
                new_kind = Image.MIME[format_name]
                return _Printed(new_kind, old_size, picture.size, output.getvalue())
        side //= 2
    return None
