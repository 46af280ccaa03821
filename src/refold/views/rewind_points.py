"""Shows the points to which a session can be rewound, and what a rewind would change. Pure.

`session.rewind` performs a rewind.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from refold.journal.state.checkpoints import Checkpoint, RewindTarget
from refold.place.port import FileChange
from refold.values.path_names import relative_name
from refold.views.escape import escape_to_one_line
from refold.views.picker import Picker, PickerItem, Stepper
from refold.views.styled import Line, Style, line
from refold.views.wrap import cells, cut

RewindScope: TypeAlias = Literal["conversation", "files", "both"]
DriftRule: TypeAlias = Literal["refuse", "keep", "overwrite"]
_MAX_PREVIEW_FILES = 30  # named in a preview
_MIN_TEXT_CELLS = 20  # for the text of a point, even on a narrower screen
_CHANGE_CELLS = 36  # in the row of a file, for all but its name
_MIN_NAME_CELLS = 20  # for the name, even on a narrower screen
_BAR_CELLS = 12  # the longest bar, for the file with the most changed lines
_CHANGE_LABELS: dict[str, tuple[Style, str]] = {
    "created": ("added", "restored"),
    "deleted": ("gone", "deleted"),
    "changed": ("plain", "modified"),
}


class RewindPlan(Struct, frozen=True):
    """What a rewind to before the event `seq` restores.

    If `mark` is 0, the rewind does not change the conversation. If `checkpoint` is None, the
    rewind does not change files.
    """

    seq: int
    what: RewindScope
    mark: int = 0  # the conversation is restored to before this event
    checkpoint: Checkpoint | None = None
    stays: tuple[str, ...] = ()  # directories with later changes, which are not rewound


class RewindPreview(Struct, frozen=True):
    """What a rewind would change in files, and which changes by others it would lose."""

    plan: RewindPlan
    changes: tuple[FileChange, ...] = ()
    drift: tuple[str, ...] = ()  # files that changed outside of the session
    left_alone: tuple[str, ...] = ()  # repositories that were added since the checkpoint


class RewindReport(Struct, frozen=True):
    """The result of a rewind. To undo it, rewind to before the event `undo`."""

    preview: RewindPreview
    files: int = 0  # the number of restored files
    undo: int = 0  # 0: nothing changed


class RewindPoint(RewindTarget, frozen=True):
    """A point to which the session can be rewound.

    `files` is the number of files changed until the next point; None if unknown.
    """

    files: int | None = None
    # False: an earlier rewind removed it from the conversation.
    in_conversation: bool = True


def point_lines(steps: Sequence[RewindPoint], width: int) -> list[Line]:
    """Return a line for each point: event number, time, message, number of changed files."""
    column_width = max((len(str(step.seq)) for step in steps), default=0)
    return [_point_line(step, column_width, width) for step in steps]


def point_picker(points: Sequence[RewindPoint]) -> Picker:
    """Return a list of the points to choose from. The newest is selected.

    The dial chooses what is rewound: the conversation, the files or both.
    """
    column_width = max((len(str(point.seq)) for point in points), default=0)
    items = tuple(
        PickerItem(str(point.seq), partial(_point_line, point, column_width), point.text)
        for point in points
    )
    dial = Stepper("restore", get_args(RewindScope)[::-1])
    last_index = max(len(items) - 1, 0)
    return Picker("Rewind to before which message?", items, at=last_index, dial=dial)


def drift_picker() -> Picker:
    """Return a list of what to do with files that other programs have changed."""
    texts: Mapping[str, str] = {
        "keep": "rewind, and leave those files as they are",
        "overwrite": "rewind those files, too, and lose the changes",
        "refuse": "change nothing",
    }
    items = (
        PickerItem(id_, lambda _, text=text: line(text), text)
        for id_, text in texts.items()
    )
    return Picker("Another program changed files since. Rewind?", tuple(items))


def preview_lines(preview: RewindPreview, directory: str, width: int) -> list[Line]:
    """Return lines about what a rewind would change, file by file.

    Paths below `directory` are shown relative to it.
    """
    lines: list[Line] = []
    if preview.plan.mark:
        seq = preview.plan.seq
        lines.append(line(f"This rewinds the conversation to before event {seq}."))
    rewinds_files = preview.plan.what != "conversation"
    if rewinds_files and not preview.changes:
        lines.append(line("No file has to change."))
    lines += _change_lines(preview.changes, directory, width)
    for path in preview.drift[:_MAX_PREVIEW_FILES]:
        name = _name(path, directory)
        lines.append(line(f"Changed outside refold since: {name}", "warn"))
    hidden_count = len(preview.drift) - _MAX_PREVIEW_FILES
    if hidden_count > 0:
        lines.append(line(f"  … and {hidden_count} more", "warn"))
    unchanged_directories = preview.plan.stays if rewinds_files else ()
    for path in unchanged_directories:
        place = escape_to_one_line(path)
        text = f"It worked in {place} since, where files stay as they are."
        lines.append(line(text, "warn"))
    for path in preview.left_alone:
        name = _name(path, directory)
        lines.append(line(f"Left as it is, a repository of its own: {name}", "warn"))
    return lines


def _change_lines(
    changes: Sequence[FileChange], directory: str, width: int
) -> Iterator[Line]:
    """Yield a row for each changed file, and a summary; nothing without changes."""
    if not changes:
        return
    shown = changes[:_MAX_PREVIEW_FILES]
    names = [_name(change.path, directory) for change in shown]
    max_name_cells = max(width - _CHANGE_CELLS, _MIN_NAME_CELLS)
    column_width = min(max(map(cells, names)), max_name_cells)
    most_lines = max(_changed_lines(change) for change in changes)
    for change, name in zip(shown, names, strict=True):
        yield _change_line(change, cut(name, column_width), column_width, most_lines)
    if hidden_count := len(changes) - len(shown):
        yield (("dim", f"  … and {hidden_count} more"),)
    yield (("strong", summary(changes)),)


def report_text(report: RewindReport, command: str) -> str:
    """Return a sentence about the result of a rewind. `command` is the command that undoes it."""
    if not report.undo:
        return "Nothing had to change."
    conversation_text = "The conversation was rewound" if report.preview.plan.mark else ""
    files = f"{_files_text(report.files)} restored" if report.preview.changes else ""
    result = ", ".join(part for part in (conversation_text, files) if part)
    return f"{result}. To undo this: {command}"


def summary(changes: Sequence[FileChange]) -> str:
    """Return a text with the numbers of changed files and lines."""
    added = sum(change.added or 0 for change in changes)
    removed = sum(change.removed or 0 for change in changes)
    verb = "changes" if len(changes) == 1 else "change"
    return f"{_files_text(len(changes))} {verb}, +{added} -{removed} lines"


def _point_line(point: RewindPoint, column_width: int, width: int) -> Line:
    """Return the row of a point: event number, time, text, and the number of changed files."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(point.at))
    style: Style = "plain" if point.in_conversation else "dim"
    match point.kind:
        case "said":
            text = escape_to_one_line(" ".join(point.text.split())) or "(an image)"
        case "rewound":
            text = f"(the conversation was rewound to event {point.to})"
        case "restored":
            text = f"(the files were restored to event {point.to})"
    after = f"  {_files_text(point.files)} changed" if point.files else ""
    if not point.in_conversation:
        after += "  rewound"
    head = f"{point.seq:>{column_width}}  {when}  "
    text_width = max(width - cells(head) - cells(after), _MIN_TEXT_CELLS)
    row: Line = (("accent", head), (style, cut(text, text_width)))
    return (*row, ("dim", after)) if after else row


def _change_line(change: FileChange, name: str, column_width: int, most_lines: int) -> Line:
    """Return the row of a changed file. It has a bar if the changed lines are counted.

    `most_lines` is the largest number of changed lines in any file.
    """
    style, verb = _CHANGE_LABELS[change.kind]
    padded = name + " " * (column_width - cells(name))
    head: Line = ((style, f"  {padded}  {verb:<10}"),)
    if change.added is None or change.removed is None:
        return (*head, ("dim", "  bytes"))
    if not (change.added or change.removed) and change.kind == "changed":
        return (*head, ("dim", "  only whether it can be run"))
    plus = _bar_cells(change.added, most_lines)
    minus = _bar_cells(change.removed, most_lines)
    count = f"  +{change.added} -{change.removed} "
    return (*head, ("dim", count), ("added", "+" * plus), ("gone", "-" * minus))


def _bar_cells(count: int, most_lines: int) -> int:
    """Return the length of the bar for `count` of at most `most_lines` lines, rounded up."""
    return ceil(count * _BAR_CELLS / max(most_lines, _BAR_CELLS))


def _changed_lines(change: FileChange) -> int:
    return (change.added or 0) + (change.removed or 0)


def _name(path: str, directory: str) -> str:
    return escape_to_one_line(relative_name(path, directory))


def _files_text(files: int | None) -> str:
    return "1 file" if files == 1 else f"{files} files"
