"""Images are decoded in a bounded process and made to fit before a model gets them."""

import os
import sys
from io import BytesIO

import pytest

from refold.errors import BadInput
from refold.tools.contract import ImageData
from refold.tools.images import MAX_SENT_BYTES, MAX_SIDE_PIXELS, fit_image

pytestmark = pytest.mark.slow  # each image is decoded by a new process


def image(size: tuple[int, int], made: str = "PNG", *, mode: str = "RGB", noise: bool = False) -> bytes:  # fmt: skip
    from PIL import Image

    data = os.urandom(size[0] * size[1] * len(mode)) if noise else b""
    picture = Image.frombytes(mode, size, data) if noise else Image.new(mode, size)
    out = BytesIO()
    picture.save(out, made)
    return out.getvalue()


def size_of(content: bytes) -> tuple[int, int]:
    from PIL import Image

    return Image.open(BytesIO(content)).size


@pytest.mark.parametrize("made", ["PNG", "JPEG", "GIF", "WEBP"])
def test_image_that_fits_is_not_changed(made: str) -> None:
    content = image((30, 20), made)

    fitted = fit_image(ImageData(content, "image/png", "a"))

    assert (fitted.image, fitted.note) == (
        ImageData(content, f"image/{made.lower()}", "a"),  # as its bytes say
        "",
    )


@pytest.mark.parametrize(
    ("size", "made", "now"),
    [
        ((10, 9000), "PNG", (2, 2000)),
        ((9000, 9000), "PNG", (2000, 2000)),
        ((5000, 2500), "JPEG", (2000, 1000)),
        ((3000, 300), "WEBP", (2000, 200)),
        ((2001, 10), "GIF", (2000, 10)),
    ],
)
def test_large_image_is_scaled(
    size: tuple[int, int], made: str, now: tuple[int, int]
) -> None:
    fitted = fit_image(ImageData(image(size, made), "image/png", "a"))

    assert size_of(fitted.image.content) == now
    assert max(now) <= MAX_SIDE_PIXELS
    assert fitted.note == (
        f"scaled from {size[0]:,} x {size[1]:,} pixels to {now[0]:,} x {now[1]:,} pixels"
    )


def test_image_of_too_many_bytes_is_compressed() -> None:
    content = image((1900, 1900), noise=True)

    fitted = fit_image(ImageData(content, "image/png", "a")).image

    assert len(fitted.content) <= MAX_SENT_BYTES < len(content)
    assert fitted.kind == "image/webp"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"<html>no such page</html>", "is not an image"),
        (image((20, 10))[:45], "cannot be decoded: image file is truncated"),
        (image((300, 300), noise=True)[:-2000], "cannot be decoded"),
        (b"GIF89a...", "cannot be decoded"),
        (b"\xff\xd8\xff" + bytes(100), "cannot be decoded"),
        (image((20_000, 20_000), mode="L"), "20,000 x 20,000 pixels, and 100,000,000"),
        (b"\x89PNG\r\n\x1a\n" + bytes(30_000_001), "30,000,009 bytes"),
    ],
)
def test_an_image_that_cannot_be_shown_is_refused_with_the_reason(
    content: bytes, why: str
) -> None:
    with pytest.raises(BadInput, match=why):
        fit_image(ImageData(content, "image/png", "a.png"))


def test_without_pillow_large_images_are_refused_and_others_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("small", "tall", "heavy")
    contents = image((20, 10)), image((10, 9000)), image((1900, 1900), noise=True)
    small, tall, heavy = map(ImageData, contents, ["image/png"] * 3, names)
    monkeypatch.setitem(sys.modules, "PIL", None)

    assert fit_image(small).image == small
    with pytest.raises(
        BadInput, match=r"10 x 9,000 pixels.*pip install 'refold\[images\]'"
    ):
        fit_image(tall)
    with pytest.raises(BadInput, match=r"bytes.*pip install 'refold\[images\]'"):
        fit_image(heavy)
