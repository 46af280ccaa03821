"""The tool `grep`: searches in files with ripgrep, or with our own search program.

Both print the same JSON lines and are parsed by one reader. `grep_walk` is a process of
its own, because that is the only way to stop a pattern that never finishes.
"""

import binascii
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct

from refold.errors import ToolFailed
from refold.place.port import Commands, Files, Finished, Real
from refold.tools.contract import Reply, tool
from refold.tools.find import complaints, matcher, not_shown, ripgrep, run_search
from refold.tools.text_files import clipped_line, written
from refold.values.display import Note
from refold.values.printable_names import escaped
from refold.values.tools import Effect

_MOST_LINES = 300
_LONGEST_LINE = 400  # characters
_TIMEOUT = 60.0  # seconds
_NOTHING = "Nothing was found."
_ALL_IGNORED = (
    "Nothing was found: all files there are ignored. To search in one, give it as the path; "
    "list_files shows them."
)
_NAMES = ("--files-with-matches", "--null")
_BINARY = "a binary file that matches"
_LONG = "it matches, in lines that are too long"
_CUT = {"": "there were too many, or too long ones: narrow the search"}
_OURS = (
    "import sys; sys.path[:] = sys.argv[1].split(':');"
    "from refold.tools.grep_walk import main; main(sys.argv[2])"
)


class GrepQuery(Struct, frozen=True):
    """What is searched for. This is also what `grep_walk` is given, as JSON."""

    pattern: str
    path: str
    ignore_case: bool = False
    context: int = 0
    excludes: str = ""  # the user's own, which a sandbox may hide


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
    where, below = await to_thread.run_sync(partial(_start, path, files))
    wanted = GrepQuery(pattern, below, ignore_case, 0 if files_only else context)
    by = _by_ripgrep if commands.has("rg") else _by_walking
    line = await to_thread.run_sync(by, where, wanted)
    done = await run_search(line, where, commands)
    lines, left_out = _found(done, pattern)
    if done.dropped:
        left_out |= await _dropped(line, {each.path for each in lines}, where, commands)
    matches = matcher(glob or "**")
    lines = [each for each in lines if matches(each.path)]
    left_out = {path: why for path, why in left_out.items() if not path or matches(path)}
    paths = {*left_out, *(each.path for each in lines)}
    hidden = await to_thread.run_sync(partial(_hidden, paths, where, files))
    lines = [each for each in lines if each.path not in hidden]
    called = partial(_called, files, where)
    reply = _reply(lines, wanted, files_only, called)
    if reply.text == _NOTHING and below == ".":
        all_ignored = await to_thread.run_sync(partial(_all_ignored, where))
        reply = Reply(_ALL_IGNORED, reply.shown) if all_ignored else reply
    return _naming(
        reply, {path: why for path, why in left_out.items() if path not in hidden}, called
    )


def _start(path: str, files: Files) -> tuple[str, str]:
    real = files.real(path)
    if reason := files.unread(real):
        raise ToolFailed(f"{files.called(real)} may not be searched: {reason}.")
    match files.kind(real):
        case "directory":
            return real, "."
        case "file":
            return os.path.dirname(real), os.path.basename(real)
        case "nothing":
            raise ToolFailed(f"There is no file or directory {files.called(real)}.")
        case _:
            raise ToolFailed(f"{files.called(real)} is a device, pipe or socket.")


def _by_ripgrep(where: str, wanted: GrepQuery) -> Sequence[str]:
    options = ["--ignore-case"] if wanted.ignore_case else []
    options += [f"--context={wanted.context}", f"--regexp={wanted.pattern}"]
    program, *usual = ripgrep(where)
    options += ["--json", "--crlf", "--binary"]
    return (program, *usual, *options, "--", wanted.path)


def _by_walking(_where: str, wanted: GrepQuery) -> Sequence[str]:
    from refold.place.file_walk import user_excludes

    wanted = msgspec.structs.replace(wanted, excludes=user_excludes())
    # -I: nothing that lies in the workspace may be taken for a module of Python's.
    path = ":".join(p for p in sys.path if os.path.isabs(p))
    return (sys.executable, "-I", "-c", _OURS, path, msgspec.json.encode(wanted).decode())


def _found(done: Finished, pattern: str) -> tuple[list[MatchedLine], dict[str, str]]:
    """The lines that were printed, by path and number, and files without lines, each with why."""
    if done.timed_out:
        raise ToolFailed(
            f"The search took longer than {_TIMEOUT:.0f} s: give a narrower path "
            "or a simpler pattern."
        )
    printed = [*done.start.split(b"\n"), *done.end.split(b"\n")]
    news = [found for line in printed if (found := _decoded(line))]
    if done.code and done.code > 1 and not news:
        why = done.text.strip().rpartition("\n")[2].removeprefix("error: ")
        raise ToolFailed(f'The pattern "{escaped(pattern)}" is invalid: {why}.')
    left_out = {
        _path(data): _BINARY if kind == "end" else str(data["why"])
        for kind, data in news
        if kind == "skipped" or (kind == "end" and data.get("binary_offset") is not None)
    }
    left_out |= complaints(printed)
    lines = (_line(kind, data) for kind, data in news if kind in ("match", "context"))
    shown = (line for line in lines if line.path not in left_out)
    return sorted(shown, key=lambda line: (line.path, line.number)), left_out


async def _dropped(
    line: Sequence[str], shown: set[str], where: str, commands: Commands
) -> dict[str, str]:
    """The files that match and of which no line was kept. "": there were more lines."""
    if "--json" not in line:
        return _CUT
    names = [word for word in line if word != "--json"]
    done = await run_search((*names[:1], *_NAMES, *names[1:]), where, commands)
    found = [*done.start.split(b"\0"), *done.end.split(b"\0")]
    paths = {os.fsdecode(name).strip("\n").removeprefix("./") for name in found}
    return {path: _LONG for path in sorted(paths - shown) if path} or _CUT


def _path(data: dict[str, Any]) -> str:
    return _text(data["path"]).removeprefix("./")


def _decoded(line: bytes) -> tuple[str, dict[str, Any]] | None:
    try:
        found = msgspec.json.decode(line)
        return found["type"], found["data"]
    except (msgspec.DecodeError, TypeError, KeyError):
        return None  # cut in the middle of very long output


def _line(kind: str, data: dict[str, Any]) -> MatchedLine:
    text = _said(data["lines"]).rstrip("\r\n")
    return MatchedLine(_path(data), data["line_number"] or 0, text, kind == "match")


def _text(found: dict[str, str]) -> str:
    """ripgrep gives what is no UTF-8 as base64."""
    if "text" in found:
        return found["text"]
    return os.fsdecode(binascii.a2b_base64(found["bytes"]))


def _said(found: dict[str, str]) -> str:
    text = None if "text" in found else written(binascii.a2b_base64(found["bytes"]))
    return text.plain if text else _text(found)


def _all_ignored(where: str) -> bool:
    """Is there no file to search in, though there are files?"""
    from refold.place.file_walk import all_files, walk

    return next(walk(where, lambda: None), "") == "" and next(all_files(where), "") != ""


def _hidden(paths: set[str], where: str, files: Files) -> set[str]:
    """What may not be read, whichever program has read it."""
    return {p for p in paths if p and files.unshown(Real(os.path.join(where, p)))}


def _naming(reply: Reply, left_out: dict[str, str], called: Callable[[str], str]) -> Reply:
    """The same, with the files of which it says nothing."""
    if not left_out:
        return reply
    sentence = not_shown(left_out, called)
    nothing = reply.text in (_NOTHING, _ALL_IGNORED)
    begins = "No line can be shown." if nothing else reply.text
    return Reply(f"{begins}\n{sentence}", reply.shown)


def _called(files: Files, where: str, path: str) -> str:
    return files.called(Real(os.path.join(where, path)))


def _reply(
    found: Sequence[MatchedLine], wanted: GrepQuery, files_only: bool, called: partial[str]
) -> Reply:
    paths = list(dict.fromkeys(line.path for line in found))
    matches = sum(line.match for line in found)
    about = f"{_count(matches, 'line')} in {_count(len(paths), 'file')}"
    note = (Note(f"searched for {escaped(wanted.pattern)}: {about}"),)
    if not found:
        return Reply(_NOTHING, note)
    rows = [called(path) for path in paths] if files_only else list(_rows(found, called))
    cut = len(rows) > _MOST_LINES
    more = f"; only the first {_MOST_LINES} are shown: narrow the search" if cut else ""
    return Reply("\n".join((*rows[:_MOST_LINES], f"({about}{more})")), note)


def _rows(found: Sequence[MatchedLine], called: partial[str]) -> Iterator[str]:
    before = MatchedLine("", 0, "", False)
    for line in found:
        if line.path != before.path:
            yield called(line.path)
        elif line.number > before.number + 1 and not (line.match and before.match):
            yield "--"
        yield f"{line.number}{':' if line.match else '-'} {clipped_line(line.text, _LONGEST_LINE)}"
        before = line


def _count(many: int, what: str) -> str:
    return f"{many:,} {what}{'' if many == 1 else 's'}"
