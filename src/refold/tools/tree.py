"""The tool `tree`: lists the names below a directory, indented, to a maximum depth.

Directories near the top are listed first, so the limit omits the deepest entries. Links are not
followed. `find` has the tools that list one directory and find files by name.
"""

import os
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Annotated

from anyio import from_thread, to_thread
from msgspec import Meta

from refold.errors import ToolFailed
from refold.place.port import DirectoryEntry, Files, Ignores, Real
from refold.tools.contract import Reply, tool
from refold.tools.find import find_directory, items_in_order
from refold.values.display import Note
from refold.values.printable_names import escape_name
from refold.values.tools import Effect

_MAX_NAMES = 500
_MAX_NAMES_OF_ONE = 100  # in one directory
_UNREADABLE_SHOWN = 5


@tool(Effect.LOOK, path="path")
async def tree(
    path: str = ".",
    depth: Annotated[int, Meta(ge=1, le=20, description="levels of directories")] = 3,
    *,
    files: Files,
) -> Reply:
    """Show the directories and files below a directory as a tree, without ignored ones."""
    return await to_thread.run_sync(partial(_tree, path, depth, files))


class _Directory:
    """One directory of the tree, to be shown with `depth` levels below it.

    `left_out` counts the names that exceed the limit.
    """

    def __init__(self, real: Real, rules: Ignores, depth: int) -> None:
        self.real, self.rules, self.depth = real, rules, depth
        self.items: list[DirectoryEntry] = []
        self.below: dict[str, _Directory] = {}
        self.left_out, self.ignored = 0, 0


def _tree(path: str, depth: int, files: Files) -> Reply:
    """Return the tree below a directory, and remarks about what is left out."""
    real, name = find_directory(path, files)
    top = _Directory(real, files.tree.rules(real), depth)
    top_items = items_in_order(real, top.rules, files)  # an error here makes the call fail
    _fill(top, top_items, max_names=_MAX_NAMES)
    opened, unreadable = _fill_below(top, files)
    lines = list(_lines(top, indent=""))
    ignored = sum(part.ignored for part in opened)
    remarks = list[str]()
    if ignored:
        noun = "1 ignored name is" if ignored == 1 else f"{ignored:,} ignored names are"
        remarks.append(f"({noun} left out; list_files shows them)")
    shown = sum(len(part.items) for part in opened)
    if shown >= _MAX_NAMES:
        remarks.append(f"({shown} names, and no more: give the path of a part)")
    if unreadable:
        left_out = len(unreadable) - _UNREADABLE_SHOWN
        reasons = "; ".join(unreadable[:_UNREADABLE_SHOWN])
        more_text = f"; and {left_out:,} more" if left_out > 0 else ""
        remarks.append(f"Not listed: {reasons}{more_text}.")
    text = "\n".join((*(lines or [f"{name} is empty."]), *remarks))
    return Reply(text, (Note(f"showed {shown:,} names below {name}"),))


def _fill_below(top: _Directory, files: Files) -> tuple[list[_Directory], list[str]]:
    """List the directories below `top`, the nearest first, while there is space.

    Return the listed directories, and a clause for each one that cannot be listed.
    """
    opened, unreadable = [top], list[str]()
    names_left = _MAX_NAMES - len(top.items)
    waiting = deque([top])
    while waiting:
        parent = waiting.popleft()
        for item in parent.items:
            may_go_deeper = parent.depth > 1 and names_left > 0
            if item.kind != "directory" or not may_go_deeper:
                continue
            from_thread.check_cancelled()
            real = Real(os.path.join(parent.real, item.name))
            below = _Directory(real, files.tree.rules(real, parent.rules), parent.depth - 1)
            try:
                items = items_in_order(real, below.rules, files)
            except ToolFailed as error:
                unreadable.append(str(error).rstrip("."))
                continue
            _fill(below, items, names_left)
            names_left -= len(below.items)
            parent.below[item.name] = below
            opened.append(below)
            waiting.append(below)
    return opened, unreadable


def _fill(
    parent: _Directory, items: list[tuple[DirectoryEntry, bool]], max_names: int
) -> None:
    """Add the entries that git does not ignore, at most `max_names`, and count the others."""
    visible = [item for item, ignored in items if not ignored]
    parent.items = visible[: min(max_names, _MAX_NAMES_OF_ONE)]
    parent.left_out = len(visible) - len(parent.items)
    parent.ignored = sum(ignored and item.name != ".git" for item, ignored in items)


def _lines(parent: _Directory, indent: str) -> Iterator[str]:
    """Yield the lines for the entries of a directory and, indented, of those below it."""
    for item in parent.items:
        name = f"{indent}{escape_name(item.name)}"
        if item.kind == "directory":
            below = parent.below.get(item.name)
            yield f"{name}/" if below else f"{name}/ …"
            if below:
                yield from _lines(below, f"{indent}  ")
        else:
            yield name if item.kind == "file" else f"{name} ({_special_kind(item)})"
    if parent.left_out:
        yield f"{indent}(and {parent.left_out:,} more)"


def _special_kind(item: DirectoryEntry) -> str:
    return item.kind if item.kind == "link" else "device or pipe"
