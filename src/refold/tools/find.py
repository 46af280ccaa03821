"""The tools that find files: by directory, and by name.

What git is told to ignore is left out, or marked. Searching in files is
`search`'s.
"""

import os
import shlex
from functools import partial
from time import monotonic
from typing import Annotated

from anyio import from_thread, to_thread
from msgspec import Meta

from refold.errors import ToolFailed
from refold.place.names import escaped
from refold.place.port import Commands, DirectoryEntry, Files, Real
from refold.tools.contract import Reply, tool
from refold.tools.globs import matcher
from refold.values.shown import Note
from refold.values.tools import Effect

_MOST_ITEMS = 500
_MOST_FOUND = 200
_PATIENCE = 60.0  # seconds
_RIPGREP = (
    "rg", "--no-config", "--no-messages", "--hidden", "--glob", "!.git",
    "--no-ignore-global", "--no-ignore-exclude",
)  # fmt: skip
_TOO_MANY = "There are too many files to look through: give a narrower path."


@tool(Effect.LOOK, path="path")
async def list_files(path: str = ".", *, files: Files) -> Reply:
    """List one directory: names, sizes, and what git ignores."""
    return await to_thread.run_sync(partial(_listed, path, files))


@tool(Effect.LOOK, subject="pattern", path="path")
async def glob(
    pattern: Annotated[str, Meta(description="like *.py or src/**/*.ts")],
    path: str = ".",
    *,
    files: Files,
    commands: Commands,
) -> Reply:
    """Find files by name, newest first. Ignored files are left out."""
    matches = matcher(pattern)
    where, name = await to_thread.run_sync(partial(directory, path, files))
    if commands.has("rg"):
        below = await _by_ripgrep(where, commands)
    else:
        below = await to_thread.run_sync(partial(_by_walking, where))
    found = await to_thread.run_sync(
        partial(_newest, where, [p for p in below if matches(p)], files)
    )
    note = (Note(f"found {len(found):,} files for {escaped(pattern)}"),)
    if not found:
        return Reply(f"No file below {name} matches {pattern}.", note)
    lines = [files.called(Real(os.path.join(where, p))) for p in found[:_MOST_FOUND]]
    if len(found) > _MOST_FOUND:
        lines.append(f"(the {_MOST_FOUND} newest of {len(found):,}; narrow the pattern)")
    return Reply("\n".join(lines), note)


def directory(path: str, files: Files) -> tuple[Real, str]:
    """A directory as its real path and as it is called. Raises where it is none."""
    real = files.real(path)
    name = files.called(real)
    match files.kind(real):
        case "directory":
            return real, name
        case "nothing":
            raise ToolFailed(f"There is no directory {name}.")
        case _:
            raise ToolFailed(f"{name} is not a directory.")


def ripgrep(where: str) -> tuple[str, ...]:
    """How ripgrep is called so that it finds what our own walk finds."""
    from refold.place.walk import in_repository

    # Outside of a repository it would not look at .gitignore at all. Inside, without
    # this, it stops at the top of the repository, as git does.
    anywhere = () if in_repository(where) else ("--no-require-git",)
    return (*_RIPGREP, *anywhere)


def _listed(path: str, files: Files) -> Reply:
    from refold.place.walk import ignoring

    real, name = directory(path, files)
    items = files.items(real)
    rules = ignoring(real)
    rows = [_row(i, rules.ignores(i.name, directory=i.kind == "directory")) for i in items]
    rows.sort(key=lambda row: not row.partition("\t")[0].endswith("/"))
    if len(rows) > _MOST_ITEMS:
        rows[_MOST_ITEMS:] = [f"(and {len(rows) - _MOST_ITEMS:,} more; glob finds by name)"]
    note = Note(f"listed {name}, {len(items):,} names")
    return Reply("\n".join(rows) or f"{name} is empty.", (note,))


def _row(item: DirectoryEntry, ignored: bool) -> str:
    name = escaped(item.name)
    mark = "\tignored" if ignored else ""
    match item.kind:
        case "directory":
            return f"{name}/{mark}"
        case "file":
            return f"{name}\t{_size(item.size)}{mark}"
        case _:
            return f"{name}\t{item.kind if item.kind == 'link' else 'device or pipe'}{mark}"


def _size(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    return f"{size / 1024:.1f} KiB" if size < 1024**2 else f"{size / 1024**2:.1f} MiB"


async def _by_ripgrep(where: str, commands: Commands) -> list[str]:
    line = shlex.join((*await to_thread.run_sync(ripgrep, where), "--files", "--null"))
    done = await commands.run(line, cwd=where, seconds=_PATIENCE)
    if done.timed_out or done.dropped:
        raise ToolFailed(_TOO_MANY)
    return [
        os.fsdecode(name)
        for name in done.start.split(b"\0") + done.end.split(b"\0")
        if name
    ]


def _by_walking(where: str) -> list[str]:
    from refold.place.walk import walk

    too_late = monotonic() + _PATIENCE

    def on_step() -> None:
        from_thread.check_cancelled()
        if monotonic() > too_late:
            raise ToolFailed(_TOO_MANY)

    return [os.path.relpath(p, where) for p in walk(where, on_step)]


def _newest(where: str, found: list[str], files: Files) -> list[str]:
    shown = [p for p in found if not files.unread(Real(os.path.join(where, p)))]

    def age(path: str) -> tuple[float, str]:
        try:
            return -os.lstat(os.path.join(where, path)).st_mtime, path
        except OSError:  # gone since
            return 0.0, path

    return sorted(shown, key=age)
