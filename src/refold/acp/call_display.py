"""Converts a tool call to its display in an editor: title, kind, files and differences. Pure.

`session_updates` decides when something is shown.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from acp.schema import FileEditToolCallContent, ToolCallLocation
from msgspec import Raw, Struct

from refold.client.types import Tool
from refold.errors import ToolFailed
from refold.values.messages import ToolCall
from refold.values.tools import Effect
from refold.views.call_summary import label

Kind = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode",
    "other",
]  # fmt: skip

_EDITOR_KINDS: Mapping[str, Kind] = {
    "grep": "search", "glob": "search", "list_files": "search", "tree": "search", "enter_plan_mode": "switch_mode",
    "exit_plan_mode": "switch_mode", "python": "execute",
}  # fmt: skip
_KIND_BY_EFFECT: Mapping[Effect, Kind] = {
    Effect.LOOK: "read", Effect.CHANGE: "edit", Effect.RUN: "execute", Effect.NET: "fetch",
    Effect.ASK: "other", Effect.SELF: "think",
}  # fmt: skip
# The header of a hunk in a unified diff, with its first line in the new file.
_HUNK_HEADER = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")


class CallDisplay(Struct, frozen=True):
    title: str
    kind: Kind
    locations: tuple[ToolCallLocation, ...]


def call_display(
    name: str, arguments: object, tool: Tool | None, directory: str
) -> CallDisplay:
    """Return the display of a call in an editor.

    Relative paths in the call are relative to `directory`; all paths in the display are
    absolute.
    """
    call = ToolCall("", name, Raw(msgspec.json.encode(arguments)))

    default_kind = "other" if tool is None else _KIND_BY_EFFECT[tool.effect]
    kind = _EDITOR_KINDS.get(name, default_kind)
    return CallDisplay(label(call, tool), kind, _locations(call, tool, directory))


def edits(
    path: str, kind: str, text: str, directory: str
) -> Sequence[FileEditToolCallContent]:
    """Return each hunk of a unified diff as the old and the new text of the file `path`.

    The diff has no file headers. If `kind` is "created", there is no old text.
    """
    file = str(Path(directory, path))
    return [
        FileEditToolCallContent(
            type="diff",
            path=file,
            old_text=None if kind == "created" else old,
            new_text=new,
        )
        for old, new in _hunks(text)
    ]


def first_changed_line(text: str) -> int | None:
    """Return the line at which the first hunk of a diff begins in the new file.

    Return None if the diff has no hunk.
    """
    match = _HUNK_HEADER.search(text)
    return max(int(match[1]), 1) if match else None


def _hunks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the old and the new text of each hunk."""
    old, new = list[str](), list[str]()
    last_sides: tuple[list[str], ...] = ()  # those that the last row was added to
    for row in text.split("\n"):
        mark = row[:1]
        line = f"{row[1:]}\n"
        if row.startswith("@@"):
            if old or new:
                yield "".join(old), "".join(new)
            old, new = [], []
        elif mark == "\\":  # \ No newline at end of file
            for side in last_sides:
                side[-1] = side[-1].removesuffix("\n")
        elif mark in ("-", "+", " "):
            last_sides = {"-": (old,), "+": (new,), " ": (old, new)}[mark]
            for side in last_sides:
                side.append(line)
    if old or new:
        yield "".join(old), "".join(new)


def _locations(
    call: ToolCall, tool: Tool | None, directory: str
) -> tuple[ToolCallLocation, ...]:
    """Return the files that a call names; () for invalid arguments, or without a tool."""
    if tool is None:
        return ()
    try:
        names = tool.names_files(tool.parse(call.arguments))
    except ToolFailed:
        return ()
    return tuple(
        ToolCallLocation(path=str(Path(directory, name))) for name in names if name
    )
