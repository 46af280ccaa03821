"""Image files that models accept: recognizes their type by the first bytes, limits size."""

from pathlib import Path

from refold.errors import BadInput
from refold.safe_open import read_regular
from refold.tools.contract import ImageData

MOST = 3_700_000  # bytes: a third more in base64, and that may be 5 MB in most places
SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\1\0", "image/x-icon"),
)


def image_data(content: bytes, name: str, size: int = 0) -> ImageData:
    """What can be shown to a model. Raises `BadInput` for anything else.

    `size` is how long it is, where `content` may be only the beginning.
    """
    size = size or len(content)
    kind = image_type(content)
    if kind not in SHOWN:
        raise BadInput(
            f"{name!r} is {kind or 'not an image'}: models see PNG, JPEG, GIF and WebP"
        )
    if size > MOST:
        raise BadInput(
            f"{name!r} has {size:,} bytes, and models take images of up to "
            f"{MOST:,}: make it smaller first"
        )
    return ImageData(content, kind, name)


def image_file(path: Path, name: str) -> ImageData:
    """The image in a file. Raises `BadInput` where there is none to be shown."""
    try:
        content, size = read_regular(path, MOST + 1)
    except OSError as error:
        raise BadInput(f"{name!r} cannot be read: {error.strerror or error}") from error
    return image_data(content, name, size)


def image_type(content: bytes) -> str:
    """The media type of an image, or ""."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if content[:2] == b"BM" and content[6:10] == b"\0\0\0\0":  # two letters are too little
        return "image/bmp"
    return next((kind for start, kind in _KINDS if content.startswith(start)), "")
