"""A call as a part of the page that unfolds: what it was given, what came of it."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from refold.values.below import near
from refold.values.shown import Checklist, Diff, Note, Output, Shown
from refold.values.todos import Progress
from refold.views.escape import on_one_line
from refold.views.export.html.code import Highlighted, boxed, diff
from refold.views.export.html.markup import Markup, element, joined
from refold.views.export.wording import came_to, given, took
from refold.views.screen.blocks import Called

_TODO: Mapping[Progress, str] = {
    "pending": "open", "in_progress": "at work", "done": "done", "cancelled": "left out",
}  # fmt: skip
_LANGUAGES = {"bash": "bash", "python": "python"}
_SHORT = 200  # characters of an argument that stands on the line of its name


class Hand(Struct, frozen=True):
    """How calls are drawn: paths are told as seen from `directory`."""

    directory: str
    highlighted: Highlighted


def call(block: Called, label: str, hand: Hand, inside: Sequence[Markup] = ()) -> Markup:
    """`inside` are its pictures, and the calls that its code made."""
    word = came_to(block)
    well = "good" if word == "done" else "bad"
    style = well if block.stage in ("done", "failed") else "warn"
    summary = element(
        "summary",
        element("code", on_one_line(label), class_="label"),
        element("span", word, class_=f"stage {style}"),
        element("span", took(block), class_="took"),
    )
    content = element("div", *_inside(block, hand), *inside, class_="inside")
    # What was changed is what most come to see.
    opened = {"open": ""} if _changed(block) else {}
    return element("details", summary, content, **opened)


def _inside(block: Called, hand: Hand) -> Iterator[Markup]:
    arguments = list(_arguments(block, hand))
    if not _changed(block):
        yield element("p", "given", class_="what")
        yield from arguments
    if block.answered:
        why = f"{block.reason}: " if block.reason else ""
        yield element("p", f"A person was asked ({why}{block.answered}).")
    elif block.reason:
        yield element("p", block.reason, class_="warn")
    if (block.shown or block.text) and not _changed(block):
        yield element("p", "what came of it", class_="what")
    for part in block.shown:
        yield from _shown(part, hand.directory)
    printed = any(isinstance(part, Output) for part in block.shown)
    if _changed(block):
        yield _folded("what it was given", *arguments)
    if block.text and not block.shown:
        yield _text(block.text) if block.stage == "done" else _sentence(block.text)
    elif block.text and not printed:
        yield _folded("what the model read", _text(block.text))
    if block.whole:
        yield element(
            "p", "The model was shown a part; the session keeps all.", class_="dim"
        )


def _changed(block: Called) -> bool:
    return any(isinstance(part, Diff) for part in block.shown)


def _arguments(block: Called, hand: Hand) -> Iterator[Markup]:
    for name, value, is_text in given(block.call):
        language = "" if is_text else "json"
        if name in ("command", "code"):
            language = _LANGUAGES.get(block.call.name, "")
        yield from _given(name, value, hand.highlighted(value, language))


def _given(name: str, value: str, shown: Markup) -> Iterator[Markup]:
    if "\n" in value or len(value) > _SHORT:
        yield element("p", f"{name}:")
        yield boxed(shown, value)
    else:
        yield element("p", f"{name}: ", element("code", value))


def _shown(part: Shown, directory: str) -> Iterator[Markup]:
    match part:
        case Diff(path, kind, text):
            yield element("p", f"{kind} ", element("code", near(path, directory)))
            yield diff(text)
        case Output(_, text, code_, ended):
            if text.strip():
                yield _text(text)
            if code_ is None:
                yield element("p", f"ended by us: {ended}", class_="warn")
            else:
                style = "dim" if code_ == 0 else "bad"
                yield element("p", f"exit code {code_}", class_=style)
        case Note(text):
            yield element("p", text)
        case Checklist(items):
            rows = [element("li", f"{t.subject} ({_TODO[t.status]})") for t in items]
            yield element("ul", *rows, class_="todos")


def _folded(title: str, *content: Markup) -> Markup:
    summary = element("summary", element("span", title, class_="label"))
    return element("details", summary, element("div", *content, class_="inside"))


def _sentence(content: str) -> Markup:
    """Why it failed, or was not done: no columns stand in it."""
    return element("pre", element("code", content), class_="wrapped")


def _text(content: str) -> Markup:
    return boxed(joined(content), content)
