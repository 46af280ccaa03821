"""Reads the type and the pixel size of an image file from its first bytes.

The image is not decoded, so the file may still be broken. `tools.images` decodes images.
"""

# JPEG markers that begin a frame, and the length of its header up to the width.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_FRAME_HEADER_BYTES = 9
_IMAGE_TYPES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\1\0", "image/x-icon"),
)


def image_type(content: bytes) -> str:
    """Return the media type of an image; "" if the content is not a known image."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    # "BM" alone is not specific enough.
    if content[:2] == b"BM" and content[6:10] == b"\0\0\0\0":
        return "image/bmp"
    return next((kind for start, kind in _IMAGE_TYPES if content.startswith(start)), "")


def pixel_size(content: bytes) -> tuple[int, int] | None:
    """Return the width and height of a PNG, GIF, JPEG or WebP file; None if unknown."""
    if content.startswith(b"\x89PNG\r\n\x1a\n") and content[12:16] == b"IHDR":
        return _from_big_endian(content[16:20]), _from_big_endian(content[20:24])
    if content.startswith((b"GIF87a", b"GIF89a")):
        return _from_little_endian(content[6:8]), _from_little_endian(content[8:10])
    if content.startswith(b"\xff\xd8\xff"):
        return _jpeg_size(content)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return _webp_size(content)
    return None


def _jpeg_size(content: bytes) -> tuple[int, int] | None:
    """Return the size from the frame header, which follows segments of known length.

    Return None if there is no frame header.
    """
    offset = 2  # after the marker that begins a JPEG file
    while offset + _FRAME_HEADER_BYTES <= len(content) and content[offset] == 0xFF:
        kind = content[offset + 1]
        if kind in _JPEG_FRAMES:
            # After the marker: a length (2 bytes), a precision (1), the height, the width.
            height = _from_big_endian(content[offset + 5 : offset + 7])
            width = _from_big_endian(content[offset + 7 : offset + 9])
            return width, height
        if kind == 0xFF:  # padding
            offset += 1
        elif 0xD0 <= kind <= 0xD8:  # a marker without a length
            offset += 2
        else:
            length = _from_big_endian(content[offset + 2 : offset + 4])
            offset += 2 + max(length, 2)  # the length counts its own two bytes
    return None


def _webp_size(content: bytes) -> tuple[int, int] | None:
    """Return the width and height that the first chunk states; None for an unknown chunk."""
    match content[12:16]:
        case b"VP8X":
            width_minus_1 = _from_little_endian(content[24:27])
            height_minus_1 = _from_little_endian(content[27:30])
            return width_minus_1 + 1, height_minus_1 + 1
        case b"VP8L":
            # Each is stored minus 1 in 14 bits, the width in the lower ones.
            bits = _from_little_endian(content[21:25])
            return (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
        case b"VP8 ":
            # The upper two bits of each number are a scale.
            width = _from_little_endian(content[26:28]) & 0x3FFF
            height = _from_little_endian(content[28:30]) & 0x3FFF
            return width, height
        case _:
            return None


def _from_big_endian(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _from_little_endian(data: bytes) -> int:
    return int.from_bytes(data, "little")
