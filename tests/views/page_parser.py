"""Finds elements, attributes and addresses in an HTML page that refold does not write."""

import re
from html.parser import HTMLParser

OWN_ATTRIBUTES: dict[str, set[str]] = {
    "html": {"lang"}, "head": set(), "meta": {"charset", "http-equiv", "content", "name"},
    "title": set(), "style": set(), "body": set(), "a": {"class", "href", "rel"},
    "div": {"class", "tabindex"}, "header": set(), "main": {"id"}, "footer": set(),
    "nav": {"aria-label"}, "section": {"class", "id", "aria-labelledby"}, "dl": {"class"},
    "dt": set(), "dd": set(), "table": set(), "thead": set(), "tbody": set(), "tr": set(),
    "th": {"scope", "class"}, "td": {"class"}, "h1": set(), "h2": {"id"}, "h3": {"id"},
    "h4": set(), "h5": set(), "h6": set(), "p": {"class"}, "time": {"datetime"},
    "details": {"class", "open"}, "summary": set(), "code": {"class"}, "pre": {"class", "tabindex"},
    "span": {"class"}, "ul": {"class"}, "ol": {"start"}, "li": set(), "blockquote": set(),
    "hr": set(), "br": set(), "em": set(), "strong": set(), "s": set(), "figure": set(),
    "figcaption": set(), "img": {"src", "alt"},
}  # fmt: skip
ADDRESS = r"#[A-Za-z0-9-]+|https?://\S+|mailto:\S+"
PICTURE = r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*"
EMPTY = {"meta", "img", "br", "hr"}


class Seen(HTMLParser):
    """The foreign parts of a page, its open elements, its style sheet and its text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.foreign, self.open = list[str](), list[str]()
        self.styles = self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in EMPTY:
            self.open.append(tag)
        if tag not in OWN_ATTRIBUTES:
            self.foreign.append(f"<{tag}>")
            return
        for name, value in attrs:
            if name not in OWN_ATTRIBUTES[tag]:
                self.foreign.append(f"<{tag} {name}>")
            elif name == "href" and not re.fullmatch(ADDRESS, value or ""):
                self.foreign.append(f"<a href={value!r}>")
            elif name == "src" and not re.fullmatch(PICTURE, value or ""):
                self.foreign.append(f"<img src={value!r}>")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)  # to a browser, the slash says nothing

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.foreign.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["style"]:
            self.styles += data
        else:
            self.words += data

    def handle_comment(self, data: str) -> None:
        self.foreign.append("a comment")

    def unknown_decl(self, data: str) -> None:
        self.foreign.append("a declaration")

    def handle_pi(self, data: str) -> None:
        self.foreign.append("an instruction")


def parse_page(html: str) -> Seen:
    seen = Seen()
    seen.feed(html)
    seen.close()
    return seen
