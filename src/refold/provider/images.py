"""The images of a message as a wire takes them: bytes, or a description instead.

An image is described in words if its bytes are missing or the wire does not accept its
type. Each wire encodes images itself; `capability_fallback` drops them for a model that
refuses images.
"""

from base64 import b64encode
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from refold.provider import sanitize
from refold.provider.encoding_cache import Encode, Encoded
from refold.provider.port import NO_PICTURES, Pictures
from refold.values.messages import Image, Part, Text, ToolResult

Manner = TypeVar("Manner")
# What a refusal says that is about a picture. No two servers say it alike.
REFUSED = r"image|picture|vision|multi-?modal|\bcontent\b.*\b(string|text)\b"
KINDS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class Shown(Struct, frozen=True):
    """A picture as it goes out."""

    kind: str
    data: str  # base64

    @property
    def url(self) -> str:
        return f"data:{self.kind};base64,{self.data}"


Seen: TypeAlias = str | Shown


def seen(
    parts: Iterable[Part], pictures: Pictures, kinds: Collection[str] = KINDS
) -> list[Seen]:
    """The texts and images among `parts`, in their order."""
    found: list[Seen] = []
    for part in parts:
        match part:
            case Text(text) if text.strip():
                found.append(sanitize.text(text))
            case Image():
                found.append(_seen(part, pictures, kinds))
            case _:
                continue
    return found


def result(
    part: ToolResult, pictures: Pictures, kinds: Collection[str] = KINDS
) -> tuple[str, list[Shown]]:
    """What a result says, and shows. What cannot be shown it says."""
    images = [_seen(image, pictures, kinds) for image in part.images]
    told = (image for image in images if isinstance(image, str))
    text = "\n\n".join(filter(None, (sanitize.text(part.text), *told)))
    return text, [image for image in images if isinstance(image, Shown)]


def joined(said: Iterable[Seen]) -> str:
    """Its texts, as one."""
    return "\n\n".join(each for each in said if isinstance(each, str))


def blind(encode: Encode) -> Encode:
    """`encode` for a model that takes no images: it gets a description of them."""
    return lambda message, _: encode(message, NO_PICTURES)


class Encodings(Generic[Manner]):
    """What was sent, for each way of sending it: a manner of the wire's, and blind or not.

    `encode` gives the encoder for a manner.
    """

    def __init__(self, encode: Callable[[Manner], Encode]) -> None:
        self._encode = encode
        self._made: dict[tuple[Manner, bool], Encoded] = {}

    def of(self, manner: Manner, *, shown: bool) -> Encoded:
        if (manner, shown) not in self._made:
            encode = self._encode(manner)
            self._made[manner, shown] = Encoded(encode if shown else blind(encode))
        return self._made[manner, shown]


def _seen(image: Image, pictures: Pictures, kinds: Collection[str]) -> Seen:
    if image.media_type in kinds and (data := pictures.get(image.blob)):
        return Shown(image.media_type, b64encode(data).decode())
    called = sanitize.text(image.name).strip() or image.media_type
    return f"[image {called}, which cannot be shown here]"
