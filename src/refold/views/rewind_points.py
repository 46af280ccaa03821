"""The points of a session that can be rewound to, and a preview of a rewind. Pure.

`session.rewind` does it.
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
_BAR_CELLS = 12  # for the changed lines of a file
_CHANGE_LABELS: dict[str, tuple[Style, str]] = {
    "created": ("added", "restored"),
    "deleted": ("gone", "deleted"),
    "changed": ("plain", "modified"),
}


class RewindPlan(Struct, frozen=True):
    """What a rewind to before `seq` does. `mark` 0 or no `checkpoint`: no change there."""

    seq: int
    what: RewindScope
    mark: int = 0  # of the conversation
    checkpoint: Checkpoint | None = None
    stays: tuple[str, ...] = ()  # directories with later changes that are not rewound


class RewindPreview(Struct, frozen=True):
    """What would happen to the files, and which changes of others would be lost."""

    plan: RewindPlan
    changes: tuple[FileChange, ...] = ()
    drift: tuple[str, ...] = ()  # changed outside the session
    left_alone: tuple[str, ...] = ()  # repositories added since then


class RewindReport(Struct, frozen=True):
    """What was done. A rewind to before `undo` reverts it."""

    preview: RewindPreview
    files: int = 0
    undo: int = 0  # 0: nothing changed


class RewindPoint(RewindTarget, frozen=True):
    """A point to rewind to. `files` is the number of files changed until the next one; None if
    unknown.
    """

    files: int | None = None
    in_conversation: bool = True  # False: the conversation was rewound to before it


def point_lines(steps: Sequence[RewindPoint], width: int) -> list[Line]:
    """One line for each point: number, time, message, number of changed files."""
    column_width = max((len(str(step.seq)) for step in steps), default=0)
    return [_point_line(step, column_width, width) for step in steps]


def point_picker(steps: Sequence[RewindPoint]) -> Picker:
    """A picker at the newest point. Its dial chooses what to restore."""
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
    """A picker of what a rewind does with files that other programs changed."""
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
    """What a rewind would change, file by file. Paths below `directory` are relative."""
    lines: list[Line] = []
    if preview.plan.mark:
        lines.append(
            (
                (
                    "plain",
                    f"This rewinds the conversation to before event {preview.plan.seq}.",
                ),
            )
        )
    if preview.plan.what != "conversation" and not preview.changes:
        lines.append((("plain", "No file has to change."),))
    widest = max((_lines(change) for change in preview.changes), default=0)
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
    for path in preview.plan.stays if preview.plan.what != "conversation" else ():
        stays = (
            f"It worked in {escape_to_one_line(path)} since, where files stay as they are."
        )
        lines.append(line(stays, "warn"))
    for path in preview.left_alone:
        name = _name(path, directory)
        lines.append(line(f"Left as it is, a repository of its own: {name}", "warn"))
    return lines


def report_text(report: RewindReport, command: str) -> str:
    """What was done, in a sentence or two. `command` rewinds to an event."""
    if not report.undo:
        return "Nothing had to change."
    conversation_text = "The conversation was rewound" if report.preview.plan.mark else ""
    files = f"{_count(report.files)} restored" if report.preview.changes else ""
    result = ", ".join(part for part in (conversation_text, files) if part)
    return f"{result}. To undo this: {command}"


def summary(changes: Sequence[FileChange]) -> str:
    """The number of files and lines."""
    added = sum(change.added or 0 for change in changes)
    removed = sum(change.removed or 0 for change in changes)
    verb = "changes" if len(changes) == 1 else "change"
    return f"{_count(len(changes))} {verb}, +{added} -{removed} lines"


def _point_line(step: RewindPoint, column_width: int, width: int) -> Line:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(step.at))
    style: Style = "plain" if step.in_conversation else "dim"
    match step.kind:
        case "said":
            text = escape_to_one_line(" ".join(step.text.split())) or "(an image)"
        case "rewound":
            text = f"(the conversation was rewound to event {step.to})"
        case "restored":
            text = f"(the files were restored to event {step.to})"
    after = f"  {_count(step.files)} changed" if step.files else ""
    if not step.in_conversation:
        after += "  rewound"
    head = f"{step.seq:>{column_width}}  {when}  "
    text = cut(text, max(width - cells(head) - cells(after), 20))
    pieces: list[Piece] = [("accent", head), (style, text)]
    return (*pieces, ("dim", after)) if after else tuple(pieces)


def _change_line(change: FileChange, name: str, column_width: int, widest: int) -> Line:
    style, verb = _CHANGE_LABELS[change.kind]
    padded = name + " " * (column_width - cells(name))
    head: Line = ((style, f"  {padded}  {verb:<10}"),)
    if change.added is None or change.removed is None:
        return (*head, ("dim", "  bytes"))
    if not (change.added or change.removed) and change.kind == "changed":
        return (*head, ("dim", "  only whether it can be run"))
    scale = min(1.0, _BAR_CELLS / widest) if widest else 0.0
    plus, minus = (
        round(n * scale + 0.499) if n else 0 for n in (change.added, change.removed)
    )
    count = f"  +{change.added} -{change.removed} "
    return (*head, ("dim", count), ("added", "+" * plus), ("gone", "-" * minus))


def _lines(change: FileChange) -> int:
    return (change.added or 0) + (change.removed or 0)


def _name(path: str, directory: str) -> str:
    return escape_to_one_line(relative_name(path, directory))


def _count(files: int | None) -> str:
    return "1 file" if files == 1 else f"{files} files"
