"""The tool `grep`: searches in files with ripgrep, or with refold's own search program.

Both print the same JSON lines, so one function parses them. `grep_walk` is refold's program. It
runs in a separate process, because a pattern that never finishes can be stopped only there.

Both find the files themselves. `place.file_walk` remembers a list of files, but using it here
would save nothing: most of the time is spent reading files (ripgrep lists 80,000 in 0.14 s),
and that many names do not fit into the arguments of a program.
"""

import binascii
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct

from refold.errors import ToolFailed
from refold.place.port import Commands, Files, Finished, Real, SearchScope
from refold.tools.contract import Reply, tool
from refold.tools.find import (
    excludes_input,
    matcher,
    not_shown_text,
    parse_complaints,
    ripgrep,
    run_search,
)
from refold.tools.text_files import decode_text, shorten_line
from refold.values.display import Note
from refold.values.printable_names import escape_name
from refold.values.tools import Effect

_MAX_LINES = 300
_MAX_LINE_CHARS = 400
_TIMEOUT_SECONDS = 60.0
_NOTHING_FOUND = "Nothing was found."
_ALL_IGNORED = (
    "Nothing was found: all files there are ignored. To search in one, give it as the path; "
    "list_files shows them."
)
_NAMES_OPTIONS = ("--files-with-matches", "--null")
_BINARY_REASON = "a binary file that matches"
_LONG_LINES_REASON = "it matches, in lines that are too long"
_MORE_LINES = {"": "there were too many, or too long ones: narrow the search"}
_WALK_SCRIPT = (
    "import sys; sys.path[:] = sys.argv[1].split(':');"
    "from refold.tools.grep_walk import main; main(sys.argv[2])"
)


class GrepQuery(Struct, frozen=True):
    """What to search for, and how. `grep_walk` gets it as JSON."""

    pattern: str
    path: str
    ignore_case: bool = False
    context: int = 0
    excludes: str = ""  # the user's own exclude file, which a sandbox may hide


class MatchedLine(Struct, frozen=True):
    path: str
    number: int
    text: str
    match: bool


@tool(Effect.LOOK, subject="pattern", path="path")
async def grep(  # noqa: PLR0913 - the parameters are the schema
    pattern: Annotated[str, Meta(description="regular expression")],
    path: str = ".",
    glob: Annotated[str, Meta(description="only files like *.py")] = "",
    ignore_case: bool = False,
    context: Annotated[int, Meta(ge=0, le=20, description="lines around")] = 0,
    files_only: bool = False,
    *,
    files: Files,
    commands: Commands,
) -> Reply:
    """Search in file contents. Ignored and binary files are left out."""
    directory_path, target = await to_thread.run_sync(partial(_search_root, path, files))
    query = GrepQuery(pattern, target, ignore_case, 0 if files_only else context)
    scope = await to_thread.run_sync(files.tree.scope, Real(directory_path))
    to_command = await to_thread.run_sync(_find_search_program, commands)
    command = to_command(directory_path, query, scope)
    excludes = excludes_input(directory_path, scope) if "--ignore-file" in command else ""
    search = partial(
        run_search, directory_path=directory_path, commands=commands, excludes=excludes
    )
    result = await search(command)
    lines, left_out = _parse_output(result, pattern)
    if result.dropped:
        shown_files = {line.path for line in lines}
        left_out |= await _files_without_lines(command, shown_files, search)
    matches = matcher(glob or "**")
    lines = [line for line in lines if matches(line.path)]
    # The path "" stands for lines of unknown files.
    left_out = {path: why for path, why in left_out.items() if not path or matches(path)}
    paths = {*left_out, *(line.path for line in lines)}
    hidden = await to_thread.run_sync(
        partial(_unreadable_paths, paths, directory_path, files)
    )
    lines = [line for line in lines if line.path not in hidden]
    left_out = {path: why for path, why in left_out.items() if path not in hidden}
    display_name = partial(_display_name, files, directory_path)
    reply = _reply(lines, query, files_only, display_name)
    if reply.text == _NOTHING_FOUND and target == ".":
        all_ignored = await to_thread.run_sync(partial(_all_ignored, directory_path, files))
        reply = Reply(_ALL_IGNORED, reply.shown) if all_ignored else reply
    return _with_left_out(reply, left_out, display_name)


def _find_search_program(
    commands: Commands,
) -> Callable[[str, GrepQuery, SearchScope], Sequence[str]]:
    """Return the function that makes the command line for an available search program.

    Raises `ToolFailed` if there is none.
    """
    if commands.has("rg"):
        return _ripgrep_command
    if commands.has(sys.executable):  # false in a workspace elsewhere
        return _walk_command
    raise ToolFailed(
        "There is no ripgrep (rg) where the workspace is, which `grep` needs there: install it, "
        "or search with `bash` and grep -rn."
    )


def _search_root(path: str, files: Files) -> tuple[str, str]:
    """Return the directory in which the search runs, and its target: "." or a file name.

    Raises `ToolFailed` if `path` cannot be searched.
    """
    real = files.real(path)
    if reason := files.why_unreadable(real):
        raise ToolFailed(f"{files.display_name(real)} may not be searched: {reason}.")
    match files.kind(real):
        case "directory":
            return real, "."
        case "file":
            return os.path.dirname(real), os.path.basename(real)
        case "nothing":
            raise ToolFailed(f"There is no file or directory {files.display_name(real)}.")
        case _:
            raise ToolFailed(f"{files.display_name(real)} is a device, pipe or socket.")


def _ripgrep_command(
    directory_path: str, query: GrepQuery, scope: SearchScope
) -> Sequence[str]:
    """Return the command that searches with ripgrep and prints JSON lines."""
    options = ["--ignore-case"] if query.ignore_case else []
    options += [f"--context={query.context}", f"--regexp={query.pattern}"]
    program, *usual = ripgrep(directory_path, scope)
    options += ["--json", "--crlf", "--binary"]
    return (program, *usual, *options, "--", query.path)


def _walk_command(_where: str, query: GrepQuery, scope: SearchScope) -> Sequence[str]:
    """Return the command that searches with Python, and prints the same JSON as ripgrep."""
    query = msgspec.structs.replace(query, excludes=scope.excludes)
    # -I: no file in the workspace may be imported as a module.
    path = ":".join(p for p in sys.path if os.path.isabs(p))
    return (
        sys.executable,
        "-I",
        "-c",
        _WALK_SCRIPT,
        path,
        msgspec.json.encode(query).decode(),
    )


def _parse_output(
    result: Finished, pattern: str
) -> tuple[list[MatchedLine], dict[str, str]]:
    """Parse the output of a search for `pattern`.

    Return the found lines, sorted by path and number, and the files that were left out, each
    with the reason. Raises `ToolFailed` after the time limit and for an invalid pattern.
    """
    if result.timed_out:
        raise ToolFailed(
            f"The search took longer than {_TIMEOUT_SECONDS:.0f} s: give a narrower path "
            "or a simpler pattern."
        )
    printed = [*result.start.split(b"\n"), *result.end.split(b"\n")]
    records = [record for line in printed if (record := _parse_line(line))]
    has_failed = result.code is not None and result.code > 1
    if has_failed and not records:
        why = result.text.strip().rpartition("\n")[2].removeprefix("error: ")
        raise ToolFailed(f'The pattern "{escape_name(pattern)}" is invalid: {why}.')
    left_out = dict[str, str]()
    for kind, data in records:
        if kind == "skipped":
            left_out[_path(data)] = str(data["why"])
        elif kind == "end" and data.get("binary_offset") is not None:
            left_out[_path(data)] = _BINARY_REASON
    left_out |= parse_complaints(printed)
    lines = (_line(kind, data) for kind, data in records if kind in ("match", "context"))
    shown = (line for line in lines if line.path not in left_out)
    return sorted(shown, key=lambda line: (line.path, line.number)), left_out


async def _files_without_lines(
    command: Sequence[str],
    shown_files: set[str],
    search: Callable[[Sequence[str]], Awaitable[Finished]],
) -> dict[str, str]:
    """Return the matching files without a line in the shortened output, each with the reason.

    If these files are not known, the only key is "", which stands for further lines. `command`
    is the command line of the search.
    """
    if "--json" not in command:
        return _MORE_LINES
    program, *options = (word for word in command if word != "--json")
    result = await search((program, *_NAMES_OPTIONS, *options))
    matching_names = [*result.start.split(b"\0"), *result.end.split(b"\0")]
    paths = {os.fsdecode(name).strip("\n").removeprefix("./") for name in matching_names}
    reasons = {path: _LONG_LINES_REASON for path in sorted(paths - shown_files) if path}
    return reasons or _MORE_LINES


def _path(data: dict[str, Any]) -> str:
    return _text(data["path"]).removeprefix("./")


def _parse_line(line: bytes) -> tuple[str, dict[str, Any]] | None:
    """Return the kind and the data of one output line; None if it is not a whole record."""
    try:
        record = msgspec.json.decode(line)
        return record["type"], record["data"]
    except (msgspec.DecodeError, TypeError, KeyError):
        return None  # the line was cut by the limit for very long output


def _line(kind: str, data: dict[str, Any]) -> MatchedLine:
    text = _line_text(data["lines"]).rstrip("\r\n")
    return MatchedLine(_path(data), data["line_number"] or 0, text, match=kind == "match")


def _text(field: dict[str, str]) -> str:
    """Return the text of a field in the JSON of ripgrep, which is base64 if it is not UTF-8."""
    if "text" in field:
        return field["text"]
    return os.fsdecode(binascii.a2b_base64(field["bytes"]))


def _line_text(field: dict[str, str]) -> str:
    if "text" in field:
        return field["text"]
    decoded = decode_text(binascii.a2b_base64(field["bytes"]))
    return decoded.plain if decoded else _text(field)


def _all_ignored(directory_path: str, files: Files) -> bool:
    """Whether the directory has files, and git ignores all of them."""
    real = Real(directory_path)
    if files.tree.walk(real, lambda: None).paths:
        return False
    first_file = next(files.tree.with_ignored(real), "")
    return first_file != ""


def _unreadable_paths(paths: set[str], directory_path: str, files: Files) -> set[str]:
    """Return those of the paths whose content may not be shown."""
    return {
        p for p in paths if p and files.why_hidden(Real(os.path.join(directory_path, p)))
    }


def _with_left_out(
    reply: Reply, left_out: dict[str, str], display_name: Callable[[str], str]
) -> Reply:
    """Return the reply with a sentence about the files that are not shown."""
    if not left_out:
        return reply
    shows_nothing = reply.text in (_NOTHING_FOUND, _ALL_IGNORED)
    text = "No line can be shown." if shows_nothing else reply.text
    return Reply(f"{text}\n{not_shown_text(left_out, display_name)}", reply.shown)


def _display_name(files: Files, directory_path: str, path: str) -> str:
    return files.display_name(Real(os.path.join(directory_path, path)))


def _reply(
    matches: Sequence[MatchedLine],
    query: GrepQuery,
    files_only: bool,
    display_name: partial[str],
) -> Reply:
    """Return the reply with the matched lines or, if `files_only`, the names of their files."""
    paths = list(dict.fromkeys(line.path for line in matches))
    match_count = sum(line.match for line in matches)
    counts_text = f"{_count(match_count, 'line')} in {_count(len(paths), 'file')}"
    note = (Note(f"searched for {escape_name(query.pattern)}: {counts_text}"),)
    if not matches:
        return Reply(_NOTHING_FOUND, note)
    if files_only:
        rows = [display_name(path) for path in paths]
    else:
        rows = list(_rows(matches, display_name))
    hint = ""
    if len(rows) > _MAX_LINES:
        hint = f"; only the first {_MAX_LINES} are shown: narrow the search"
    return Reply("\n".join((*rows[:_MAX_LINES], f"({counts_text}{hint})")), note)


def _rows(matches: Sequence[MatchedLine], display_name: partial[str]) -> Iterator[str]:
    """Yield the lines of the result: each file's name, and then its lines with numbers."""
    before = MatchedLine(path="", number=0, text="", match=False)
    for line in matches:
        follows_gap = line.number > before.number + 1
        both_match = line.match and before.match
        if line.path != before.path:
            yield display_name(line.path)
        elif follows_gap and not both_match:
            yield "--"  # separates groups of lines with context, as grep does
        mark = ":" if line.match else "-"
        yield f"{line.number}{mark} {shorten_line(line.text, _MAX_LINE_CHARS)}"
        before = line


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
