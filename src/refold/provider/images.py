"""Prepares the images of a message for a wire, as bytes or as a description in words.

An image is described if its bytes are missing or if the wire does not accept its type. Each
wire encodes images itself. `capability_fallback` leaves out all images for a model that takes
none, and `image_fallback` single images that a model has refused.
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
# Matches refusals of servers whose model takes no images.
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
    """An image in the form in which it is sent."""

    kind: str
    data: str  # base64

    @property
    def url(self) -> str:
        return f"data:{self.kind};base64,{self.data}"


Content: TypeAlias = str | EncodedImage


def texts_and_images(
    parts: Iterable[Part], pictures: Pictures, kinds: Collection[str] = IMAGE_TYPES
) -> list[Content]:
    """Return the texts and images among `parts` in their order, and omit all other parts.

    An image that is not in `pictures`, or whose type is not among `kinds`, becomes a text.
    """
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
    """Return the text of a result, and its images.

    An image that is not in `pictures`, or whose type is not among `kinds`, is described in the
    text.
    """
    contents = [_encode_image(image, pictures, kinds) for image in part.images]
    descriptions = [content for content in contents if isinstance(content, str)]
    texts = [sanitize.text(part.text), *descriptions]
    images = [content for content in contents if isinstance(content, EncodedImage)]
    return "\n\n".join(text for text in texts if text), images


def join_texts(contents: Iterable[Content]) -> str:
    """Join the texts among `contents` with blank lines, and omit images."""
    return "\n\n".join(content for content in contents if isinstance(content, str))


def without_images(encode: Encode) -> Encode:
    """Wrap an encoder so that it describes all images in words."""
    return lambda message, _: encode(message, NO_PICTURES)


def without_hidden(encode: Encode, hidden: frozenset[str]) -> Encode:
    """Wrap an encoder so that it describes the images in `hidden` in words."""

    def encode_rest(message: Message, pictures: Pictures) -> Iterable[EncodedPiece]:
        return encode(message, {k: v for k, v in pictures.items() if k not in hidden})

    return encode_rest


class Encodings(Generic[Manner]):
    """Caches encoded conversations: one for each manner of encoding, with and without images.

    `encode` returns the encoder for a manner. If the set of `hidden` images changes, a
    conversation is encoded again.
    """

    def __init__(self, encode: Callable[[Manner], Encode]) -> None:
        self._encode = encode
        self._encoded: dict[tuple[Manner, bool], tuple[frozenset[str], Encoded]] = {}

    def encoding_for(
        self, manner: Manner, *, shown: bool, hidden: frozenset[str] = frozenset()
    ) -> Encoded:
        """Return the cached conversation. If not `shown`, words replace all images.

        Words always replace the images in `hidden`. If `hidden` has changed, the returned cache
        is empty.
        """
        cached = self._encoded.get((manner, shown))
        if cached is not None:
            cached_hidden, encoded = cached
            if cached_hidden == hidden:
                return encoded
        encode = self._encode(manner)
        if hidden:
            encode = without_hidden(encode, hidden)
        if not shown:
            encode = without_images(encode)
        encoded = Encoded(encode)
        self._encoded[manner, shown] = hidden, encoded
        return encoded


def _encode_image(image: Image, pictures: Pictures, kinds: Collection[str]) -> Content:
    """Return the encoded image, or a text in its place if it cannot be shown."""
    if image.media_type in kinds and (data := pictures.get(image.blob)):
        return EncodedImage(image.media_type, b64encode(data).decode())
    label = sanitize.text(image.name).strip() or image.media_type
    return f"[image {label}, which cannot be shown here]"
