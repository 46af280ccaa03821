"""What of a message's pictures can be sent: their bytes, or words in their place.

A picture is told in words where its bytes are not there, or are of a kind that
the wire does not take. How one looks on a wire is that wire's business; so is
what a model was found not to take: it is asked with no pictures at all then.
"""

from base64 import b64encode
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from refold.provider import sendable
from refold.provider.encoded import Encode, Encoded
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
    """The words and pictures among `parts`, in their order."""
    found: list[Seen] = []
    for part in parts:
        match part:
            case Text(text) if text.strip():
                found.append(sendable.text(text))
            case Image():
                found.append(_seen(part, pictures, kinds))
            case _:
                continue
    return found


def result(
    part: ToolResult, pictures: Pictures, kinds: Collection[str] = KINDS
) -> tuple[str, list[Shown]]:
    """What a result says, and shows. What cannot be shown it says."""
    images = [_seen(image, pictures, kinds) for image in part.pictures]
    told = (image for image in images if isinstance(image, str))
    text = "\n\n".join(filter(None, (sendable.text(part.text), *told)))
    return text, [image for image in images if isinstance(image, Shown)]


def joined(said: Iterable[Seen]) -> str:
    """The words of it, as one text."""
    return "\n\n".join(each for each in said if isinstance(each, str))


def blind(encode: Encode) -> Encode:
    """`encode` for a model that takes no pictures: it is told of them."""
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
    if image.kind in kinds and (data := pictures.get(image.blob)):
        return Shown(image.kind, b64encode(data).decode())
    called = sendable.text(image.name).strip() or image.kind
    return f"[picture {called}, which cannot be shown here]"
