"""What a call is, on one line before it runs, and what came of it, on a few after.

Pure: from events to lines. What a person is asked before a call stands in
`questions`; when a line is printed is the screen's business.
"""

from collections.abc import Iterator, Mapping

import msgspec

from refold.errors import ToolFailed
from refold.journal.events import Ended
from refold.tools.contract import Tool
from refold.values.below import near
from refold.values.messages import ToolCall
from refold.values.shown import Checklist, Diff, Note, Output, Shown
from refold.views.by_word import diff_lines
from refold.views.cells import cut, untabbed, wrapped
from refold.views.checklist import checklist
from refold.views.escape import on_one_line, visible
from refold.views.folding import folded, in_words, text_lines, told_lines
from refold.views.rows import chopped, clipped
from refold.views.styled import Line, Style, line

_SAID: Mapping[str, tuple[Style, str]] = {
    "failed": ("bad", "failed: "),
    "refused": ("warn", ""),
    "stopped": ("warn", ""),
    "unknown": ("warn", ""),
}


def label(call: ToolCall, tool: Tool | None) -> str:
    """One line that says what the call will do. Visible, not cut."""
    try:
        if tool is not None:
            given = tool.parse(call.arguments)
            if isinstance(given.get(tool.subject), tuple | list) and not tool.paths:
                return on_one_line(call.name)  # a list is shown elsewhere
            return on_one_line(tool.label(given))
    except ToolFailed:
        pass
    given = list(arguments(call).values())
    if tool is None and len(given) == 1 and isinstance(given[0], str):
        return on_one_line(f"{call.name} {given[0]}")
    return on_one_line(f"{call.name} {bytes(call.arguments).decode(errors='replace')}")


def result(
    end: Ended, room: int, directory: str = "", denied: str = "", hint: str = ""
) -> list[Line]:
    """What the call came to. The first line says it, the rest shows it.

    `denied` is why the rules refused it; the text goes on with words for the model.
    `hint` is how all of what is left out here can be seen.
    """
    if end.outcome == "refused" and denied:
        return in_words(f"refused: {on_one_line(denied)}", room, "warn")
    if end.outcome in _SAID:
        style, word = _SAID[end.outcome]
        return folded(told_lines(word + end.text, room, style), 8, hint)
    shown = [row for part in end.shown for row in _part(part, room, directory, hint)]
    return shown or _plain(end.text, room)


def whole(end: Ended, text: str, room: int, directory: str = "") -> list[Line]:
    """All that the call came to. `text` is what it gave back, before it was cut."""
    diffs = [part for part in end.shown if isinstance(part, Diff)]
    if diffs:
        return [row for part in diffs for row in _whole_diff(part, room, directory)]
    shown = untabbed(visible(text.rstrip("\n")))
    return [line(row) for row in wrapped(shown, room)]


def _part(part: Shown, room: int, directory: str, hint: str) -> list[Line]:
    match part:
        case Note(text):
            return [line(cut(on_one_line(text), room), "dim")]
        case Output():
            return list(_output(part, room, hint))
        case Diff():
            rows = [clipped(row, room) for row in diff_lines(part.text)]
            return [_head(part, room, directory), *folded(rows, 40, hint)]
        case Checklist(items):
            return checklist(items, room)


def _output(output: Output, room: int, hint: str) -> Iterator[Line]:
    if output.text.strip():
        yield from folded(text_lines(output.text, room, "dim"), hint=hint)
    elif output.code == 0:
        yield line("no output", "dim")
    if output.code is None:
        why = f": {on_one_line(output.ended)}" if output.ended else " before it was done"
        yield line(f"ended by us{why}", "warn")
    elif output.code:
        yield line(f"exit code {output.code}", "bad")


def _head(diff: Diff, room: int, directory: str) -> Line:
    rows = diff.text.split("\n")
    plus = sum(row.startswith("+") for row in rows)
    minus = sum(row.startswith("-") for row in rows)
    name = cut(on_one_line(near(diff.path, directory)), max(room - 20, 8))
    return (
        ("dim", f"{diff.kind} {name} "), ("added", f"+{plus}"), ("dim", " "),
        ("gone", f"-{minus}"),
    )  # fmt: skip


def _whole_diff(diff: Diff, room: int, directory: str) -> Iterator[Line]:
    yield _head(diff, room, directory)
    for row in diff_lines(diff.text):
        yield from chopped(row, room)


def _plain(text: str, room: int) -> list[Line]:
    rows = text_lines(text, room, "dim")
    first = rows[0] if rows else line("done", "dim")
    more = len(rows) - 1
    return [(*first, ("dim", f" (+{more} lines)"))] if more > 0 else [first]


def arguments(call: ToolCall) -> dict[str, object]:
    """The arguments as the model gave them; none if they are no JSON object."""
    try:
        return msgspec.json.decode(call.arguments, type=dict[str, object])
    except msgspec.DecodeError:
        return {}
