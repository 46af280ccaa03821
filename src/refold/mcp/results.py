"""Converts a server's result to a tool reply: text, images, and notes about omitted parts.

Pure. The limit here bounds the memory for one result. Later, the agent loop shortens what the
model reads, and stores the rest.
"""

import base64
import binascii
import json
from collections.abc import Iterable

import mcp_types as types

from refold.errors import ToolFailed
from refold.tools.contract import ImageData, Reply
from refold.values.namespaces import NAMESPACES_REFUSED, reports_no_namespaces
from refold.values.text import escape_marks, escape_outside

_MAX_RESULT_CHARS = 2_000_000  # in one result
# at the end of a server's error, searched for the reason of the failure
_LAST_CHARS = 10_000
_MAX_IMAGES, _MAX_IMAGE_BYTES = 5, 5 * 1024 * 1024
_IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))


def reply(
    server: str, result: types.CallToolResult, *, no_namespaces: bool = False
) -> Reply:
    """Return the result of a tool call as a reply. Raises `ToolFailed` if it is an error.

    With `no_namespaces`, the server's sandbox forbids namespaces, and an error that results
    from this gets an explanation.
    """
    parts, images = list[str](), list[ImageData]()
    for block in result.content:
        match block:
            case types.ImageContent():
                parts.append(_add_image(block, images))
            case _:
                parts.append(block_text(server, block))
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    text, whole = _shorten(parts)
    if result.is_error and no_namespaces and reports_no_namespaces(text[-_LAST_CHARS:]):
        text = f"{text}\n({NAMESPACES_REFUSED})"
    if result.is_error:
        raise ToolFailed(
            text or f"The MCP server {server} reported a failure without a reason."
        )
    return Reply(text or "(The result is empty.)", images=tuple(images), whole=whole)


def contents(
    server: str, parts: Iterable[types.TextResourceContents | types.BlobResourceContents]
) -> Reply:
    """Return the content of a resource as a reply."""
    text, whole = _shorten([_resource(server, part) for part in parts])
    return Reply(text or "(The resource is empty.)", whole=whole)


def prompt(server: str, messages: Iterable[types.PromptMessage]) -> str:
    """Return the text of a prompt template's messages."""
    texts = (block_text(server, message.content) for message in messages)
    return escape_outside("\n\n".join(texts))


def block_text(server: str, block: types.ContentBlock) -> str:
    """Return one block of a result or a prompt as text; for an image or a sound, a note."""
    match block:
        case types.TextContent():
            return block.text
        case types.EmbeddedResource():
            return _resource(server, block.resource)
        case types.ResourceLink():
            return f"[resource {block.name}: @{server}:{block.uri}]"
        case types.ImageContent() | types.AudioContent():
            size = len(block.data) * 3 // 4  # four characters of base64 are three bytes
            return f"[{block.mime_type}, {size:,} bytes, left out]"


def _resource(
    server: str, resource: types.TextResourceContents | types.BlobResourceContents
) -> str:
    """Return the text of a resource; for binary data, a note that it is left out."""
    if isinstance(resource, types.TextResourceContents):
        return resource.text
    kind = resource.mime_type or "binary data"
    size = len(resource.blob) * 3 // 4  # four characters of base64 are three bytes
    return f"[@{server}:{resource.uri}: {kind}, {size:,} bytes, left out]"


def _add_image(block: types.ImageContent, images: list[ImageData]) -> str:
    """Add the image to `images` if a model can see it. Return a note about it in any case."""
    kind = block.mime_type
    size = len(block.data) * 3 // 4  # four characters of base64 are three bytes
    if kind not in _IMAGE_TYPES or len(images) >= _MAX_IMAGES or size > _MAX_IMAGE_BYTES:
        return f"[{kind}, {size:,} bytes, left out]"
    try:
        images.append(ImageData(base64.b64decode(block.data, validate=True), kind))
    except binascii.Error:
        return f"[{kind} that is not base64, left out]"
    return f"[{kind}, {size:,} bytes]"


def _shorten(parts: Iterable[str]) -> tuple[str, bool]:
    """Join the parts, and cut the middle out of a very long text.

    Return the text, and whether it is complete.
    """
    text = escape_marks("\n".join(parts))
    if len(text) <= _MAX_RESULT_CHARS:
        return text, True
    half = _MAX_RESULT_CHARS // 2
    gap = f"\n[{len(text) - _MAX_RESULT_CHARS:,} characters were left out here]\n"
    return text[:half] + gap + text[-half:], False
