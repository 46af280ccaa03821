"""Exports a session as Markdown or as plain text. Pure.

Responses are written unchanged, unless their Markdown would change the text after them.
Arguments and results of tools are folded and fenced: no text in them can end the fence.
"""

import re
from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.state.session_tree import Node
from refold.values.display import Checklist, Diff, Note, Output, Shown
from refold.values.path_names import relative_name
from refold.views.escape import escape_to_one_line, visible
from refold.views.export.content import (
    ExportedSession,
    ExportOptions,
    Turn,
    argument_items,
    call_outcome,
    duration_text,
    export_session,
    sender_name,
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
from refold.views.styled import plain_text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_MAX_INLINE_CHARS = 120  # longer arguments do not share a line with their name
_SPECIAL_PATTERN = re.compile(r"([\\`*_\[\]<>#|~&])")
_RULE_PATTERN = re.compile(r"\s*[-=]+\s*")  # turns the line before it into a heading
_TAG_PATTERN = re.compile(r"<(?=[A-Za-z/!?])")
_CODE_PATTERN = re.compile(
    r"(?<!`)(`+)(?!`)(?:.+?)(?<!`)\1(?!`)|^ {0,3}(```+|~~~+).*?^ {0,3}\2", re.S | re.M
)
_FENCE_PATTERN = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_PROBE_TEXT = "after-all-of-it"  # the paragraph that is parsed after a text
_MAX_PARSED_CHARS = 200_000  # longer text is put into a fence


Sanitize = Callable[[str], str]
_RULE_LINE = "─" * 40


def create_sanitizer() -> Sanitize:
    """Return a function that makes Markdown harmless and changes it as little as possible.

    An unclosed fence, comment or HTML element would hide the rest of the document. To detect
    this, the text is parsed together with a paragraph after it. If nothing else helps, the
    text is fenced.
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")

    def sanitize(text: str) -> str:
        """Return the first form of the text that is harmless Markdown, or else a code block."""
        if len(text) > _MAX_PARSED_CHARS:
            return code_fence(text)
        for candidate in _candidates(text):
            if _is_harmless(candidate, parser):
                return candidate
        return code_fence(text)

    return sanitize


def code_fence(text: str, language: str = "") -> str:
    """Return the text in a fence that is longer than any fence in the text."""
    shown = text.rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}\n"


def _candidates(text: str) -> Iterator[str]:
    """Yield versions of the text that may be harmless, beginning with the least changed."""
    yield text
    fences = [match[1] for match in _FENCE_PATTERN.finditer(text)]
    if fences:  # the last or the first of them may be open, so it is closed
        yield f"{text}\n{fences[-1]}"
        yield f"{text}\n{fences[0]}"
    without_tags = _without_tags(text)
    yield without_tags
    if fences:
        yield f"{without_tags}\n{fences[-1]}"


def _is_harmless(text: str, parser: "MarkdownIt") -> bool:
    """Whether the text contains no HTML, and a paragraph after it stays a paragraph of its own."""
    tokens = parser.parse(f"{text}\n\n{_PROBE_TEXT}\n")
    last = tokens[-2:-1]  # the text of the last paragraph, before the token that closes it
    is_separate = [(token.content, token.level) for token in last] == [(_PROBE_TEXT, 1)]
    inner = [child for token in tokens for child in token.children or ()]
    has_html = any(token.type.startswith("html_") for token in (*tokens, *inner))
    return is_separate and not has_html


def _without_tags(text: str) -> str:
    """Return the text with the tags outside of code escaped."""
    result, position = "", 0
    for code in _CODE_PATTERN.finditer(text):
        result += _TAG_PATTERN.sub(r"\\<", text[position : code.start()]) + code[0]
        position = code.end()
    return result + _TAG_PATTERN.sub(r"\\<", text[position:])


def markdown(node: Node, options: ExportOptions) -> Iterator[str]:
    """Yield the session as Markdown, in pieces."""
    renderer = _Renderer(options, create_sanitizer())
    yield from _session(export_session(node, options), renderer, level=1)


class _Renderer(Struct, frozen=True):
    options: ExportOptions
    sanitize: Sanitize


def _session(session: ExportedSession, renderer: _Renderer, level: int) -> Iterator[str]:
    """Yield a session as Markdown. `level` is the level of its heading."""
    yield f"{'#' * level} {_escape_words(session.title)}\n\n| | |\n|---|---|\n"
    for name, value in session.facts:
        yield f"| {name} | {_escape_words(value)} |\n"
    for turn in session.turns:
        if turn.number:  # 0: outside of any turn
            head = f"{'#' * min(level + 1, 6)} Turn {turn.number}"
            yield f"\n{head} · {renderer.options.when(turn.at)}\n"
        for block in turn.blocks:
            yield "\n" + "".join(_block(block, turn, session, renderer, level))
        if turn.over is not None:
            yield "\n" + _turn_end(turn.over)
    for child in session.orphan_sessions:
        yield "\n"
        yield from _session(child, renderer, min(level + 2, 6))


def _block(
    block: Block, turn: Turn, session: ExportedSession, renderer: _Renderer, level: int
) -> Iterator[str]:
    """Yield a block as Markdown, and after a call its subagents."""
    match block:
        case MessageBlock():
            yield f"**{_escape_words(sender_name(block.sender))}:**\n\n{_quote(block.user_text)}"
            for image in block.images:
                yield f">\n> [image: {_escape_words(image.name or image.media_type)}]\n"
        case AnswerBlock(text=text, partial=partial):
            yield from _response(text, "cut off here" if partial else "", renderer)
        case DroppedBlock(text=text):
            yield from _response(text, block.mark, renderer)
        case ThinkingBlock(text=text):
            yield _fold("thought", _fence(text))
        case CallBlock():
            yield from _call_section(block, turn, session, renderer, level)
        case NoticeBlock(line=line):
            yield f"*{_escape_words(plain_text([line]))}*\n"
        case TurnEndBlock():
            yield _turn_end(block)


def _response(text: str, mark: str, renderer: _Renderer) -> Iterator[str]:
    """Yield text of the model, and a note `mark` about it, such as that it was cut off."""
    if text.strip():
        yield renderer.sanitize(visible(text).rstrip()) + "\n"
    if mark:
        yield f"\n*({_escape_words(mark)})*\n"


def _call_section(
    block: CallBlock, turn: Turn, session: ExportedSession, renderer: _Renderer, level: int
) -> Iterator[str]:
    """Yield a call and the calls that its code made, then the subagents of all these calls."""
    directory = session.node.view.session.directory
    yield _fold(_summary(block, renderer), "".join(_call_lines(block, directory)))
    nested_calls = turn.within.get(block.call.id, ())
    for nested in nested_calls:
        content = "".join(_call_lines(nested, directory))
        yield "\n" + _fold(_summary(nested, renderer), content)
    for call in (block, *nested_calls):
        for child in session.children.get(call.call.id, ()):
            yield "\n"
            yield from _session(child, renderer, min(level + 2, 6))


def _summary(block: CallBlock, renderer: _Renderer) -> str:
    """Return the line that stays visible when a call is folded: its label and its outcome."""
    label = f"<code>{_escape_html(renderer.options.label(block.call))}</code>"
    return " · ".join(filter(None, (label, call_outcome(block), duration_text(block))))


def _call_lines(block: CallBlock, directory: str) -> Iterator[str]:
    """Yield the arguments and the result of a call as Markdown."""
    for name, value, is_text in argument_items(block.call):
        if "\n" in value or len(value) > _MAX_INLINE_CHARS:
            fenced = _fence(value, "" if is_text else "json")
            yield f"{_escape_words(name)}:\n\n{fenced}\n"
        else:
            yield f"{_escape_words(name)}: {_code(value)}\n\n"
    if block.answered:
        yield f"a person said: {_escape_words(block.answered)}\n\n"
    for part in block.shown:
        yield from _result_part(part, directory)
    has_output = any(isinstance(part, Output) for part in block.shown)
    if block.text and not has_output:
        yield f"what the model read:\n\n{_fence(block.text)}"


def _result_part(part: Shown, directory: str) -> Iterator[str]:
    """Yield a part of a call's result as Markdown."""
    match part:
        case Diff(path, kind, text):
            name = _escape_words(relative_name(path, directory))
            yield f"{kind}: {name}\n\n{_fence(text, 'diff')}\n"
        case Output(_, text, code, ended):
            yield _fence(text, "text")
            ending = f"exit code {code}"
            if code is None:  # the command was stopped
                ending = _escape_words(ended or "ended before it was done")
            yield f"\n{ending}\n\n"
        case Note(text):
            yield f"{_escape_words(text)}\n\n"
        case Checklist():
            yield _fence(part.text) + "\n"


def _turn_end(end: TurnEndBlock) -> str:
    return "".join(f"*{_escape_words(plain_text([row]))}*  \n" for row in turn_rows(end))


def _fold(summary: str, content: str) -> str:
    # The empty lines end the HTML, so that the text between them is Markdown again.
    return f"<details>\n<summary>{summary}</summary>\n\n{content.rstrip()}\n\n</details>\n"


def _fence(text: str, language: str = "") -> str:
    return code_fence(visible(text), language)


def _code(text: str) -> str:
    """Return the text as inline code. Backticks in the text do not end it."""
    shown = escape_to_one_line(text)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    marks = "`" * (longest + 1)
    if "`" in shown or not shown.strip():
        shown = f" {shown} "
    return f"{marks}{shown}{marks}"


def _quote(text: str) -> str:
    rows = visible(text).strip("\n").split("\n")
    return "".join(f"> {_escape_row(row)}  \n" if row.strip() else ">\n" for row in rows)


def _escape_row(row: str) -> str:
    """Return a line of text in which no character is a mark of Markdown."""
    # A row of dashes would make the row before it a heading.
    escape_rule = "\\" if _RULE_PATTERN.fullmatch(row) else ""
    return escape_rule + _SPECIAL_PATTERN.sub(r"\\\1", row)


def _escape_words(text: str) -> str:
    """Return the text on one line, escaped for Markdown."""
    return _SPECIAL_PATTERN.sub(r"\\\1", escape_to_one_line(text))


def _escape_html(text: str) -> str:
    return escape(escape_to_one_line(text))


def plain_document(node: Node, options: ExportOptions) -> Iterator[str]:
    """Yield the session as plain text, in pieces."""
    yield from _plain_session(export_session(node, options), options)


def _plain_session(session: ExportedSession, options: ExportOptions) -> Iterator[str]:
    """Yield a session as plain text, then its subagents."""
    yield visible(f"{session.title}\n{_RULE_LINE}\n")
    width = max(len(name) for name, _ in session.facts)
    for name, value in session.facts:
        yield visible(f"{name:{width}}  {value}\n")
    yield f"{_RULE_LINE}\n\n"
    screen = _without_reports(session.screen, thoughts=options.thoughts)
    yield transcript(screen, options.label) + "\n"
    for children in session.children.values():
        for child in children:
            yield "\n\n"
            yield from _plain_session(child, options)


def _without_reports(screen: Screen, *, thoughts: bool) -> Screen:
    """Return the screen without the reports of subagents: their sessions are exported, too.

    Unless `thoughts` is true, it is also without the model's thinking.
    """
    blocks: list[Block] = []
    for block in screen.done:
        if isinstance(block, NoticeBlock):
            blocks.append(replace(block, report=""))
        elif thoughts or not isinstance(block, ThinkingBlock):
            blocks.append(block)
    done = type(screen.done)(blocks)
    return Screen(done=done, open=screen.open, view=screen.view)
