"""Converts a web page to text for a model: decodes its bytes, and converts its format.

`document_text` converts HTML and PDF. The text is marked as coming from outside.
"""

import codecs
import re

from msgspec import Struct

from refold.errors import BadInput, ToolFailed
from refold.tools.contract import Reply
from refold.tools.document_text import html_text, pdf_text
from refold.tools.images import image_data
from refold.tools.legacy_encodings import DISPLAY_NAMES, legacy_encoding
from refold.tools.text_files import decode_text
from refold.values.display import Note
from refold.values.image_files import image_type
from refold.values.printable_names import shorten
from refold.values.text import mark_as_outside

_HTML_TYPES = ("text/html", "application/xhtml+xml")
# The quantifiers are possessive, so that a page of comments alone causes no backtracking.
_HTML_START = re.compile(rb"\s*+(?:<\?xml[^>]*+>\s*+)?(?:<!--(?:(?!-->).)*+-->\s*+)*+"
                     rb"<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)  # fmt: skip
_CHARSET_PATTERN = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE
)
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# How much is shown of a search result.
_MAX_TITLE_CHARS, _MAX_DATE_CHARS = 200, 40
_MAX_URL_CHARS, _MAX_EXCERPT_CHARS = 2_000, 1_500
_MAX_HEAD_BYTES = 4_096  # a page declares its encoding within these
_MIN_BODY_CHARS = 80  # a page with scripts and less text is probably built by them
# the block with title and description
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
# How browsers decode these.
_BROWSER_ENCODINGS = {"iso-8859-1": "windows-1252", "latin-1": "windows-1252", "us-ascii": "windows-1252",
          "ascii": "windows-1252", "gb2312": "gb18030", "gbk": "gb18030"}  # fmt: skip
# Codecs of Python that no page uses, or that are not text encodings.
_NO_CHARSET = (
    "utf_7",
    "idna",
    "punycode",
    "unicode_escape",
    "raw_unicode_escape",
    "undefined",
)
_BY_JAVASCRIPT = (
    "the page has scripts and hardly any text: probably it is made by JavaScript, which is "
    "not run here; look for an API, a feed or another source"
)


class WebPage(Struct, frozen=True):
    """A page as it was received. `url` is the address after all redirects; `kind` is its media
    type, such as "text/html".
    """

    url: str
    kind: str
    charset: str
    content: bytes
    whole: bool = True  # False if the page was cut at the limit
    redirects: tuple[str, ...] = ()
    index: str = ""  # the address of the site's index for language models, if it has one


class WebHit(Struct, frozen=True):
    """A page that a search found. `date` is as the search service writes it, or ""."""

    title: str
    url: str
    text: str
    date: str = ""


class SearchHits(Struct, frozen=True):
    service: str
    hits: tuple[WebHit, ...]


def search_reply(query: str, result: SearchHits) -> Reply:
    """Return the results of a web search, marked as text from outside."""
    count_text = "1 page" if len(result.hits) == 1 else f"{len(result.hits)} pages"
    note = (Note(f"found {count_text} with {result.service}"),)
    if not result.hits:
        return Reply(f"{result.service} found nothing for {query!r}.", note)
    text = "\n".join(f"{n}. {_hit(hit)}" for n, hit in enumerate(result.hits, 1))
    return Reply(mark_as_outside(text, result.service), note)


def _hit(hit: WebHit) -> str:
    """Return a search result as lines: title and date, address, excerpt."""
    date = f" ({_line(hit.date, _MAX_DATE_CHARS)})" if hit.date else ""
    lines = (
        f"{_line(hit.title, _MAX_TITLE_CHARS)}{date}",
        _line(hit.url, _MAX_URL_CHARS),
        _line(hit.text, _MAX_EXCERPT_CHARS),
    )
    return "\n   ".join(filter(None, lines))


def _line(text: str, max_chars: int) -> str:
    return shorten(" ".join(text.split()), max_chars)


def page_reply(page: WebPage) -> Reply:
    """Return the text of a page as a reply. Raises `ToolFailed` if it has no text."""
    note = (
        Note(f"read {page.url}, {page.kind or 'no type'}, {len(page.content):,} bytes"),
    )
    if kind := image_type(page.content):
        return _image(page, kind, note)
    text, oddities = _text(page)
    if page.redirects:
        oddities = (f"redirected from {page.redirects[0]}", *oddities)
    if page.index:
        oddities = (*oddities, f"an index of this site for language models: {page.index}")
    if not page.whole:
        oddities = (f"only the first {len(page.content):,} bytes were read", *oddities)
    about = "".join(f"({oddity})\n" for oddity in oddities)
    return Reply(about + mark_as_outside(text, page.url), note, whole=page.whole)


def _image(page: WebPage, kind: str, note: tuple[Note, ...]) -> Reply:
    """Return an image for the model. Raises `ToolFailed` if it cannot be shown.

    `note` is for the user, and `kind` is the media type.
    """
    about = f"{page.url} is an image, {kind}, {len(page.content):,} bytes."
    try:
        image = image_data(page.content, page.url)
    except BadInput as error:
        raise ToolFailed(f"{about} It cannot be shown: {error}") from error
    return Reply(f"{about} It comes from outside.", note, images=(image,))


def _text(page: WebPage) -> tuple[str, tuple[str, ...]]:
    """Return the text of a page, and clauses about what is unusual about it.

    Raises `ToolFailed` if the page is not text.
    """
    if page.content.startswith(b"%PDF-"):
        if not page.whole:
            raise ToolFailed(
                f"{page.url} is a PDF with more than {len(page.content):,} bytes, which are "
                "not read. Download it with bash, and read the file."
            )
        return pdf_text(page.content, page.url), ("the words of a PDF",)
    begins_as_html = _HTML_START.match(page.content[:_MAX_HEAD_BYTES])
    if page.kind in _HTML_TYPES or (not page.kind and begins_as_html):
        source, oddities = decode(page)
        text = html_text(source, page.url)
        body = _FRONT_MATTER.sub("", text)
        if len(body.strip()) < _MIN_BODY_CHARS and "<script" in source.lower():
            oddities = (*oddities, _BY_JAVASCRIPT)
        return text or "(The page holds no text.)", oddities
    if _is_binary(page):
        raise ToolFailed(
            f"{page.url} is {page.kind or 'binary data'} ({len(page.content):,} bytes), not text."
        )
    return decode(page)


def _is_binary(page: WebPage) -> bool:
    """Return whether a page has no text, by its media type or its bytes."""
    kind = page.kind.partition("/")[0]
    if kind in ("audio", "video", "font", "image") and not page.kind.endswith("+xml"):
        return True
    return not page.charset.startswith("utf-16") and decode_text(page.content) is None


def decode(page: WebPage) -> tuple[str, tuple[str, ...]]:
    """Return the text of a page, and a clause if it is not in the encoding that it declares.

    Without a valid declaration, the encoding is UTF-8 or the most likely encoding.
    """
    content = page.content
    for mark, name in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(name, "replace"), ()
    match = _CHARSET_PATTERN.search(content[:_MAX_HEAD_BYTES])
    charset_in_page = match[1].decode("ascii").lower() if match else ""
    candidates = [name for name in (page.charset, charset_in_page, "utf-8") if name]
    expected = candidates[0]
    for name in candidates:
        text = _decode_as(content, name, whole=page.whole)
        if text is None:
            continue
        if name == expected:
            return text, ()
        return text, (f"it is not {expected}, and was read as {name}",)
    encoding = legacy_encoding(content)
    # Browsers read Latin-1 as windows-1252.
    encoding = "cp1252" if encoding == "latin-1" else encoding
    oddity = f"it is not {expected}, and was read as {DISPLAY_NAMES[encoding]}"
    return content.decode(encoding, "replace"), (oddity,)


def _decode_as(content: bytes, name: str, *, whole: bool) -> str | None:
    """Return the text in the encoding `name`; None if the encoding is unknown or wrong.

    `whole` says that the page was not cut, so its last character must be complete.
    """
    try:
        codec = codecs.lookup(_BROWSER_ENCODINGS.get(name, name))
    except (LookupError, ValueError):
        return None
    # Codecs such as base64 turn bytes into bytes.
    is_text_encoding = getattr(codec, "_is_text_encoding", True)
    if not is_text_encoding or codec.name.replace("-", "_") in _NO_CHARSET:
        return None
    try:
        # A cut page may end within a character.
        return codecs.getincrementaldecoder(codec.name)().decode(content, final=whole)
    except UnicodeDecodeError:
        return None
