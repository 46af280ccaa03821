"""Pictures inside the page: only what is one, by its first bytes, and no SVG, which is a program."""

from base64 import b64encode

from refold.values.messages import Image
from refold.views.export.html.markup import Markup, element, joined

_LARGEST = 8_000_000  # bytes


def picture(image: Image, content: bytes | None) -> Markup:
    name = image.name or "picture"
    kind = _kind(content or b"")
    if content is None or not kind or len(content) > _LARGEST:
        why = "gone" if content is None else "too large" if kind else "no picture"
        return element("p", f"[picture {name}: {why}]", class_="dim")
    data = f"data:{kind};base64,{b64encode(content).decode()}"
    # An element without an end, so it is not made by `element`; what is in it is.
    alt = element("i", name).removeprefix("<i>").removesuffix("</i>").replace("\n", " ")
    shown = Markup(f'<img src="{data}" alt="{alt}">')
    return element("figure", shown, element("figcaption", joined(name)))


def _kind(content: bytes) -> str:
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return ""
