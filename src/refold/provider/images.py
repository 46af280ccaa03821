"""The images of a message as a wire takes them: bytes, or a description instead.

An image is described in words if its bytes are missing or the wire does not accept its
type. Each wire encodes images itself; `capability_fallback` drops all of them for a model that
takes none, and `image_fallback` those that a model refused.
"""

from base64 import b64encode
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from refold.provider import sanitize
from refold.provider.encoding_cache import Encode, Encoded, EncodedPiece
from refold.provider.port import NO_PICTURES, Pictures
from refold.values.messages import Image, Message, Part, Text, ToolResult

Manner = TypeVar("Manner")
# How servers refuse images for a model that accepts none.
NO_IMAGES_PATTERN = (
    r"(image|picture|vision|multi-?modal)\b.{0,60}\b(not (support|enabled|available|allowed)"
    r"|unsupported|only supported|mmproj)"
    r"|(not|n't|no endpoints?\b.*) (support|accept|take|have)\w*\b.{0,40}"
    r"\b(image|picture|vision|multi-?modal)s?(_url)?\b(?! (format|type|size|dimension|of|larger))"
    r"|input_image'. supported values|unknown variant `image_url`|takes no (image|picture)"
    r"|\bcontent\b.*\b(string|text)\b"
)
# Matches refusals that are about an image.
IMAGE_REFUSAL_PATTERN = r"image|picture|vision|multi-?modal|\bcontent\b.*\b(string|text)\b"
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class EncodedImage(Struct, frozen=True):
    """An image as it is sent."""

    kind: str
    data: str  # base64

    @property
    def url(self) -> str:
        return f"data:{self.kind};base64,{self.data}"


Content: TypeAlias = str | EncodedImage


def texts_and_images(
    parts: Iterable[Part], pictures: Pictures, kinds: Collection[str] = IMAGE_TYPES
) -> list[Content]:
    """The texts and images among `parts`, in their order."""
    content: list[Content] = []
    for part in parts:
        match part:
            case Text(text) if text.strip():
                content.append(sanitize.text(text))
            case Image():
                content.append(_encode_image(part, pictures, kinds))
            case _:
                continue
    return content


def result_content(
    part: ToolResult, pictures: Pictures, kinds: Collection[str] = IMAGE_TYPES
) -> tuple[str, list[EncodedImage]]:
    """The text of a result, with descriptions of hidden images, and its other images."""
    images = [_encode_image(image, pictures, kinds) for image in part.images]
    descriptions = (image for image in images if isinstance(image, str))
    text = "\n\n".join(filter(None, (sanitize.text(part.text), *descriptions)))
    return text, [image for image in images if isinstance(image, EncodedImage)]


def join_texts(contents: Iterable[Content]) -> str:
    """The texts, joined by blank lines."""
    return "\n\n".join(content for content in contents if isinstance(content, str))


def without_images(encode: Encode) -> Encode:
    """`encode` for a model that takes no images: it gets a description of them."""
    return lambda message, _: encode(message, NO_PICTURES)


def without_hidden(encode: Encode, hidden: frozenset[str]) -> Encode:
    """`encode` with a description instead of each image in `hidden`."""

    def encode_rest(message: Message, pictures: Pictures) -> Iterable[EncodedPiece]:
        return encode(message, {k: v for k, v in pictures.items() if k not in hidden})

    return encode_rest


class Encodings(Generic[Manner]):
    """Encoded conversations by manner (of the wire), and by whether images are shown.

    `encode` returns the encoder for a manner. `hidden` names images that are left out; if
    others are, the conversation is encoded again.
    """

    def __init__(self, encode: Callable[[Manner], Encode]) -> None:
        self._encode = encode
        self._encoded: dict[tuple[Manner, bool], tuple[frozenset[str], Encoded]] = {}

    def encoding_for(
        self, manner: Manner, *, shown: bool, hidden: frozenset[str] = frozenset()
    ) -> Encoded:
        encoded = self._encoded.get((manner, shown))
        if encoded is None or encoded[0] != hidden:
            encode = self._encode(manner)
            encode = without_hidden(encode, hidden) if hidden else encode
            encoded = hidden, Encoded(encode if shown else without_images(encode))
            self._encoded[manner, shown] = encoded
        return encoded[1]


def _encode_image(image: Image, pictures: Pictures, kinds: Collection[str]) -> Content:
    if image.media_type in kinds and (data := pictures.get(image.blob)):
        return EncodedImage(image.media_type, b64encode(data).decode())
    called = sanitize.text(image.name).strip() or image.media_type
    return f"[image {called}, which cannot be shown here]"
