"""A session as Markdown or as plain text. Pure.

Answers are written as they came, unless their Markdown would change what follows them. The
arguments and results of tools are in fences longer than any in them, folded; so none of
their text becomes part of the document.
"""

import re
from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.state.session_tree import Node
from refold.values.display import Checklist, Diff, Note, Output
from refold.values.path_names import near
from refold.views.escape import on_one_line, visible
from refold.views.export.content import (
    ExportedSession,
    ExportOptions,
    Turn,
    call_outcome,
    exported_session,
    given,
    took,
    who,
)
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
from refold.views.screen.screen import Screen
from refold.views.screen.transcript import transcript
from refold.views.styled import bare

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_SHORT = 120  # characters of an argument that stands on the line of its name
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&])")
_RULE = re.compile(r"\s*[-=]+\s*")  # makes a heading of the line before it
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_CODE = re.compile(
    r"(?<!`)(`+)(?!`)(?:.+?)(?<!`)\1(?!`)|^ {0,3}(```+|~~~+).*?^ {0,3}\2", re.S | re.M
)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_AFTER = "after-all-of-it"
_LONGEST = 200_000  # characters that are parsed; more stand in a fence


Contained = Callable[[str], str]
_LINE = "─" * 40


def containing() -> Contained:
    """A function that returns Markdown unchanged if it is harmless, and else as close as possible.

    An unclosed fence, a comment or an HTML element would swallow the rest of the document. A parser
    tells whether a text does that, given a paragraph after it; if nothing else helps, the text is
    put into a fence.
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")

    def contained(text: str) -> str:
        if len(text) > _LONGEST:
            return fenced(text)
        return next((each for each in _ways(text) if _harmless(each, parser)), fenced(text))

    return contained


def fenced(text: str, language: str = "") -> str:
    """In a fence that no line of the text can close."""
    shown = text.rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}\n"


def _ways(text: str) -> Iterator[str]:
    yield text
    closing = [found[1] for found in _FENCE.finditer(text)]
    if closing:
        yield f"{text}\n{closing[-1]}"
        yield f"{text}\n{closing[0]}"
    without = _without_tags(text)
    yield without
    if closing:
        yield f"{without}\n{closing[-1]}"


def _harmless(text: str, parser: "MarkdownIt") -> bool:
    """Is a paragraph after the text a paragraph of its own, and is there no HTML in the text?"""
    found = parser.parse(f"{text}\n\n{_AFTER}\n")
    last = found[-2:-1]
    alone = [(t.content, t.level) for t in last] == [(_AFTER, 1)]
    every = [t for token in found for t in (token, *(token.children or ()))]
    return alone and not any(t.type.startswith("html_") for t in every)


def _without_tags(text: str) -> str:
    """Tags become text; code is unchanged."""
    made, at = "", 0
    for code in _CODE.finditer(text):
        made += _TAG.sub(r"\\<", text[at : code.start()]) + code[0]
        at = code.end()
    return made + _TAG.sub(r"\\<", text[at:])


def markdown(node: Node, means: ExportOptions) -> Iterator[str]:
    """In pieces, to be written one after the other."""
    yield from _session(exported_session(node, means), _How(means, containing()), 1)


class _How(Struct, frozen=True):
    means: ExportOptions
    contained: Contained


def _session(told: ExportedSession, how: _How, level: int) -> Iterator[str]:
    yield f"{'#' * level} {_words(told.title)}\n\n| | |\n|---|---|\n"
    for name, value in told.facts:
        yield f"| {name} | {_words(value)} |\n"
    for turn in told.turns:
        if turn.number:
            head = f"{'#' * min(level + 1, 6)} Turn {turn.number}"
            yield f"\n{head} · {how.means.when(turn.at)}\n"
        for block in turn.blocks:
            yield "\n" + "".join(_block(block, turn, told, how, level))
        if turn.over is not None:
            yield "\n" + _over(turn.over)
    for child in told.unplaced:
        yield "\n"
        yield from _session(child, how, min(level + 2, 6))


def _block(
    block: Block, turn: Turn, told: ExportedSession, how: _How, level: int
) -> Iterator[str]:
    match block:
        case MessageBlock():
            yield f"**{_words(who(block.sender))}:**\n\n{_quoted(block.said)}"
            for image in block.images:
                yield f">\n> [image: {_words(image.name or image.media_type)}]\n"
        case AnswerBlock(text=text, partial=partial):
            yield from _said(text, "cut off here" if partial else "", how)
        case DroppedBlock(text=text):
            yield from _said(text, block.mark, how)
        case ThinkingBlock(text=text):
            yield _folded("thought", _fence(text))
        case CallBlock():
            yield from _called(block, turn, told, how, level)
        case NoticeBlock(line=line):
            yield f"*{_words(bare([line]))}*\n"
        case TurnEndBlock():
            yield _over(block)


def _said(text: str, mark: str, how: _How) -> Iterator[str]:
    if text.strip():
        yield how.contained(visible(text).rstrip()) + "\n"
    if mark:
        yield f"\n*({_words(mark)})*\n"


def _called(
    block: CallBlock, turn: Turn, told: ExportedSession, how: _How, level: int
) -> Iterator[str]:
    directory = told.node.view.session.directory
    yield _folded(_summary(block, how), "".join(_call(block, directory)))
    for inner in turn.within.get(block.call.id, ()):
        yield "\n" + _folded(_summary(inner, how), "".join(_call(inner, directory)))
    made = (block, *turn.within.get(block.call.id, ()))
    for child in (each for call in made for each in told.children.get(call.call.id, ())):
        yield "\n"
        yield from _session(child, how, min(level + 2, 6))


def _summary(block: CallBlock, how: _How) -> str:
    said = f"<code>{_markup(how.means.label(block.call))}</code>"
    return " · ".join(filter(None, (said, call_outcome(block), took(block))))


def _call(block: CallBlock, directory: str) -> Iterator[str]:
    for name, value, is_text in given(block.call):
        if "\n" in value or len(value) > _SHORT:
            yield f"{_words(name)}:\n\n{_fence(value, '' if is_text else 'json')}\n"
        else:
            yield f"{_words(name)}: {_code(value)}\n\n"
    if block.answered:
        yield f"a person said: {_words(block.answered)}\n\n"
    for part in block.shown:
        match part:
            case Diff(path, kind, text):
                yield f"{kind}: {_words(near(path, directory))}\n\n{_fence(text, 'diff')}\n"
            case Output(_, text, code, ended):
                how = ended or ("ended before it was done" if code is None else "")
                yield _fence(text, "text")
                yield (
                    f"\nexit code {code}\n\n"
                    if code is not None
                    else f"\n{_words(how)}\n\n"
                )
            case Note(text):
                yield f"{_words(text)}\n\n"
            case Checklist():
                yield _fence(part.text) + "\n"
    if block.text and not any(isinstance(part, Output) for part in block.shown):
        yield f"what the model read:\n\n{_fence(block.text)}"


def _over(over: TurnEndBlock) -> str:
    return "".join(f"*{_words(bare([row]))}*  \n" for row in turn_rows(over))


def _folded(summary: str, content: str) -> str:
    # The empty lines end the HTML, so that what is between them is Markdown again.
    return f"<details>\n<summary>{summary}</summary>\n\n{content.rstrip()}\n\n</details>\n"


def _fence(text: str, language: str = "") -> str:
    return fenced(visible(text), language)


def _code(text: str) -> str:
    """Inline code that none of its own backticks can end."""
    shown = on_one_line(text)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    marks = "`" * (longest + 1)
    return (
        f"{marks} {shown} {marks}"
        if "`" in shown or not shown.strip()
        else f"{marks}{shown}{marks}"
    )


def _quoted(text: str) -> str:
    rows = visible(text).strip("\n").split("\n")
    return "".join(f"> {_row(row)}  \n" if row.strip() else ">\n" for row in rows)


def _row(row: str) -> str:
    return ("\\" if _RULE.fullmatch(row) else "") + _SPECIAL.sub(r"\\\1", row)


def _words(text: str) -> str:
    """Escaped for Markdown, on one line."""
    return _SPECIAL.sub(r"\\\1", on_one_line(text))


def _markup(text: str) -> str:
    return escape(on_one_line(text))


def plain(node: Node, means: ExportOptions) -> Iterator[str]:
    """In pieces, to be written one after the other."""
    yield from _plain_session(exported_session(node, means), means)


def _plain_session(told: ExportedSession, means: ExportOptions) -> Iterator[str]:
    yield visible(f"{told.title}\n{_LINE}\n")
    wide = max(len(name) for name, _ in told.facts)
    for name, value in told.facts:
        yield visible(f"{name:{wide}}  {value}\n")
    yield f"{_LINE}\n\n"
    screen = _below_once(told.screen, thoughts=means.thoughts)
    yield transcript(screen, means.label) + "\n"
    for children in told.children.values():
        for child in children:
            yield "\n\n"
            yield from _plain_session(child, means)


def _below_once(screen: Screen, *, thoughts: bool) -> Screen:
    """Without reports of subagents, which follow whole; and without thoughts, if so wished."""
    done = type(screen.done)(
        [
            replace(each, found="") if isinstance(each, NoticeBlock) else each
            for each in screen.done
            if thoughts or not isinstance(each, ThinkingBlock)
        ]
    )
    return Screen(done=done, open=screen.open, view=screen.view)
