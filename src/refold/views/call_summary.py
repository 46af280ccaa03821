"""Shows a tool call in one line, and its result in a few lines. Pure.

When the user is asked about a call, `questions` shows it in full.
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
    wrap_words,
)
from refold.views.wrap_code import wrap_code

_OUTCOME_PREFIXES: Mapping[str, tuple[Style, str]] = {
    "failed": ("bad", "failed: "),
    "refused": ("warn", ""),
    "stopped": ("warn", ""),
    "unknown": ("warn", ""),
}


class ResultFold(Struct, frozen=True):
    """The maximum numbers of lines that are shown of an output and of a diff.

    `hint` says how the user can see the other lines.
    """

    hint: str = ""
    output: int = MAX_RESULT_LINES
    diff: int = 40


USUAL_FOLD = ResultFold()
_MAX_ERROR_LINES = 8
_ROW_INDENT = "  "  # of the rows below the first row of a call
_MAX_CALL_LINES = 8  # below the first line of a call
_DIFF_HEAD_CELLS = 20  # in the head of a diff, for all but the name of the file
_MIN_NAME_CELLS = 8  # for this name, even on a narrower screen


def label(call: ToolCall, tool: Tool | None) -> str:
    """Return one line that describes the call. It is escaped, and not cut.

    If the tool is unknown or its arguments are invalid, the line has the name and the JSON of the
    arguments. If an unknown tool has one argument, and it is a text, only this text is shown.
    """
    if tool is not None:
        try:
            values = tool.parse(call.arguments)
            has_list_subject = isinstance(values.get(tool.subject), tuple | list)
            if has_list_subject and not tool.paths:
                return escape_to_one_line(call.name)  # lists have a display of their own
            return escape_to_one_line(tool.label(values))
        except ToolFailed:
            pass
    match list(arguments(call).values()):
        case [str(only_value)] if tool is None:
            return escape_to_one_line(f"{call.name} {only_value}")
        case _:
            json_text = bytes(call.arguments).decode(errors="replace")
            return escape_to_one_line(f"{call.name} {json_text}")


def full_label(call: ToolCall, tool: Tool | None) -> str:
    """Return the label of the call with all lines of its command. It is escaped, and not cut."""
    short = label(call, tool)
    if tool is None:
        return short
    try:
        subject = tool.subject_of(tool.parse(call.arguments))
    except ToolFailed:
        return short
    first_line, *other_lines = visible(subject.strip("\n")).split("\n")
    one_line = escape_to_one_line(f"{call.name} {' '.join(subject.split())}")
    has_own_label = short != one_line
    if not other_lines or has_own_label:
        return short
    return "\n".join((f"{call.name} {first_line}", *other_lines))


def call_rows(text: str, width: int, hint: str = "", *, whole: bool = False) -> list[Line]:
    """Return the rows of a call's label. The first begins with the name of the tool,
    highlighted.

    Unless `whole` is true, long rows are cut, and a row with `hint` replaces those in the
    middle.
    """
    text_width = width - len(_ROW_INDENT)
    texts = list[str]()
    for text_line in expand_tabs(text).split("\n"):
        if whole:
            texts += break_lines(text_line, text_width)
        else:
            texts.append(cut(text_line, text_width))
    first, *others = texts
    name, space, rest = first.partition(" ")
    head: Line = (("strong", name), ("plain", space + rest))
    other_rows = [line(row, "dim") for row in others]
    if not whole:
        other_rows = fold_lines(other_rows, _MAX_CALL_LINES, hint)
    return [head, *((("plain", _ROW_INDENT), *row) for row in other_rows)]


def is_hook_refusal(reason: str) -> bool:
    """Whether `reason` is the refusal of a hook, in the words of `engine.run_hooks`.

    A few words for the model may come before it.
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
    """Return the lines of a call's result, shortened as `fold` says.

    `denial` is the reason for a refusal, in words for the user; the text in `end` is for the
    model. Of the diffs in `known_diffs`, which the user saw in the question, only the heads are
    shown.
    """
    if end.outcome == "refused" and denial:
        by = " by" if is_hook_refusal(denial) else ":"
        return wrap_words(f"refused{by} {escape_to_one_line(denial)}", width, "warn")
    if end.outcome in _OUTCOME_PREFIXES:
        style, word = _OUTCOME_PREFIXES[end.outcome]
        rows = sentence_lines(word + end.text, width, style)
        return fold_lines(rows, min(fold.output, _MAX_ERROR_LINES), fold.hint)
    shown = list[Line]()
    for part in end.shown:
        if isinstance(part, Diff) and part in known_diffs:
            shown.append(_diff_head(part, width, directory))
        else:
            shown += _part_rows(part, width, directory, fold)
    return shown or _plain_rows(end.text, width)


def whole_rows(end: Ended, text: str, width: int, directory: str = "") -> list[Line]:
    """Return a call's result in full: its diffs, or the output `text` if it has no diffs."""
    diffs = [part for part in end.shown if isinstance(part, Diff)]
    if diffs:
        return [row for part in diffs for row in _whole_diff(part, width, directory)]
    shown = expand_tabs(visible(text.rstrip("\n")))
    return [line(row) for row in break_lines(shown, width)]


def _part_rows(part: Shown, width: int, directory: str, fold: ResultFold) -> list[Line]:
    """Return the rows of a part of a result. `fold` limits the rows of outputs and diffs."""
    match part:
        case Note(text):
            return [line(cut(escape_to_one_line(text), width), "dim")]
        case Output():
            return list(_output_rows(part, width, fold))
        case Diff():
            rows = diff_in_columns(diff_rows(part.text), part.path, width)
            if not rows:
                rows = [truncate(row, width) for row in diff_lines(part.text, part.path)]
            return [
                _diff_head(part, width, directory),
                *fold_lines(rows, fold.diff, fold.hint),
            ]
        case Checklist(items):
            return checklist(items, width)


def _output_rows(output: Output, width: int, fold: ResultFold) -> Iterator[Line]:
    """Yield the output of a command, folded, and how it ended if it failed."""
    if output.text.strip():
        rows = text_lines(output.text, width, "dim")
        yield from fold_lines(rows, fold.output, fold.hint, output.left_out)
    elif output.code == 0:
        yield line("no output", "dim")
    if output.code is None:
        reason = escape_to_one_line(output.ended)
        why = f": {reason}" if reason else " before it was done"
        yield line(f"ended by refold{why}", "warn")
    elif output.code:
        yield line(f"exit code {output.code}", "bad")


def diff_report(diffs: Sequence[Diff], width: int, directory: str) -> Iterator[Line]:
    """Yield a row for each changed file, and then each diff with line numbers."""
    for diff in diffs:
        yield _diff_head(diff, width, directory)
    for diff in diffs:
        yield ()
        yield (("strong", escape_to_one_line(relative_name(diff.path, directory))),)
        if not diff.text:
            yield line("  no text, or only its mode has changed", "dim")
        yield from numbered_diff(diff_rows(diff.text), diff.path, width)


def _diff_head(diff: Diff, width: int, directory: str) -> Line:
    """Return a row with the kind of change, the file, and the numbers of added and removed
    lines.
    """
    plus, minus = diff.counts
    name_width = max(width - _DIFF_HEAD_CELLS, _MIN_NAME_CELLS)
    name = cut(escape_to_one_line(relative_name(diff.path, directory)), name_width)
    return (
        ("dim", f"{diff.kind} {name} "), ("added", f"+{plus}"), ("dim", " "),
        ("gone", f"-{minus}"),
    )  # fmt: skip


def _whole_diff(diff: Diff, width: int, directory: str) -> Iterator[Line]:
    """Yield all rows of a diff, in two columns if `width` is large enough."""
    yield _diff_head(diff, width, directory)
    columns = diff_in_columns(diff_rows(diff.text), diff.path, width)
    if columns:
        yield from columns
        return
    for row in diff_lines(diff.text, diff.path):
        yield from wrap_code(row, width)


def _plain_rows(text: str, width: int) -> list[Line]:
    """Return the first row of a text, with the number of further rows at its end.

    Return the row "done" if the text is empty.
    """
    rows = text_lines(text, width, "dim")
    if not rows:
        return [line("done", "dim")]
    first, *hidden = rows
    if not hidden:
        return [first]
    return [(*first, ("dim", f" (+{len(hidden)} lines)"))]


def arguments(call: ToolCall) -> dict[str, object]:
    """Return the arguments that the model wrote; {} if they are not a JSON object."""
    try:
        return msgspec.json.decode(call.arguments, type=dict[str, object])
    except msgspec.DecodeError:
        return {}
