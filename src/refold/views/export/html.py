"""Exports a session as an HTML page: its facts, a table of its turns, and then its blocks.

The page has no scripts and no external resources, and its content security policy forbids both.
So nothing that a model or a tool has written can run or load anything.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from refold._version import __version__
from refold.journal.state.session_tree import Node
from refold.values.messages import Image
from refold.values.usage import Spent, Usage
from refold.views.escape import visible
from refold.views.export.content import (
    ExportedSession,
    ExportOptions,
    Turn,
    export_session,
    sender_name,
)
from refold.views.export.html_parts import (
    CallStyle,
    Highlight,
    Markup,
    call_markup,
    code,
    create_highlighter,
    element,
    join_markup,
)
from refold.views.number_format import duration, money, tokens
from refold.views.screen.blocks import (
    AnswerBlock,
    Block,
    CallBlock,
    DroppedBlock,
    MessageBlock,
    NoticeBlock,
    ThinkingBlock,
    TurnEndBlock,
    turn_rows,
)
from refold.views.screen.conversation import is_from_child
from refold.views.styled import Line

if TYPE_CHECKING:
    from markdown_it.token import Token

CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_MIN_TABLE_TURNS = 3  # fewer turns are not listed in a table
_MIN_FOLDED_TURNS = 20  # a table of fewer turns is not folded
_MAX_TIME_SECONDS = 253_402_300_799  # the end of the year 9999
_MAX_IMAGE_BYTES = 8_000_000
_LINK_SCHEMES = ("http", "https", "mailto")
_HEADING_OFFSET = 3  # puts the headings of a response below those of the page
_MAX_PARSED_CHARS = 200_000  # longer text is shown as it is

Prose = Callable[[str], Markup]


def create_prose_renderer(highlight: Highlight) -> Prose:
    """Return a function that converts the Markdown of a response to HTML.

    `highlight` highlights code. HTML in the Markdown becomes plain text and images become
    links; links may lead only to web pages and mail addresses. Headings are placed below those
    of the page.
    """
    from markdown_it import MarkdownIt

    def highlight_code(content: str, language: str, attributes: str) -> str:
        return code(highlight(content, language))

    parser = MarkdownIt("commonmark", {"html": False, "highlight": highlight_code})
    parser.enable(["table", "strikethrough"]).disable("image")
    parser.validateLink = _is_web_or_mail_link

    def html(text: str) -> Markup:
        """Return Markdown as HTML. Text that is too long to parse is shown as code."""
        shown = visible(text)
        if len(shown) > _MAX_PARSED_CHARS:
            return code(highlight(shown, ""))
        tokens = parser.parse(shown)
        _restrict_tokens(tokens)
        rendered = str(parser.renderer.render(tokens, parser.options, {}))
        # Only the renderer wrote these tags, because tags in the text are escaped.
        rendered = rendered.replace("<table>", '<div class="scroll" tabindex="0"><table>')
        return Markup(rendered.replace("</table>", "</table></div>"))

    return html


def _is_web_or_mail_link(url: str) -> bool:
    """Return whether the link may be opened: it is valid, printable and of an allowed scheme."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme.lower() in _LINK_SCHEMES and url.isprintable()


def _restrict_tokens(tokens: Sequence["Token"]) -> None:
    """Change the parsed Markdown in place.

    Headings get a lower level, and only safe attributes stay.
    """
    for token in tokens:
        if token.tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            token.tag = f"h{min(int(token.tag[1]) + _HEADING_OFFSET, 6)}"
        if token.type == "fence":
            token.attrs = {}
        if token.type == "link_open":
            token.attrs = {"href": str(token.attrs["href"]), "rel": "noreferrer noopener"}
        style = str(token.attrs.pop("style", ""))
        if style.startswith("text-align:"):
            token.attrs["class"] = f"to-{style.removeprefix('text-align:')}"
        if token.children:
            _restrict_tokens(token.children)


def page(node: Node, options: ExportOptions) -> Iterator[str]:
    """Yield the HTML page in pieces, in order."""
    session = export_session(node, options)
    yield _head(session.title)
    yield '<body>\n<a class="skip" href="#conversation">Skip to the conversation</a>\n<div class="page">\n'
    yield element("header", element("h1", session.title), _facts(session)) + "\n"
    if len(session.proper_turns) >= _MIN_TABLE_TURNS:
        yield _table(session) + "\n"
    yield '<main id="conversation">\n'
    highlight = create_highlighter()
    renderer = _PageRenderer(options, create_prose_renderer(highlight), highlight)
    for turn in session.turns:
        yield renderer.turn(session, turn, "turn") + "\n"
    for child in session.orphan_sessions:
        yield renderer.child(child, "lost") + "\n"
    footer = f"Written by refold {__version__}. This page loads nothing and runs nothing."
    yield f"</main>\n{element('footer', footer)}\n</div>\n</body>\n</html>\n"


class _PageRenderer(Struct):
    """Makes the HTML elements of turns, blocks and subagents."""

    options: ExportOptions
    prose: Prose
    highlight: Highlight

    def turn(
        self, session: ExportedSession, turn: Turn, prefix: str, level: int = 2
    ) -> Markup:
        """Return the HTML element of a turn. `prefix` makes the id of the element unique in the
        page.
        """
        name = f"{prefix}-{turn.number}"
        blocks = self._blocks(session, turn, name)
        if not turn.number:  # what followed the last turn
            return element("section", *blocks, class_="turn", id=name)
        title = element(
            f"h{level}", f"Turn {turn.number}", self._time(turn.at), id=f"{name}-title"
        )
        end = [_turn_end(turn.over)] if turn.over else []
        return element(
            "section", title, *blocks, *end,
            class_="turn", id=name, aria_labelledby=f"{name}-title",
        )  # fmt: skip

    def child(self, session: ExportedSession, prefix: str) -> Markup:
        """Return a subagent as an element that the reader can unfold."""
        label = element("span", session.title, class_="label")
        end = session.node.child.status if session.node.child else ""
        summary = element("summary", label, element("span", end, class_="took"))
        name = f"{prefix}-{session.node.name}"
        turns = [self.turn(session, turn, name, level=3) for turn in session.turns]
        lost = [self.child(orphan, name) for orphan in session.orphan_sessions]
        return element("details", summary, _facts(session), *turns, *lost, class_="child")

    def _blocks(self, session: ExportedSession, turn: Turn, name: str) -> Iterator[Markup]:
        """Yield the HTML elements of the blocks, and the name of the model wherever it changes."""
        model = ""
        for block in turn.blocks:
            if isinstance(block, AnswerBlock) and block.model != model:
                model = block.model
                yield element("p", model, class_="by")
            yield self._block(block, session, turn, name)

    def _block(
        self, block: Block, session: ExportedSession, turn: Turn, name: str
    ) -> Markup:
        """Return the HTML element of a block. `name` makes ids in it unique."""
        match block:
            case MessageBlock():
                return self._message(block, session)
            case AnswerBlock(text=text, partial=partial):
                cut = [element("p", "(cut off here)", class_="dim")] if partial else []
                words = element("div", self.prose(text), class_="words")
                return element("div", words, *cut, class_="said")
            case DroppedBlock(text=text):
                words = element("div", self.prose(text), class_="words")
                mark = element("p", f"({block.mark})", class_="dim")
                return element(
                    "div", *([words] if text.strip() else []), mark, class_="said"
                )
            case ThinkingBlock(text=text):
                summary = element("summary", element("span", "thought", class_="label"))
                inside = element("div", element("p", text), class_="inside")
                return element("details", summary, inside, class_="thought")
            case CallBlock():
                return self._call_section(block, session, turn, name)
            case NoticeBlock(line=line):
                return element("p", _line_markup(line), class_="news")
            case TurnEndBlock():
                return _turn_end(block)

    def _message(self, block: MessageBlock, session: ExportedSession) -> Markup:
        """Return a message of the user, or the report of a subagent, which is folded."""
        sender = element("p", sender_name(block.sender), class_="by")
        images = [
            image_element(image, self.options.image(session.node, image))
            for image in block.images
        ]
        text = block.user_text
        if is_from_child(block.sender):
            summary = element("summary", element("span", "its report", class_="label"))
            inside = element("div", self.prose(text), class_="inside words")
            return element(
                "div", sender, element("details", summary, inside), class_="said"
            )
        paragraph = element("p", text, class_="text")
        return element("div", sender, paragraph, *images, class_="said heard")

    def _call_section(
        self, block: CallBlock, session: ExportedSession, turn: Turn, name: str
    ) -> Markup:
        """Return a call and the calls that its code made, with the subagents of all these."""
        nested = turn.within.get(block.call.id, ())
        call_style = CallStyle(session.node.view.session.directory, self.highlight)
        nested_calls = [
            call_markup(nested_block, self.options.label(nested_block.call), call_style)
            for nested_block in nested
        ]
        images = [
            image_element(image, self.options.image(session.node, image))
            for image in block.images
        ]
        label = self.options.label(block.call)
        call = call_markup(block, label, call_style, (*images, *nested_calls))
        children = (
            self.child(child, name)
            for caller in (block, *nested)
            for child in session.children.get(caller.call.id, ())
        )
        return join_markup(call, *children)

    def _time(self, moment: float) -> Markup:
        """Return a time as an element; empty markup if `moment` is 0 or not a possible time."""
        if not 0 < moment < _MAX_TIME_SECONDS:
            return Markup()
        exact = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return element("time", self.options.when(moment), datetime=exact)


def _head(title: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"{element('title', title)}\n<style>\n{style_sheet()}</style>\n</head>\n"
    )


def style_sheet() -> str:
    """Return the style sheet, which has light and dark colours, and rules for paper and phones."""
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def _facts(session: ExportedSession) -> Markup:
    rows = [
        join_markup(element("dt", name), element("dd", value))
        for name, value in session.facts
    ]
    return element("dl", *rows, class_="facts")


def _table(session: ExportedSession) -> Markup:
    """Return a table with a row for each turn."""
    heads = [
        element("th", "turn", scope="col"),
        element("th", "asked", scope="col"),
        element("th", "calls", scope="col", class_="number wide"),
        element("th", "ended", scope="col", class_="wide"),
        element("th", "took", scope="col", class_="number wide"),
        element("th", "tokens", scope="col", class_="number wide"),
        element("th", "cost", scope="col", class_="number"),
    ]
    rows = [_row(turn) for turn in session.proper_turns]
    table = element(
        "table", element("thead", element("tr", *heads)), element("tbody", *rows)
    )
    scroll = element("div", table, class_="scroll", tabindex="0")
    if len(rows) <= _MIN_FOLDED_TURNS:
        inside = (element("h2", "Turns"), scroll)
    else:
        label = element("span", f"{len(rows)} turns", class_="label")
        inside = (element("details", element("summary", label), scroll, class_="turns"),)
    return element("nav", *inside, aria_label="Turns")


def _row(turn: Turn) -> Markup:
    """Return the row of a turn in the table of turns."""
    end = turn.over
    spent = end.spent if end else Spent()
    used = tokens(spent.usage.input + spent.usage.output) if spent.usage != Usage() else ""
    cells = [
        element("td", f"{turn.number}", class_="number"),
        element(
            "td", element("a", turn.title, href=f"#turn-{turn.number}"), class_="title"
        ),
        element("td", f"{turn.calls or ''}", class_="number wide"),
        element("td", end.outcome.replace("_", " ") if end else "runs", class_="wide"),
        element("td", duration(end.seconds) if end else "", class_="number wide"),
        element("td", used, class_="number wide"),
        element("td", money(spent), class_="number"),
    ]
    return element("tr", *cells)


def _turn_end(end: TurnEndBlock) -> Markup:
    rows = [element("p", _line_markup(line)) for line in turn_rows(end)]
    return element("div", *rows, class_="over")


def _line_markup(line: Line) -> Markup:
    """Return a line as markup, with only the styles "good", "bad" and "warn"."""
    parts: list[Markup | str] = []
    for style, text in line:
        if isinstance(style, str) and style in ("good", "bad", "warn"):
            parts.append(element("span", text, class_=style))
        else:
            parts.append(text)
    return join_markup(*parts)


def image_element(image: Image, content: bytes | None) -> Markup:
    """Return an element with the bytes of the image in it.

    The bytes also decide the type of the image. SVG is refused, because it may contain
    scripts.
    """
    name = image.name or "image"
    kind = _media_type(content or b"")
    problem = ""
    if content is None:
        problem = "gone"
    elif not kind:
        problem = "not an image"
    elif len(content) > _MAX_IMAGE_BYTES:
        problem = "too large"
    if content is None or problem:
        return element("p", f"[image {name}: {problem}]", class_="dim")
    data = f"data:{kind};base64,{b64encode(content).decode()}"
    # `element` cannot make an element without an end tag, but it escapes the text for `alt`.
    alt = element("i", name).removeprefix("<i>").removesuffix("</i>").replace("\n", " ")
    shown = Markup(f'<img src="{data}" alt="{alt}">')
    return element("figure", shown, element("figcaption", join_markup(name)))


def _media_type(content: bytes) -> str:
    """Return the media type of an image by its first bytes; "" if it is unknown."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return ""
