"""Code with its parts named for colours, and diffs by their lines, as HTML."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from refold.views.escape import visible
from refold.views.export.html.markup import Markup, element, joined, text

if TYPE_CHECKING:
    from pygments.lexer import Lexer

_LONGEST = 50_000  # characters; more is shown without colours
_LONG = 30  # lines; more scroll within their box
_DIFF = {"+": "added", "-": "gone", "@": "hunk", "\\": "dim"}
# The few kinds that have a colour of their own, by the short names that pygments has.
_NAMES = ("nf", "nc", "nd", "nt", "na", "nb", "fm")
_CHANGES = ("gi", "gd", "gh", "gu")

Highlighted = Callable[[str, str], Markup]


class _Kinds(Protocol):
    """Which languages there are, as pygments has it."""

    def values(self) -> Sequence[tuple[str, str, tuple[str, ...], object, object]]: ...


def code(shown: Markup) -> Markup:
    """A block of code."""
    return element("pre", element("code", shown))


def boxed(shown: Markup, content: str, kind: str = "") -> Markup:
    """Long ones scroll; a box that scrolls can be reached by the keyboard."""
    long = {"tabindex": "0"} if content.count("\n") > _LONG else {}
    classes = " ".join(filter(None, (kind, "long" if long else "")))
    named = {"class_": classes} if classes else {}
    return element("pre", element("code", shown), **named, **long)


def diff(content: str) -> Markup:
    """The lines of a unified diff."""
    rows = content.rstrip("\n").split("\n")
    shown = [element("span", row + "\n", class_=_DIFF.get(row[:1], "same")) for row in rows]
    return boxed(joined(*shown), content, "diff")


def highlighting() -> Highlighted:
    """What makes HTML of code; of a language that nobody knows it is plain."""
    known = dict[str, "Lexer | None"]()

    def highlighted(content: str, language: str) -> Markup:
        content, language = visible(content), language.lower()
        if not language or len(content) > _LONGEST:
            return text(content)
        if language not in known:
            known[language] = _lexer(language)
        lexer = known[language]
        return joined(*_spans(content, lexer)) if lexer else text(content)

    return highlighted


def _spans(content: str, lexer: "Lexer") -> list[Markup]:
    from pygments.token import STANDARD_TYPES

    made = list[Markup]()
    for kind, said in lexer.get_tokens(content):
        colour = _colour(STANDARD_TYPES.get(kind, ""))
        # Our own classes, so that no kind is taken for one of the page's.
        made.append(element("span", said, class_=f"k-{colour}") if colour else text(said))
    return made


def _lexer(language: str) -> "Lexer | None":
    from pygments import lexers

    kinds = cast(_Kinds, lexers.LEXERS)  # pyright: ignore[reportUnknownMemberType] - untyped
    if not any(language in aliases for _, _, aliases, _, _ in kinds.values()):
        return None  # what other packages bring is not looked for: that takes long
    return lexers.get_lexer_by_name(language, stripnl=False, ensurenl=False)  # pyright: ignore[reportUnknownMemberType] - untyped


def _colour(short: str) -> str:
    if short in _NAMES:
        return "n"
    if short in _CHANGES:
        return short
    return short[:1] if short[:1] in ("k", "s", "m", "c") else ""
