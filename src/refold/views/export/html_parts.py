"""Makes parts of the exported HTML page: elements, highlighted code, diffs, and calls.

HTML is made only by `element`, so text never becomes markup by mistake: a `Markup` is HTML, and
any other string is escaped. Names of tags and attributes are never taken from text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Struct

from refold.values.control import Progress
from refold.values.display import Checklist, Diff, Note, Output, Shown
from refold.values.path_names import relative_name
from refold.views.escape import escape_to_one_line, visible
from refold.views.export.content import argument_items, call_outcome, duration_text
from refold.views.screen.blocks import CallBlock

if TYPE_CHECKING:
    from pygments.lexer import Lexer


class Markup(str):
    """A string that is HTML already, so it is not escaped again."""

    __slots__ = ()


def text(content: str) -> Markup:
    """Return the text escaped for HTML, with invisible characters made visible."""
    return Markup(escape(visible(content), quote=True))


def element(tag: str, *content: str, **attributes: str) -> Markup:
    """Return an HTML element with this content. Strings that are not `Markup` are escaped.

    Write the attributes `class` and `for` as `class_` and `for_`, and a hyphen in a name as an
    underscore.
    """
    attributes_text = ""
    for name, value in attributes.items():
        html_name = name.rstrip("_").replace("_", "-")
        html_value = escape(escape_to_one_line(value), quote=True)
        attributes_text += f' {html_name}="{html_value}"'
    inner = "".join(part if isinstance(part, Markup) else text(part) for part in content)
    return Markup(f"<{tag}{attributes_text}>{inner}</{tag}>")


def join_markup(*content: str) -> Markup:
    """Return the content as one piece of HTML. Strings that are not `Markup` are escaped."""
    return Markup(
        "".join(part if isinstance(part, Markup) else text(part) for part in content)
    )


_MAX_HIGHLIGHTED_CHARS = 50_000  # longer code is shown without colours
_MIN_SCROLLED_LINES = 30  # longer code scrolls in its own box
_DIFF_CLASSES = {"+": "added", "-": "gone", "@": "hunk", "\\": "dim"}
# Token kinds by pygments' short names: names, and lines of a diff.
_NAME_KINDS = ("nf", "nc", "nd", "nt", "na", "nb", "fm")
_CHANGE_KINDS = ("gi", "gd", "gh", "gu")

Highlight = Callable[[str, str], Markup]


class _Kinds(Protocol):
    """The part of pygments' table of lexers that is used here: a row for each language."""

    def values(self) -> Sequence[tuple[str, str, tuple[str, ...], object, object]]:
        """Return for each language: module, name, aliases, file patterns and media types."""
        ...


def code(markup: Markup) -> Markup:
    """Return a block of code."""
    return element("pre", element("code", markup))


def code_box(markup: Markup, content: str, kind: str = "") -> Markup:
    """Return code in a box. If the code is long, the box scrolls and can get the keyboard
    focus.
    """
    is_long = content.count("\n") > _MIN_SCROLLED_LINES
    classes = " ".join(filter(None, (kind, "long" if is_long else "")))
    attributes = {"class_": classes} if classes else {}
    if is_long:
        attributes["tabindex"] = "0"
    return element("pre", element("code", markup), **attributes)


def diff(content: str) -> Markup:
    """Return a unified diff, line by line."""
    rows = content.rstrip("\n").split("\n")
    shown = [
        element("span", row + "\n", class_=_DIFF_CLASSES.get(row[:1], "same"))
        for row in rows
    ]
    return code_box(join_markup(*shown), content, "diff")


def create_highlighter() -> Highlight:
    """Return a function that highlights code. It returns code of an unknown language as plain
    text.
    """
    lexers = dict[str, "Lexer | None"]()  # by language

    def highlight(content: str, language: str) -> Markup:
        """Return code with colours, or without if it is long or its language is unknown."""
        content, language = visible(content), language.lower()
        if not language or len(content) > _MAX_HIGHLIGHTED_CHARS:
            return text(content)
        if language not in lexers:
            lexers[language] = _lexer(language)
        lexer = lexers[language]
        return join_markup(*_spans(content, lexer)) if lexer else text(content)

    return highlight


def _spans(content: str, lexer: "Lexer") -> list[Markup]:
    """Return the tokens of code. A token that has a colour is in a span with its class."""
    from pygments.token import STANDARD_TYPES

    spans = list[Markup]()
    for kind, token_text in lexer.get_tokens(content):
        colour = _colour_class(STANDARD_TYPES.get(kind, ""))
        if colour:
            # The prefix keeps these class names apart from the other ones of the page.
            spans.append(element("span", token_text, class_=f"k-{colour}"))
        else:
            spans.append(text(token_text))
    return spans


def _lexer(language: str) -> "Lexer | None":
    """Return the lexer of pygments for a language, or None."""
    from pygments import lexers

    kinds = cast(_Kinds, lexers.LEXERS)  # pyright: ignore[reportUnknownMemberType] - untyped
    if not any(language in aliases for _, _, aliases, _, _ in kinds.values()):
        return None  # plug-ins are not searched, because that is slow
    return lexers.get_lexer_by_name(language, stripnl=False, ensurenl=False)  # pyright: ignore[reportUnknownMemberType] - untyped


def _colour_class(short: str) -> str:
    """Return the CSS class for a kind of token, without its prefix; "" if it has no colour.

    `short` is the short name that pygments gives the kind.
    """
    if short in _NAME_KINDS:
        return "n"
    if short in _CHANGE_KINDS:
        return short
    return short[:1] if short[:1] in ("k", "s", "m", "c") else ""


_TODO_LABELS: Mapping[Progress, str] = {
    "pending": "open", "in_progress": "at work", "done": "done", "cancelled": "left out",
}  # fmt: skip
_TOOL_LANGUAGES = {"bash": "bash", "python": "python"}
_MAX_INLINE_CHARS = 200  # longer arguments do not share a line with their name


class CallStyle(Struct, frozen=True):
    """How calls are drawn. Paths are shown relative to `directory`."""

    directory: str
    highlight: Highlight


def call_markup(
    block: CallBlock, label: str, call_style: CallStyle, inside: Sequence[Markup] = ()
) -> Markup:
    """Return a call that the reader can unfold.

    `inside` are its images, and the calls that its code made.
    """
    outcome = call_outcome(block)
    outcome_class = "good" if outcome == "done" else "bad"
    if block.stage not in ("done", "failed"):
        outcome_class = "warn"
    summary = element(
        "summary",
        element("code", escape_to_one_line(label), class_="label"),
        element("span", outcome, class_=f"stage {outcome_class}"),
        element("span", duration_text(block), class_="took"),
    )
    content = element("div", *_call_content(block, call_style), *inside, class_="inside")
    # Calls that changed files are unfolded, because most readers look for them.
    opened = {"open": ""} if _has_diff(block) else {}
    return element("details", summary, content, **opened)


def _call_content(block: CallBlock, call_style: CallStyle) -> Iterator[Markup]:
    """Yield a call's arguments, the question about it, and its result.

    If the result has a diff, the arguments are folded below the diff. The text that the model
    read is folded if the user saw the result in another form, and left out if the user saw an
    output.
    """
    arguments = list(_arguments(block, call_style))
    has_diff = _has_diff(block)
    if not has_diff:
        yield element("p", "arguments", class_="what")
        yield from arguments
    if block.answered:
        why = f"{block.reason}: " if block.reason else ""
        yield element("p", f"A person was asked ({why}{block.answered}).")
    elif block.reason:
        yield element("p", block.reason, class_="warn")
    if (block.shown or block.text) and not has_diff:
        yield element("p", "result", class_="what")
    for part in block.shown:
        yield from _result_part(part, call_style.directory)
    if has_diff:
        yield _fold("arguments", *arguments)
    has_output = any(isinstance(part, Output) for part in block.shown)
    if block.text and not block.shown:
        yield _text(block.text) if block.stage == "done" else _sentence(block.text)
    elif block.text and not has_output:
        yield _fold("what the model read", _text(block.text))
    if block.whole:
        yield element("p", "The model saw a part; the session has all of it.", class_="dim")


def _has_diff(block: CallBlock) -> bool:
    return any(isinstance(part, Diff) for part in block.shown)


def _arguments(block: CallBlock, call_style: CallStyle) -> Iterator[Markup]:
    """Yield the arguments of a call. Code and JSON are highlighted."""
    for name, value, is_text in argument_items(block.call):
        language = "" if is_text else "json"
        if name in ("command", "code"):
            language = _TOOL_LANGUAGES.get(block.call.name, "")
        yield from _argument(name, value, call_style.highlight(value, language))


def _argument(name: str, value: str, markup: Markup) -> Iterator[Markup]:
    """Yield an argument. A value that is long or has several lines is in a box of its own."""
    if "\n" in value or len(value) > _MAX_INLINE_CHARS:
        yield element("p", f"{name}:")
        yield code_box(markup, value)
    else:
        yield element("p", f"{name}: ", element("code", value))


def _result_part(part: Shown, directory: str) -> Iterator[Markup]:
    """Yield the elements of one part of a call's result."""
    match part:
        case Diff(path, kind, text):
            yield element("p", f"{kind} ", element("code", relative_name(path, directory)))
            yield diff(text)
        case Output(_, text, code_, ended):
            if text.strip():
                yield _text(text)
            if code_ is None:
                yield element("p", f"ended by refold: {ended}", class_="warn")
            else:
                style = "dim" if code_ == 0 else "bad"
                yield element("p", f"exit code {code_}", class_=style)
        case Note(text):
            yield element("p", text)
        case Checklist(items):
            rows = [
                element("li", f"{todo.subject} ({_TODO_LABELS[todo.status]})")
                for todo in items
            ]
            yield element("ul", *rows, class_="todos")


def _fold(title: str, *content: Markup) -> Markup:
    summary = element("summary", element("span", title, class_="label"))
    return element("details", summary, element("div", *content, class_="inside"))


def _sentence(content: str) -> Markup:
    """Return the text of a failure as a paragraph, which is wrapped."""
    return element("pre", element("code", content), class_="wrapped")


def _text(content: str) -> Markup:
    return code_box(join_markup(content), content)
