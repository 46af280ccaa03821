"""Converts the content of a prompt to a message for the model: its text and images. Pure.

A file that the editor only names becomes @file in the text, and the model reads the file
itself. Content that the editor embeds follows the text. `open_session` sends the message.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)
from msgspec import Struct

from refold.client.types import ImageData
from refold.errors import BadInput

ContentBlock: TypeAlias = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)
_CODE_FENCE = "```"
# The ways in which editors write the lines of a file: L3, L3-7, L3-L7, L3:7, lines=3-7.
_LINE_FRAGMENT = re.compile(r"(?:L|lines?=)(\d+)(?:C\d+)?(?:[-:,]L?(\d+)(?:C\d+)?)?")


class PromptMessage(Struct, frozen=True):
    """A message for the model, converted from a prompt.

    `typed` is the user's text, `attached` the content that the editor embedded.
    """

    typed: str
    attached: str = ""
    images: tuple[ImageData, ...] = ()

    @property
    def text(self) -> str:
        return "\n\n".join(filter(None, (self.typed, self.attached)))


def message_of(blocks: Sequence[ContentBlock]) -> PromptMessage:
    """Convert the content of a prompt to a message for the model.

    Raises `BadInput` for content that our models cannot read.
    """
    typed, attached = list[str](), list[str]()
    images = list[ImageData]()
    for block in blocks:
        match block:
            case TextContentBlock(text=text):
                typed.append(text)
            case ImageContentBlock(data=data, mime_type=kind, uri=uri):
                images.append(_image(data, kind, uri or "an image"))
            case ResourceContentBlock(uri=uri):
                typed.append(name_of(uri))
            case EmbeddedResourceContentBlock(resource=BlobResourceContents() as blob):
                images.append(_image(blob.blob, blob.mime_type or "", blob.uri))
            case EmbeddedResourceContentBlock(resource=embedded):
                typed.append(name_of(embedded.uri))
                attached.append(f"{name_of(embedded.uri)}:\n{to_code_block(embedded.text)}")
            case AudioContentBlock():
                raise BadInput("audio is not supported: send text or images")
    return PromptMessage("".join(typed), "\n\n".join(attached), tuple(images))


def name_of(uri: str) -> str:
    """Return how a message names a resource: a file as `@PATH:LINES`, others by the address."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    path = unquote(parts.path)
    name = f'@"{path}"' if any(map(str.isspace, path)) else f"@{path}"
    lines = _LINE_FRAGMENT.fullmatch(unquote(parts.fragment))
    if not lines:
        return name
    first, last = lines.groups()
    if last is None or last == first:
        return f"{name}:{first}"
    return f"{name}:{first}-{last}"


def to_code_block(text: str) -> str:
    """Return a Markdown block whose fence does not occur in the text."""
    fence = _CODE_FENCE
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _image(data: str, kind: str, name: str) -> ImageData:
    """Return the image in `data` (base64). Raises `BadInput` if it is not an image."""
    if not kind.startswith("image/"):
        raise BadInput(
            f"{name!r} is {kind or 'of no known type'}: refold takes text and images"
        )
    try:
        return ImageData(base64.b64decode(data, validate=True), kind, name)
    except (binascii.Error, ValueError) as error:
        raise BadInput(f"{name!r} is not valid base64: {error}") from error
