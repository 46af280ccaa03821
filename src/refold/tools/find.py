"""The tools `list_files` and `glob`: find files by directory and by name.

Files that git ignores are left out, or marked. `grep` searches in files, and `tree` lists what is
below a directory.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from shlex import quote
from time import monotonic
from typing import Annotated

from anyio import from_thread, to_thread
from msgspec import Meta

from refold.errors import ToolFailed
from refold.place.port import (
    Commands,
    DirectoryEntry,
    Files,
    Finished,
    Ignores,
    Real,
    SearchScope,
)
from refold.tools.contract import Reply, tool
from refold.values.display import Note
from refold.values.path_globs import MAX_PATTERN_CHARS, regex
from refold.values.printable_names import escape_name, shorten
from refold.values.tools import Effect

_MAX_ITEMS = 500
_MAX_FOUND = 200
_TIMEOUT_SECONDS = 60.0
_MAX_PATTERN_SHOWN_CHARS = 200  # of an invalid pattern, in a message
_MAX_NAMED = 20  # hidden files named in a message
_COMPLAINT_PATTERN = re.compile(rb"(?:rg: )?(.+): ([^:]+) \(os error \d+\)")
_RIPGREP_COMMAND = (
    "rg", "--no-config", "--hidden", "--glob", "!.git", "--no-ignore-global",
)  # fmt: skip
_TOO_MANY_FILES = "There are too many files to look through: give a narrower path."


@tool(Effect.LOOK, path="path")
async def list_files(path: str = ".", *, files: Files) -> Reply:
    """List one directory: names, sizes, and what git ignores."""
    return await to_thread.run_sync(partial(_list_directory, path, files))


@tool(Effect.LOOK, subject="pattern", path="path")
async def glob(
    pattern: Annotated[str, Meta(description="like *.py or src/**/*.ts")],
    path: str = ".",
    *,
    files: Files,
) -> Reply:
    """Find files by name, newest first. Ignored files are left out."""
    matches = matcher(pattern)
    directory_path, name = await to_thread.run_sync(partial(find_directory, path, files))
    below, unread = await to_thread.run_sync(partial(_walk, directory_path, files))

    def display_name(path: str) -> str:
        return files.display_name(
            Real(os.path.normpath(os.path.join(directory_path, path)))
        )

    # Directories that rules hide are not named.
    left_out = {
        path: why
        for path, why in unread.items()
        if not files.why_unreadable(Real(os.path.join(directory_path, path)))
    }
    note_text = f"\n{not_shown_text(left_out, display_name)}" if left_out else ""
    matching = [path for path in below if matches(path)]
    paths = await to_thread.run_sync(
        partial(_sort_readable_by_age, directory_path, matching, files)
    )
    note = (Note(f"found {len(paths):,} files for {escape_name(pattern)}"),)
    if not paths:
        ignored = await to_thread.run_sync(
            partial(_ignored_clause, directory_path, matches, files)
        )
        return Reply(f"No file below {name} matches {pattern}{ignored}.{note_text}", note)
    lines = [display_name(path) for path in paths[:_MAX_FOUND]]
    if len(paths) > _MAX_FOUND:
        lines.append(f"(the {_MAX_FOUND} newest of {len(paths):,}; narrow the pattern)")
    return Reply("\n".join(lines) + note_text, note)


def not_shown_text(left_out: Mapping[str, str], display_name: Callable[[str], str]) -> str:
    """Return a sentence about the files that are not shown.

    `left_out` maps each path to a reason; the path "" stands for further lines.
    """
    names = list[str]()
    for path, reason in left_out.items():
        name = display_name(path) if path else "more lines"
        names.append(f"{name} ({reason})")
    further_count = len(names) - _MAX_NAMED
    more_text = f", and {further_count} more" if further_count > 0 else ""
    return f"Not shown: {', '.join(names[:_MAX_NAMED])}{more_text}."


def _ignored_clause(
    directory_path: str, matches: Callable[[str], bool], files: Files
) -> str:
    """Return a clause with the number of matching files that git ignores, or "" for none."""
    count = sum(
        matches(os.path.relpath(path, directory_path))
        and not files.why_unreadable(Real(path))
        for path in files.tree.with_ignored(Real(directory_path))
    )
    noun = "file that is" if count == 1 else "files that are"
    tools = "list_files and read_file show ignored files"
    return f", except {count:,} {noun} ignored: {tools}" if count else ""


def find_directory(path: str, files: Files) -> tuple[Real, str]:
    """Return the real path and the display name of a directory.

    Raises `ToolFailed` if it is not a directory.
    """
    real = files.real(path)
    name = files.display_name(real)
    match files.kind(real):
        case "directory":
            return real, name
        case "nothing":
            raise ToolFailed(f"There is no directory {name}.")
        case _:
            raise ToolFailed(f"{name} is not a directory.")


def ripgrep(directory_path: str, scope: SearchScope) -> tuple[str, ...]:
    """Return the command line with which ripgrep finds what refold's own walk finds."""
    # Outside of a repository ripgrep would ignore .gitignore. Inside, without this option,
    # it stops at the top of the repository, as git does.
    anywhere = () if scope.is_in_repository else ("--no-require-git",)
    excludes = excludes_input(directory_path, scope)
    own = ("--ignore-file", "/dev/stdin") if excludes else ()
    return (*_RIPGREP_COMMAND, *anywhere, *own)


def excludes_input(directory_path: str, scope: SearchScope) -> str:
    """Return the patterns of the user's own exclude file, as input for ripgrep in this
    directory.

    ripgrep applies the patterns relative to `directory_path`, but git relative to the
    repository. Patterns for other directories are left out.
    """
    below = os.path.relpath(directory_path, scope.top) if scope.top else "."
    patterns = (
        _relative(line.removesuffix("\r"), below) for line in scope.excludes.split("\n")
    )
    return "".join(f"{pattern}\n" for pattern in patterns if pattern)


def _relative(line: str, folder: str) -> str:
    """Return a line of git's exclude file as a pattern relative to `folder`.

    Return "" for a comment, and for a pattern that can match nothing in `folder`.
    """
    if line.startswith("#"):
        return ""
    sign = "!" if line.startswith("!") else ""
    pattern = line.removeprefix("!")
    # A pattern without a slash before its end applies in every directory.
    anchored = "/" in pattern.rstrip().removesuffix("/") and not pattern.startswith("**/")
    if not anchored or folder == ".":
        return line
    path = pattern.removeprefix("/")
    start = f"{folder}/"
    return f"{sign}/{path.removeprefix(start)}" if path.startswith(start) else ""


def with_input(line: str, text: str) -> str:
    """Return the shell command `line` with `text` as input; unchanged if `text` is ""."""
    return f"printf %s {quote(text)} | {line}" if text else line


def _list_directory(path: str, files: Files) -> Reply:
    """Return the entries of a directory, each with a mark if git ignores it."""
    real, name = find_directory(path, files)
    rules = files.tree.rules(real)
    items = items_in_order(real, rules, files)
    rows = [_row(item, rules.ignored or ignored) for item, ignored in items]
    if len(rows) > _MAX_ITEMS:
        rows[_MAX_ITEMS:] = [f"(and {len(rows) - _MAX_ITEMS:,} more; glob finds by name)"]
    note = Note(f"listed {name}, {len(items):,} names")
    return Reply("\n".join(rows) or f"{name} is empty.", (note,))


def items_in_order(
    real: Real, rules: Ignores, files: Files
) -> list[tuple[DirectoryEntry, bool]]:
    """Return the entries of a directory, directories first.

    The bool says whether git ignores the entry, according to `rules`.
    """
    items = [
        (item, rules.ignores(item.name, directory=item.kind == "directory"))
        for item in files.items(real)
    ]
    return sorted(items, key=lambda item: item[0].kind != "directory")


def _row(item: DirectoryEntry, ignored: bool) -> str:
    """Return a line about a directory entry: name, size or kind, and whether it is ignored."""
    name = escape_name(item.name)
    mark = "\tignored" if ignored else ""
    match item.kind:
        case "directory":
            return f"{name}/{mark}"
        case "file":
            return f"{name}\t{_size(item.size)}{mark}"
        case "link":
            return f"{name}\tlink{mark}"
        case _:
            return f"{name}\tdevice or pipe{mark}"


def _size(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    return f"{size / 1024:.1f} KiB" if size < 1024**2 else f"{size / 1024**2:.1f} MiB"


async def run_search(
    line: Sequence[str], directory_path: str, commands: Commands, excludes: str = ""
) -> Finished:
    """Run ripgrep or refold's own search program. Its errors come last in the output.

    `excludes` is the input of the program.
    """
    from shlex import join

    run = with_input(f"{join(line)} 2>&1 >&3 3>&-", excludes)
    # 3 is the standard output. `said` holds the errors until the program has exited.
    script = f'exec 3>&1; said=$({run}); code=$?; echo "$said"; exit $code'
    return await commands.run(script, cwd=directory_path, seconds=_TIMEOUT_SECONDS)


def parse_complaints(lines: Iterable[bytes]) -> dict[str, str]:
    """Parse the error lines of ripgrep. Return why it could not read each path."""
    reasons = dict[str, str]()
    for line in lines:
        if match := _COMPLAINT_PATTERN.fullmatch(line):
            path = os.fsdecode(match[1]).removeprefix("./")
            reasons[path] = os.fsdecode(match[2]).lower()
    return reasons


def _walk(directory_path: Real, files: Files) -> tuple[Sequence[str], Mapping[str, str]]:
    """Return the files below a directory, and why some directories could not be read."""
    deadline = monotonic() + _TIMEOUT_SECONDS

    def check() -> None:
        from_thread.check_cancelled()
        if monotonic() > deadline:
            raise ToolFailed(_TOO_MANY_FILES)

    walked = files.tree.walk(directory_path, check)
    return walked.paths, walked.unread


def _sort_readable_by_age(
    directory_path: Real, paths: list[str], files: Files
) -> list[str]:
    """Return those of the paths that may be read, newest first."""
    readable = [
        path
        for path in paths
        if not files.why_unreadable(Real(os.path.join(directory_path, path)))
    ]
    times = files.tree.times(directory_path, readable)
    pairs = zip(times, readable, strict=True)
    newest_first = sorted(pairs, key=lambda pair: (-pair[0], pair[1]))
    return [path for _, path in newest_first]


_BRACES_PATTERN = r"(?s)\\.|\[!?\]?[^\]/]*\]|[{},]"
_MAX_ALTERNATIVES = 256  # patterns from one brace expansion


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether a relative path matches the pattern.

    Raises `ToolFailed` for an invalid pattern.
    """
    plain = pattern.removeprefix("./")
    compares_path = "/" in plain  # a pattern without a slash is compared with the name
    try:
        tests = [
            re.compile(regex(alternative), re.DOTALL).fullmatch
            for alternative in _alternatives(plain.lstrip("/"))
        ]
    except ValueError as error:
        raise ToolFailed(
            f"The pattern {shorten(pattern, _MAX_PATTERN_SHOWN_CHARS)!r} is invalid: {error}."
        ) from error

    def matches(path: str) -> bool:
        part = path if compares_path else path.rpartition("/")[2]
        return any(test(part) for test in tests)

    return matches


def _alternatives(pattern: str) -> Sequence[str]:
    """Return the patterns that a pattern with braces stands for.

    `a{b,c{d,e}}` stands for ab, acd and ace. A closing brace without an opening one is literal.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolFailed(
            f"The pattern is {len(pattern)} characters long; {MAX_PATTERN_CHARS} are most."
        )
    waiting, patterns = [pattern], list[str]()
    while waiting:
        if len(waiting) + len(patterns) > _MAX_ALTERNATIVES:
            raise ToolFailed(
                f"The pattern {pattern!r} stands for more than {_MAX_ALTERNATIVES} patterns."
            )
        current = waiting.pop()
        if (choice := _first_choice(current)) is None:
            patterns.append(current)
        else:
            waiting += choice
    return patterns


def _first_choice(pattern: str) -> list[str] | None:
    """Return the patterns that the first pair of braces stands for; None without braces.

    Raises `ToolFailed` if a brace is not closed.
    """
    depth = 0
    # The offsets of the opening brace of the pair, and of its commas.
    separators = list[int]()
    for token in re.finditer(_BRACES_PATTERN, pattern):
        match token[0]:
            case "{":
                depth += 1
                if depth == 1:
                    separators.append(token.start())
            case "," if depth == 1:
                separators.append(token.start())
            case "}" if depth:
                depth -= 1
                if depth == 0:
                    return list(_choices(pattern, [*separators, token.start()]))
            case _:
                pass
    if depth:
        raise ToolFailed(f"The pattern {pattern!r} is invalid: a brace is not closed.")
    return None


def _choices(pattern: str, cuts: Sequence[int]) -> Iterator[str]:
    """Yield the pattern once for each alternative in a pair of braces.

    `cuts` are the offsets of the braces and the commas between them.
    """
    before, after = pattern[: cuts[0]], pattern[cuts[-1] + 1 :]
    for start, end in pairwise(cuts):
        alternative = pattern[start + 1 : end]
        yield f"{before}{alternative}{after}"
