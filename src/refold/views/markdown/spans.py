"""Parse the inline Markdown of a finished block and give it styles.

Without styles, the marks stay visible. An entity may stand for any character, so the result is
escaped once more.
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
# At each of these the parser stops and tries its rules.
_STOP_PATTERN = re.compile(r"[\n!#$%&*+\-:<=>@\[\\\]^_`{}~]")
_MAX_PROTOCOL_CHARS = 6  # "https", and what stands before it
_PROTOCOL_PATTERN = re.compile(r"(?<![A-Za-z0-9.+-])https?$", re.IGNORECASE)
_ADDRESS_PATTERN = re.compile(r"://[^\s<>`|]*[^\s<>`|?!.,:;*_~'\"\])}]")
_MAX_OPENERS = 200  # marks for which the parser searches an end
_MAX_STOPS = 1000  # in a block
_BREAK_PATTERN = re.compile(r"<br ?/?>", re.IGNORECASE)
_SAFE_LINK_PATTERN = re.compile(r"(?:https?://|file://|mailto:)[!-~]{1,2000}")
_HOST_PATTERN = re.compile(
    r"(?:[^\W_][\w-]*\.)+[^\W\d_]{2,}|\d+(?:\.\d+){3}|://|@", re.IGNORECASE
)


class SpanOptions(Struct, frozen=True):
    """With `styled`, styles are visible. With `links`, the terminal opens links."""

    styled: bool = True
    links: bool = False


class Spans:
    """Parses the blocks of one text; link definitions apply to later blocks."""

    def __init__(self, options: SpanOptions) -> None:
        self._options = options
        self._parser: MarkdownIt | None = None
        self._known: dict[str, object] = {}

    def parse_paragraph(self, lines: Sequence[str]) -> list[Piece]:
        """Parse a paragraph. Its link definitions stay as written."""
        text = "\n".join(lines)
        if _is_simple(text):
            return [("plain", "\n".join(line.rstrip(" \t") for line in lines))]
        tokens = self._markdown.parse(text, self._known)
        inline = next((token for token in tokens if token.type == "inline"), None)
        if inline is None:
            return [("dim", text)]
        first = inline.map[0] if inline.map else 0
        pieces: list[Piece] = [("dim", f"{line}\n") for line in lines[:first]]
        return [*pieces, *_pieces(inline.children or [], self._options)]

    def parse_phrase(self, text: str, inside: Style = "plain") -> list[Piece]:
        """The text of a heading or a cell."""
        if _is_simple(text):
            return [(inside, text)]
        tokens = self._markdown.parseInline(text, self._known)
        pieces = _pieces(tokens[0].children or [], self._options)
        if inside == "plain":
            return pieces
        return [
            (inside if style in _PLAIN_STYLES else style, words) for style, words in pieces
        ]

    def parse_cell(self, text: str, inside: Style = "plain") -> list[Piece]:
        """As `parse_phrase`, with `<br>` as a line break."""
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


def _is_simple(text: str) -> bool:
    """Whether to skip parsing: no marks, or enough that it would take seconds."""
    if not _SPECIAL_PATTERN.search(text) or sum(map(text.count, "[&<")) > _MAX_OPENERS:
        return True
    return count_stops(text) > _MAX_STOPS


def count_stops(text: str) -> int:
    """The number of places at which the parser stops, which determines its work."""
    return len(_STOP_PATTERN.findall(text))


class _TokenStyler:
    """Turns the tokens of a block into styled pieces."""

    def __init__(self, options: SpanOptions) -> None:
        self._options = options
        self._inside: list[str] = []
        self._link: tuple[int, str, bool] | None = None  # where it began, and its target
        self.pieces: list[Piece] = []

    def add_token(self, token: "Token") -> None:
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
        styles: set[Style] = {_MARK_STYLES[name] for name in self._inside}
        for style in _STYLE_RANK:
            if style in styles:
                return style
        return "plain"

    def _toggle(self, kind: str, markup: str) -> None:
        name, _, way = kind.rpartition("_")
        if name == "s":  # few terminals can strike words out
            self._add_piece("dim", markup)
        else:
            self._add_mark(markup)
        if way == "open":
            self._inside.append(name)
        elif name in self._inside:
            self._inside.remove(name)

    def _add_mark(self, markup: str) -> None:
        if not self._options.styled:
            self._add_piece("plain", markup)

    def _add_piece(self, style: Style, text: str) -> None:
        shown = visible(text).replace("\n", " ")
        if shown:
            self.pieces.append((style, shown))

    def _close_link(self) -> None:
        if self._link is None:
            return
        (start, url, bare), self._link = self._link, None
        words = self.pieces[start:]
        text = "".join(part for _, part in words)
        can = safe_link(url) if self._options.links else ""
        if can:
            self.pieces[start:] = [(Link(can), part) for _, part in words]
        else:
            self.pieces[start:] = [
                ("link" if style in _LINK_STYLES else style, part) for style, part in words
            ]
        if not text.strip():
            self._add_piece("link", url)
        elif bare and "xn--" not in url:
            return
        elif not shows_target(text, url) and (not can or is_misleading(text, url)):
            self._add_piece("dim", f" ({url})")


def _parse_bare_url(state: "StateInline", silent: bool) -> bool:
    """A parser rule: a bare URL is a link, even if it contains marks."""
    if not state.src.startswith("://", state.pos):
        return False
    before = _PROTOCOL_PATTERN.search(state.pending[-_MAX_PROTOCOL_CHARS:])
    rest = _ADDRESS_PATTERN.match(state.src, state.pos) if before else None
    if before is None or rest is None or state.linkLevel:
        return False
    if not silent:
        url = before[0] + rest[0]
        state.pending = state.pending[: -len(before[0])]
        begin = state.push("link_open", "", 1)
        begin.markup, begin.attrs = "autolink", {"href": state.md.normalizeLink(url)}
        state.push("text", "", 0).content = url
        state.push("link_close", "", -1)
    state.pos += len(rest[0])
    return True


def _pieces(tokens: Sequence["Token"], options: SpanOptions) -> list[Piece]:
    walk = _TokenStyler(options)
    for token in tokens:
        walk.add_token(token)
    return walk.pieces


def safe_link(url: str) -> str:
    """`url` if a terminal may open it, else ""."""
    return url if _SAFE_LINK_PATTERN.fullmatch(url) else ""


def shows_target(words: str, url: str) -> bool:
    """Whether the text of a link is its target."""
    text, target = words.strip().rstrip("/"), url.rstrip("/")
    return text in (target, target.removeprefix("mailto:"))


def is_misleading(text: str, url: str) -> bool:
    """Whether the text of a link names another host than the target."""
    if shows_target(text, url) or not _HOST_PATTERN.search(text):
        return False
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return True
    named = text.strip().lower().removeprefix("https://").removeprefix("http://")
    place = re.split(r"[/?#:\s]", named, maxsplit=1)[0]
    return not host or place.removeprefix("www.") != host.removeprefix("www.")
