"""Shows the points to which a session can be rewound, and what a rewind would change. Pure.

`session.rewind` performs a rewind.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from refold.journal.state.checkpoints import Checkpoint, RewindTarget
from refold.place.port import FileChange
from refold.values.path_names import relative_name
from refold.views.escape import escape_to_one_line
from refold.views.picker import Picker, PickerItem, Stepper
from refold.views.styled import Line, Piece, Style, line
from refold.views.wrap import cells, cut

RewindScope: TypeAlias = Literal["conversation", "files", "both"]
DriftRule: TypeAlias = Literal["refuse", "keep", "overwrite"]
_MAX_PREVIEW_FILES = 30  # named in a preview
_BAR_CELLS = 12  # the longest bar, for the file with the most changed lines
_CHANGE_LABELS: dict[str, tuple[Style, str]] = {
    "created": ("added", "restored"),
    "deleted": ("gone", "deleted"),
    "changed": ("plain", "modified"),
}


class RewindPlan(Struct, frozen=True):
    """What a rewind to before the event `seq` restores.

    If `mark` is 0, it does not change the conversation. If `checkpoint` is None, it does not
    change files.
    """

    seq: int
    what: RewindScope
    mark: int = 0  # the conversation is restored to before this event
    checkpoint: Checkpoint | None = None
    stays: tuple[str, ...] = ()  # directories with later changes, which are not rewound


class RewindPreview(Struct, frozen=True):
    """What a rewind would change in the files, and which changes by other programs would be
    lost.
    """

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


def point_picker(steps: Sequence[RewindPoint]) -> Picker:
    """Return a list of the points to choose from. The newest is selected.

    The dial chooses what is rewound: the conversation, the files or both.
    """
    width = max((len(str(step.seq)) for step in steps), default=0)
    items = tuple(
        PickerItem(str(step.seq), partial(_point_line, step, width), step.text)
        for step in steps
    )
    dial = Stepper("restore", get_args(RewindScope)[::-1])
    return Picker(
        "Rewind to before which message?", items, at=max(len(items) - 1, 0), dial=dial
    )


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
    if preview.plan.what != "conversation" and not preview.changes:
        lines.append(line("No file has to change."))
    widest = max((_changed_lines(change) for change in preview.changes), default=0)
    shown = preview.changes[:_MAX_PREVIEW_FILES]
    names = [_name(change.path, directory) for change in shown]
    column_width = min(max(map(cells, names), default=0), max(width - 36, 20))
    for change, name in zip(shown, names, strict=True):
        lines.append(_change_line(change, cut(name, column_width), column_width, widest))
    if left := len(preview.changes) - len(shown):
        lines.append((("dim", f"  … and {left} more"),))
    if preview.changes:
        lines.append((("strong", summary(preview.changes)),))
    for path in preview.drift[:_MAX_PREVIEW_FILES]:
        lines.append(
            line(f"Changed outside refold since: {_name(path, directory)}", "warn")
        )
    if left := len(preview.drift[_MAX_PREVIEW_FILES:]):
        lines.append(line(f"  … and {left} more", "warn"))
    left_as_they_are = () if preview.plan.what == "conversation" else preview.plan.stays
    for path in left_as_they_are:
        stays = (
            f"It worked in {escape_to_one_line(path)} since, where files stay as they are."
        )
        lines.append(line(stays, "warn"))
    for path in preview.left_alone:
        name = _name(path, directory)
        lines.append(line(f"Left as it is, a repository of its own: {name}", "warn"))
    return lines


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


def _point_line(step: RewindPoint, column_width: int, width: int) -> Line:
    """Return the row of a point: event number, time, text, and the number of changed files."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(step.at))
    style: Style = "plain" if step.in_conversation else "dim"
    match step.kind:
        case "said":
            text = escape_to_one_line(" ".join(step.text.split())) or "(an image)"
        case "rewound":
            text = f"(the conversation was rewound to event {step.to})"
        case "restored":
            text = f"(the files were restored to event {step.to})"
    after = f"  {_files_text(step.files)} changed" if step.files else ""
    if not step.in_conversation:
        after += "  rewound"
    head = f"{step.seq:>{column_width}}  {when}  "
    text = cut(text, max(width - cells(head) - cells(after), 20))
    pieces: list[Piece] = [("accent", head), (style, text)]
    return (*pieces, ("dim", after)) if after else tuple(pieces)


def _change_line(change: FileChange, name: str, column_width: int, widest: int) -> Line:
    """Return the row of a changed file. It has a bar if the changed lines are counted."""
    style, verb = _CHANGE_LABELS[change.kind]
    padded = name + " " * (column_width - cells(name))
    head: Line = ((style, f"  {padded}  {verb:<10}"),)
    if change.added is None or change.removed is None:
        return (*head, ("dim", "  bytes"))
    if not (change.added or change.removed) and change.kind == "changed":
        return (*head, ("dim", "  only whether it can be run"))
    plus, minus = _bar_cells(change.added, widest), _bar_cells(change.removed, widest)
    count = f"  +{change.added} -{change.removed} "
    return (*head, ("dim", count), ("added", "+" * plus), ("gone", "-" * minus))


def _bar_cells(count: int, widest: int) -> int:
    """Return the length of the bar for `count` changed lines, rounded up.

    `widest` is the largest number of changed lines in any file.
    """
    scale = min(1.0, _BAR_CELLS / widest) if widest else 0.0
    return round(count * scale + 0.499) if count else 0


def _changed_lines(change: FileChange) -> int:
    return (change.added or 0) + (change.removed or 0)


def _name(path: str, directory: str) -> str:
    return escape_to_one_line(relative_name(path, directory))


def _files_text(files: int | None) -> str:
    return "1 file" if files == 1 else f"{files} files"
