"""The Markdown of an answer as HTML. What would load, run or lead astray stays text.

HTML in it is text, pictures of it are links, and links lead to the web or to a mailbox
only. `markdown-it` makes the rest; headings are set below those of the page.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from refold.views.escape import visible
from refold.views.export.html.code import Highlighted, code
from refold.views.export.html.markup import Markup

if TYPE_CHECKING:
    from markdown_it.token import Token

_SCHEMES = ("http", "https", "mailto")
_BELOW = 3  # of the headings of the page
_LONGEST = 200_000  # characters; nobody reads more as prose

Prose = Callable[[str], Markup]


def prose(highlighted: Highlighted) -> Prose:
    """What makes HTML of Markdown, its code by `highlighted`."""
    from markdown_it import MarkdownIt

    def block(content: str, language: str, attributes: str) -> str:
        return code(highlighted(content, language))

    made = MarkdownIt("commonmark", {"html": False, "highlight": block})
    made.enable(["table", "strikethrough"]).disable("image")
    made.validateLink = _leads_outside

    def html(words: str) -> Markup:
        shown = visible(words)
        if len(shown) > _LONGEST:
            return code(highlighted(shown, ""))
        tokens = made.parse(shown)
        _tame(tokens)
        html = str(made.renderer.render(tokens, made.options, {}))
        # Only the renderer writes these tags: those of the text are escaped by now.
        html = html.replace("<table>", '<div class="scroll" tabindex="0"><table>')
        return Markup(html.replace("</table>", "</table></div>"))

    return html


def _leads_outside(url: str) -> bool:
    try:
        found = urlsplit(url)
    except ValueError:
        return False
    return found.scheme.lower() in _SCHEMES and url.isprintable()


def _tame(tokens: Sequence["Token"]) -> None:
    for token in tokens:
        if token.tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            token.tag = f"h{min(int(token.tag[1]) + _BELOW, 6)}"
        if token.type == "fence":
            token.attrs = {}
        if token.type == "link_open":
            token.attrs = {"href": str(token.attrs["href"]), "rel": "noreferrer noopener"}
        style = str(token.attrs.pop("style", ""))
        if style.startswith("text-align:"):
            token.attrs["class"] = f"to-{style.removeprefix('text-align:')}"
        if token.children:
            _tame(token.children)
