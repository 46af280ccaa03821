"""The tools `list_files` and `glob`: find files by directory and by name.

Files that git ignores are left out, or marked. `grep` searches in files.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from time import monotonic
from typing import Annotated

from anyio import from_thread, to_thread
from msgspec import Meta

from refold.errors import ToolFailed
from refold.place.port import Commands, DirectoryEntry, Files, Real
from refold.tools.contract import Reply, tool
from refold.values.display import Note
from refold.values.printable_names import escaped
from refold.values.tools import Effect

_MOST_ITEMS = 500
_MOST_FOUND = 200
_TIMEOUT = 60.0  # seconds
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
    from refold.place.file_walk import in_repository

    # Outside of a repository it would not look at .gitignore at all. Inside, without
    # this, it stops at the top of the repository, as git does.
    anywhere = () if in_repository(where) else ("--no-require-git",)
    return (*_RIPGREP, *anywhere)


def _listed(path: str, files: Files) -> Reply:
    from refold.place.file_walk import ignoring

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
    from shlex import join

    line = join((*await to_thread.run_sync(ripgrep, where), "--files", "--null"))
    done = await commands.run(line, cwd=where, seconds=_TIMEOUT)
    if done.timed_out or done.dropped:
        raise ToolFailed(_TOO_MANY)
    return [
        os.fsdecode(name)
        for name in done.start.split(b"\0") + done.end.split(b"\0")
        if name
    ]


def _by_walking(where: str) -> list[str]:
    from refold.place.file_walk import walk

    too_late = monotonic() + _TIMEOUT

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


_TOKEN = r"(?s)\*+|\?|\[!?\]?[^\]/]*\]|\\.|."
_BRACES = r"(?s)\\.|\[!?\]?[^\]/]*\]|[{},]"
_MOST = 256  # patterns that braces stand for
_LONGEST = 4096  # characters, as of a path

_Matches = Callable[[str], object]


def matcher(pattern: str) -> Callable[[str], bool]:
    """A test on relative paths. Raises `ToolFailed` for a pattern with no sense."""
    if len(pattern) > _LONGEST:
        raise ToolFailed(
            f"The pattern is {len(pattern)} characters long; {_LONGEST} are most."
        )
    plain = pattern.removeprefix("./")
    whole = "/" in plain
    try:
        tests = [_of_path(each) for each in _alternatives(plain.lstrip("/"))]
    except re.error as error:
        raise ToolFailed(f"The pattern {pattern!r} makes no sense: {error}.") from error
    if len(tests) == 1 and whole:
        return lambda path: bool(tests[0](path))
    if len(tests) == 1:
        return lambda path: bool(tests[0](path.rpartition("/")[2]))
    if not whole:
        return lambda path: any(test(path.rpartition("/")[2]) for test in tests)
    return lambda path: any(test(path) for test in tests)


def _of_path(pattern: str) -> _Matches:
    parts = pattern.split("/")
    deep = [at for at, part in enumerate(parts) if part == "**"]
    if len(deep) > 1:
        tests = [None if part == "**" else _part(part) for part in parts]
        return partial(_fits, tests)
    # The usual case, in one look.
    if not deep:
        return re.compile("/".join(map(_regex, parts)), re.DOTALL).fullmatch
    if deep[0] == len(parts) - 1:
        before = "".join(f"{_regex(part)}/" for part in parts[:-1])
        return re.compile(f"{before}.*", re.DOTALL).fullmatch
    before = "".join(f"{_regex(part)}/" for part in parts[: deep[0]])
    after = "/".join(map(_regex, parts[deep[0] + 1 :]))
    return re.compile(f"{before}(?:[^/]+/)*{after}", re.DOTALL).fullmatch


def _fits(tests: Sequence[_Matches | None], path: str) -> bool:
    """Part by part; `reached` are the places in the pattern that the parts so far lead to."""
    reached = _passing({0}, tests)
    for part in path.split("/"):
        if tests[-1] is None and len(tests) - 1 in reached:
            return True  # a `**` at the end takes all that is left
        taken = {at for at in reached if at < len(tests) and tests[at] is None}
        for at in reached:
            if at < len(tests) and (test := tests[at]) is not None and test(part):
                taken.add(at + 1)
        reached = _passing(taken, tests)
    return len(tests) in reached


def _passing(reached: set[int], tests: Sequence[_Matches | None]) -> set[int]:
    """A `**` that is not the last part may match nothing."""
    found = set(reached)
    for at in sorted(reached):
        while at < len(tests) - 1 and tests[at] is None:
            at += 1
            found.add(at)
    return found


def _part(pattern: str) -> _Matches:
    return re.compile(_regex(pattern), re.DOTALL).fullmatch


def _regex(pattern: str) -> str:
    """The matcher of one part. The text between two `*` is searched once, and cached."""
    runs = [""]
    for found in re.finditer(_TOKEN, pattern):
        if found[0].startswith("*"):
            runs.append("")
        else:
            runs[-1] += _one(found[0])
    first, *rest = runs
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>[^/]*?{run})" for run in middle if run) + f"[^/]*{last}"


def _one(token: str) -> str:
    """A regular expression for exactly one character."""
    if token == "?":
        return "[^/]"
    if token.startswith("[") and len(token) > 1:
        inner = token[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"(?!/)[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return re.escape(token[1:] if token.startswith("\\") and len(token) > 1 else token)


def _alternatives(pattern: str) -> Sequence[str]:
    """`a{b,c{d,e}}` is ab, acd and ace. Braces without a partner are literal."""
    waiting, found = [pattern], list[str]()
    while waiting:
        if len(waiting) + len(found) > _MOST:
            raise ToolFailed(
                f"The pattern {pattern!r} stands for more than {_MOST} patterns."
            )
        one = waiting.pop()
        if (choice := _first_choice(one)) is None:
            found.append(one)
        else:
            waiting += choice
    return found


def _first_choice(pattern: str) -> list[str] | None:
    depth, cuts = 0, list[int]()
    for token in re.finditer(_BRACES, pattern):
        match token[0]:
            case "{":
                depth += 1
                cuts += [token.start()] if depth == 1 else []
            case "," if depth == 1:
                cuts.append(token.start())
            case "}" if depth:
                depth -= 1
                if not depth:
                    return list(_chosen(pattern, [*cuts, token.start()]))
            case _:
                pass
    if depth:
        raise ToolFailed(f"The pattern {pattern!r} makes no sense: a brace is not closed.")
    return None


def _chosen(pattern: str, cuts: Sequence[int]) -> Iterator[str]:
    for start, end in pairwise(cuts):
        yield pattern[: cuts[0]] + pattern[start + 1 : end] + pattern[cuts[-1] + 1 :]
