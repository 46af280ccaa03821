"""Parses and styles the inline Markdown of a finished block.

On a screen without styles, the marks stay visible. The result is escaped once more, because an
entity such as `&#27;` may stand for any character.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from refold.views.escape import visible
from refold.views.styled import Link, Piece, Style

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_INLINE_RULES = (
    "backticks", "emphasis", "strikethrough", "link", "image", "autolink", "entity",
    "escape", "newline", "reference", "balance_pairs", "fragments_join",
)  # fmt: skip
_MARK_STYLES: dict[str, Style] = {"strong": "strong", "em": "emphasis", "s": "dim"}
_STYLE_RANK: tuple[Style, ...] = ("strong", "emphasis", "dim")
_PLAIN_STYLES = ("plain", "strong")
_LINK_STYLES = ("plain", "strong", "emphasis")
_SPECIAL_PATTERN = re.compile(r"[\\`*_\[\]<&~!]|://")
# The parser stops at each of these characters and tries its rules.
_STOP_PATTERN = re.compile(r"[\n!#$%&*+\-:<=>@\[\\\]^_`{}~]")
_MAX_PROTOCOL_CHARS = 6  # "https", and the text before it
_PROTOCOL_PATTERN = re.compile(r"(?<![A-Za-z0-9.+-])https?$", re.IGNORECASE)
_ADDRESS_PATTERN = re.compile(r"://[^\s<>`|]*[^\s<>`|?!.,:;*_~'\"\])}]")
_MAX_OPENERS = 200  # opening marks for which the parser searches the closing ones
_MAX_STOPS = 1000  # stops of the parser in one block
_BREAK_PATTERN = re.compile(r"<br ?/?>", re.IGNORECASE)
_SAFE_LINK_PATTERN = re.compile(r"(?:https?://|file://|mailto:)[!-~]{1,2000}")
_HOST_PATTERN = re.compile(
    r"(?:[^\W_][\w-]*\.)+[^\W\d_]{2,}|\d+(?:\.\d+){3}|://|@", re.IGNORECASE
)


class SpanOptions(Struct, frozen=True):
    """What the screen can show: `styled` text, and `links` that the terminal can open."""

    styled: bool = True
    links: bool = False


class Spans:
    """Parses the blocks of one text, in order. A link definition applies to later blocks."""

    def __init__(self, options: SpanOptions) -> None:
        self._options = options
        self._parser: MarkdownIt | None = None
        self._link_definitions: dict[str, object] = {}

    def parse_paragraph(self, lines: Sequence[str]) -> list[Piece]:
        """Return the styled pieces of a paragraph. Link definitions in it stay visible."""
        text = "\n".join(lines)
        if _stays_plain(text):
            return [("plain", "\n".join(line.rstrip(" \t") for line in lines))]
        tokens = self._markdown.parse(text, self._link_definitions)
        inline = next((token for token in tokens if token.type == "inline"), None)
        if inline is None:
            return [("dim", text)]
        definition_count = inline.map[0] if inline.map else 0  # lines that define links
        pieces: list[Piece] = [("dim", f"{line}\n") for line in lines[:definition_count]]
        return [*pieces, *_style_tokens(inline.children or [], self._options)]

    def parse_phrase(self, text: str, inside: Style = "plain") -> list[Piece]:
        """Return the styled pieces of a heading or a cell.

        `inside` is the style of unmarked text, and also of text whose mark has no style of its own.
        """
        if _stays_plain(text):
            return [(inside, text)]
        tokens = self._markdown.parseInline(text, self._link_definitions)
        pieces = _style_tokens(tokens[0].children or [], self._options)
        if inside == "plain":
            return pieces
        return [
            (inside if style in _PLAIN_STYLES else style, words) for style, words in pieces
        ]

    def parse_cell(self, text: str, inside: Style = "plain") -> list[Piece]:
        """Return the styled pieces of a cell, as `parse_phrase` does; `<br>` is a line break."""
        return [
            (style, _BREAK_PATTERN.sub("\n", words))
            for style, words in self.parse_phrase(text, inside)
        ]

    @property
    def _markdown(self) -> "MarkdownIt":
        if self._parser is None:
            from markdown_it import MarkdownIt

            self._parser = MarkdownIt("zero").enable(_INLINE_RULES)
            self._parser.inline.ruler.after("text", "address", _parse_bare_url)
        return self._parser


def _stays_plain(text: str) -> bool:
    """Whether the text is not parsed: it has no marks, or too many to parse in time."""
    if not _SPECIAL_PATTERN.search(text):
        return True
    opener_count = sum(map(text.count, "[&<"))
    return opener_count > _MAX_OPENERS or count_stops(text) > _MAX_STOPS


def count_stops(text: str) -> int:
    """Return the number of characters at which the parser stops: parsing takes longer with
    more.
    """
    return len(_STOP_PATTERN.findall(text))


class _TokenStyler:
    """Converts the tokens of a block to styled pieces."""

    def __init__(self, options: SpanOptions) -> None:
        self._options = options
        self._inside: list[str] = []
        # Of the open link: the index of its first piece, its target, whether it is a bare URL.
        self._link: tuple[int, str, bool] | None = None
        self.pieces: list[Piece] = []

    def add_token(self, token: "Token") -> None:
        """Add the pieces of a token, or open or close the mark that it stands for."""
        match token.type:
            case "text" | "text_special":
                self._add_piece(self._style, token.content)
            case "softbreak" | "hardbreak":
                self.pieces.append(("plain", "\n"))
            case "code_inline":
                self._add_mark(token.markup)
                self._add_piece("code", token.content)
                self._add_mark(token.markup)
            case "link_open":
                target = str(token.attrGet("href") or "")
                self._link = (len(self.pieces), target, token.markup == "autolink")
            case "link_close":
                self._close_link()
            case "image":
                self._add_piece("dim", f"![{token.content}]({token.attrGet('src')})")
            case kind if kind.endswith(("_open", "_close")):
                self._toggle(kind, token.markup)
            case _:
                self._add_piece(self._style, token.content)

    @property
    def _style(self) -> Style:
        """The style of the most important open mark; "plain" if no mark with a style is open."""
        styles: set[Style] = {_MARK_STYLES[name] for name in self._inside}
        for style in _STYLE_RANK:
            if style in styles:
                return style
        return "plain"

    def _toggle(self, kind: str, markup: str) -> None:
        """Open or close a mark. `kind` is a kind of token, such as "em_open"."""
        name, _, change = kind.rpartition("_")
        if name == "s":  # few terminals can strike text through, so the mark is shown
            self._add_piece("dim", markup)
        else:
            self._add_mark(markup)
        if change == "open":
            self._inside.append(name)
        elif name in self._inside:
            self._inside.remove(name)

    def _add_mark(self, markup: str) -> None:
        if not self._options.styled:
            self._add_piece("plain", markup)

    def _add_piece(self, style: Style, text: str) -> None:
        """Add text as a piece, escaped and on one line. Empty text is not added."""
        shown = visible(text).replace("\n", " ")
        if shown:
            self.pieces.append((style, shown))

    def _close_link(self) -> None:
        """End the open link, and print its target after the text if the user must see it.

        The target is left out if the text shows it, or if the terminal opens the link and the
        text does not mislead.
        """
        if self._link is None:
            return
        start, url, is_bare = self._link
        self._link = None
        pieces = self.pieces[start:]
        text = "".join(part for _, part in pieces)
        # What the terminal opens on a click; "" if it opens nothing.
        target = safe_link(url) if self._options.links else ""
        if target:
            self.pieces[start:] = [(Link(target), part) for _, part in pieces]
        else:
            self.pieces[start:] = [
                ("link" if style in _LINK_STYLES else style, part) for style, part in pieces
            ]
        if not text.strip():
            self._add_piece("link", url)
            return
        has_encoded_host = "xn--" in url  # it looks different in the text, so it is shown
        if is_bare and not has_encoded_host:
            return
        if shows_target(text, url):
            return
        if not target or is_misleading(text, url):
            self._add_piece("dim", f" ({url})")


def _parse_bare_url(state: "StateInline", silent: bool) -> bool:
    """Make a bare URL a link, even if it contains marks. This is a rule of the parser.

    Return whether the "://" of a URL is at the current position. The protocol before it was
    read already, and is taken from the pending text. If `silent`, add no tokens.
    """
    if state.linkLevel or not state.src.startswith("://", state.pos):
        return False
    protocol = _PROTOCOL_PATTERN.search(state.pending[-_MAX_PROTOCOL_CHARS:])
    if protocol is None:
        return False
    rest = _ADDRESS_PATTERN.match(state.src, state.pos)
    if rest is None:
        return False
    if not silent:
        url = protocol[0] + rest[0]
        state.pending = state.pending[: -len(protocol[0])]
        begin = state.push("link_open", "", 1)
        begin.markup, begin.attrs = "autolink", {"href": state.md.normalizeLink(url)}
        state.push("text", "", 0).content = url
        state.push("link_close", "", -1)
    state.pos += len(rest[0])
    return True


def _style_tokens(tokens: Sequence["Token"], options: SpanOptions) -> list[Piece]:
    """Return the styled pieces of parsed inline Markdown."""
    walk = _TokenStyler(options)
    for token in tokens:
        walk.add_token(token)
    return walk.pieces


def safe_link(url: str) -> str:
    """Return `url` if a terminal may open it; otherwise ""."""
    return url if _SAFE_LINK_PATTERN.fullmatch(url) else ""


def shows_target(words: str, url: str) -> bool:
    """Whether the text `words` of a link shows the address of the link."""
    text, target = words.strip().rstrip("/"), url.rstrip("/")
    return text in (target, target.removeprefix("mailto:"))


def is_misleading(text: str, url: str) -> bool:
    """Whether the text of a link names one host, and the link leads to another.

    A leading "www." makes no difference. A text that names no host is not misleading.
    """
    if shows_target(text, url) or not _HOST_PATTERN.search(text):
        return False
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return True
    if not host:
        return True
    address = text.strip().lower().removeprefix("https://").removeprefix("http://")
    shown_host = re.split(r"[/?#:\s]", address, maxsplit=1)[0]
    return shown_host.removeprefix("www.") != host.removeprefix("www.")
