"""A tool call in one line before it runs, and its result in a few lines. Pure.

`questions` shows the call in full when the user is asked.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from refold.errors import ToolFailed
from refold.journal.events.kinds import Ended
from refold.tools.contract import Tool
from refold.values.display import Checklist, Diff, Note, Output, Shown
from refold.values.messages import ToolCall
from refold.values.path_names import relative_name
from refold.views.escape import escape_to_one_line, visible
from refold.views.styled import Line, Style, line
from refold.views.todo_list import checklist
from refold.views.word_diff import diff_in_columns, diff_lines, diff_rows, numbered_diff
from refold.views.wrap import (
    MAX_RESULT_LINES,
    break_lines,
    cut,
    expand_tabs,
    fold_lines,
    sentence_lines,
    text_lines,
    truncate,
    wrap_code,
    wrap_words,
)

_OUTCOME_PREFIXES: Mapping[str, tuple[Style, str]] = {
    "failed": ("bad", "failed: "),
    "refused": ("warn", ""),
    "stopped": ("warn", ""),
    "unknown": ("warn", ""),
}


class ResultFold(Struct, frozen=True):
    """How many lines of a result are shown, and a hint on how to see the rest."""

    hint: str = ""
    output: int = MAX_RESULT_LINES
    diff: int = 40


USUAL_FOLD = ResultFold()
_MAX_ERROR_LINES = 8  # lines of an error
_MAX_CALL_LINES = 8  # lines of a call, below its first


def label(call: ToolCall, tool: Tool | None) -> str:
    """One line that describes the call. Visible, not cut."""
    try:
        if tool is not None:
            values = tool.parse(call.arguments)
            if isinstance(values.get(tool.subject), tuple | list) and not tool.paths:
                return escape_to_one_line(call.name)  # a list is shown elsewhere
            return escape_to_one_line(tool.label(values))
    except ToolFailed:
        pass
    values = list(arguments(call).values())
    if tool is None and len(values) == 1 and isinstance(values[0], str):
        return escape_to_one_line(f"{call.name} {values[0]}")
    return escape_to_one_line(
        f"{call.name} {bytes(call.arguments).decode(errors='replace')}"
    )


def full_label(call: ToolCall, tool: Tool | None) -> str:
    """The label of the call; a command of several lines keeps them. Visible, not cut."""
    short = label(call, tool)
    try:
        subject = tool.subject_of(tool.parse(call.arguments)) if tool is not None else ""
    except ToolFailed:
        return short
    lines = visible(subject.strip("\n")).split("\n")
    if len(lines) == 1 or short != escape_to_one_line(
        f"{call.name} {' '.join(subject.split())}"
    ):
        return short
    return "\n".join((f"{call.name} {lines[0]}", *lines[1:]))


def call_rows(text: str, width: int, hint: str = "", *, whole: bool = False) -> list[Line]:
    """Return the label of a call. Its name stands out, and lines below the first are indented.

    With `whole`, nothing is cut or left out.
    """
    first, *others = (
        part
        for row in expand_tabs(text).split("\n")
        for part in (break_lines(row, width - 2) if whole else (cut(row, width - 2),))
    )
    name, space, rest = first.partition(" ")
    below = [line(row, "dim") for row in others]
    if not whole:
        below = fold_lines(below, _MAX_CALL_LINES, hint)
    head: Line = (("strong", name), ("plain", space + rest))
    return [head, *((("plain", "  "), *row) for row in below)]


def is_hook_refusal(reason: str) -> bool:
    """Whether `reason` is a hook's refusal as `engine.run_hooks` words it.

    `reason` may begin with a few words for the model.
    """
    return "the hook `" in reason[:20]


def result_lines(
    end: Ended,
    width: int,
    directory: str = "",
    denial: str = "",
    fold: ResultFold = USUAL_FOLD,
    known_diffs: Sequence[Diff] = (),
) -> list[Line]:
    """The result of the call. The first line summarizes it.

    `denial` is why the rules refused it; the event's text adds words for the model. Of
    `known_diffs`, which the question has shown, only the heads are repeated.
    """
    if end.outcome == "refused" and denial:
        by = " by" if is_hook_refusal(denial) else ":"
        return wrap_words(f"refused{by} {escape_to_one_line(denial)}", width, "warn")
    if end.outcome in _OUTCOME_PREFIXES:
        style, word = _OUTCOME_PREFIXES[end.outcome]
        rows = sentence_lines(word + end.text, width, style)
        return fold_lines(rows, min(fold.output, _MAX_ERROR_LINES), fold.hint)
    shown = [
        row
        for part in end.shown
        for row in (
            [_head(part, width, directory)]
            if isinstance(part, Diff) and part in known_diffs
            else _part_rows(part, width, directory, fold)
        )
    ]
    return shown or _plain_rows(end.text, width)


def whole_rows(end: Ended, text: str, width: int, directory: str = "") -> list[Line]:
    """The whole result of the call. `text` is its full output."""
    diffs = [part for part in end.shown if isinstance(part, Diff)]
    if diffs:
        return [row for part in diffs for row in _whole_diff(part, width, directory)]
    shown = expand_tabs(visible(text.rstrip("\n")))
    return [line(row) for row in break_lines(shown, width)]


def _part_rows(part: Shown, width: int, directory: str, fold: ResultFold) -> list[Line]:
    match part:
        case Note(text):
            return [line(cut(escape_to_one_line(text), width), "dim")]
        case Output():
            return list(_output(part, width, fold))
        case Diff():
            rows = diff_in_columns(diff_rows(part.text), part.path, width) or [
                truncate(row, width) for row in diff_lines(part.text, part.path)
            ]
            return [_head(part, width, directory), *fold_lines(rows, fold.diff, fold.hint)]
        case Checklist(items):
            return checklist(items, width)


def _output(output: Output, width: int, fold: ResultFold) -> Iterator[Line]:
    if output.text.strip():
        rows = text_lines(output.text, width, "dim")
        yield from fold_lines(rows, fold.output, fold.hint, output.left_out)
    elif output.code == 0:
        yield line("no output", "dim")
    if output.code is None:
        why = (
            f": {escape_to_one_line(output.ended)}"
            if output.ended
            else " before it was done"
        )
        yield line(f"ended by refold{why}", "warn")
    elif output.code:
        yield line(f"exit code {output.code}", "bad")


def diff_report(diffs: Sequence[Diff], width: int, directory: str) -> Iterator[Line]:
    """A row for each changed file, then the diff of each with line numbers."""
    for diff in diffs:
        yield _head(diff, width, directory)
    for diff in diffs:
        yield ()
        yield (("strong", escape_to_one_line(relative_name(diff.path, directory))),)
        if not diff.text:
            yield line("  no text, or only its mode has changed", "dim")
        yield from numbered_diff(diff_rows(diff.text), diff.path, width)


def _head(diff: Diff, width: int, directory: str) -> Line:
    plus, minus = diff.counts
    name = cut(escape_to_one_line(relative_name(diff.path, directory)), max(width - 20, 8))
    return (
        ("dim", f"{diff.kind} {name} "), ("added", f"+{plus}"), ("dim", " "),
        ("gone", f"-{minus}"),
    )  # fmt: skip


def _whole_diff(diff: Diff, width: int, directory: str) -> Iterator[Line]:
    yield _head(diff, width, directory)
    columns = diff_in_columns(diff_rows(diff.text), diff.path, width)
    yield from columns
    for row in () if columns else diff_lines(diff.text, diff.path):
        yield from wrap_code(row, width)


def _plain_rows(text: str, width: int) -> list[Line]:
    rows = text_lines(text, width, "dim")
    first = rows[0] if rows else line("done", "dim")
    left = len(rows) - 1
    return [(*first, ("dim", f" (+{left} lines)"))] if left > 0 else [first]


def arguments(call: ToolCall) -> dict[str, object]:
    """The arguments as the model gave them; empty if they are not a JSON object."""
    try:
        return msgspec.json.decode(call.arguments, type=dict[str, object])
    except msgspec.DecodeError:
        return {}
