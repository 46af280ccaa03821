"""The tool `grep`: searches in files with ripgrep, or with our own search program.

Both print the same JSON lines and are parsed by one reader. `grep_walk` is a process of
its own, because that is the only way to stop a pattern that never finishes.
"""

import binascii
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct

from refold.errors import ToolFailed
from refold.place.port import Commands, Files, Finished, Real
from refold.tools.contract import Reply, tool
from refold.tools.find import matcher, ripgrep
from refold.tools.text_files import written
from refold.values.display import Note
from refold.values.printable_names import escaped
from refold.values.text import clean
from refold.values.tools import Effect

_MOST_LINES = 300
_LONGEST_LINE = 400  # characters
_TIMEOUT = 60.0  # seconds
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
    from shlex import join

    done = await commands.run(join(line), cwd=where, seconds=_TIMEOUT)
    matches = matcher(glob) if glob else None
    found = [f for f in _found(done, pattern) if matches is None or matches(f.path)]
    found = await to_thread.run_sync(partial(_readable, found, where, files))
    return _reply(found, wanted, files_only, partial(_called, files, where))


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
    return (*ripgrep(where), "--json", "--crlf", *options, "--", wanted.path)


def _by_walking(_where: str, wanted: GrepQuery) -> Sequence[str]:
    # -I: nothing that lies in the workspace may be taken for a module of Python's.
    path = ":".join(p for p in sys.path if os.path.isabs(p))
    return (sys.executable, "-I", "-c", _OURS, path, msgspec.json.encode(wanted).decode())


def _found(done: Finished, pattern: str) -> list[MatchedLine]:
    """The lines that were printed, by path and number."""
    if done.timed_out:
        raise ToolFailed(
            f"The search took longer than {_TIMEOUT:.0f} s: give a narrower path "
            "or a simpler pattern."
        )
    printed = [*done.start.split(b"\n"), *done.end.split(b"\n")]
    news = [found for line in printed if (found := _decoded(line))]
    if done.code and done.code > 1 and not news:
        why = done.text.strip().rpartition("\n")[2].removeprefix("error: ")
        raise ToolFailed(f'The pattern "{escaped(pattern)}" makes no sense: {why}.')
    lines = (_line(kind, data) for kind, data in news if kind in ("match", "context"))
    return sorted(lines, key=lambda line: (line.path, line.number))


def _decoded(line: bytes) -> tuple[str, dict[str, Any]] | None:
    try:
        found = msgspec.json.decode(line)
        return found["type"], found["data"]
    except (msgspec.DecodeError, TypeError, KeyError):
        return None  # cut in the middle of very long output


def _line(kind: str, data: dict[str, Any]) -> MatchedLine:
    text = _said(data["lines"]).rstrip("\r\n")
    path = _text(data["path"]).removeprefix("./")
    return MatchedLine(path, data["line_number"] or 0, text, kind == "match")


def _text(found: dict[str, str]) -> str:
    """ripgrep gives what is no UTF-8 as base64."""
    if "text" in found:
        return found["text"]
    return os.fsdecode(binascii.a2b_base64(found["bytes"]))


def _said(found: dict[str, str]) -> str:
    text = None if "text" in found else written(binascii.a2b_base64(found["bytes"]))
    return text.plain if text else _text(found)


def _readable(found: Sequence[MatchedLine], where: str, files: Files) -> list[MatchedLine]:
    """Without what may not be read, whichever program has read it."""
    paths = {line.path for line in found}
    hidden = {p for p in paths if files.unshown(Real(os.path.join(where, p)))}
    return [line for line in found if line.path not in hidden]


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
        return Reply("Nothing was found.", note)
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
        yield f"{line.number}{':' if line.match else '-'} {_cut(line.text)}"
        before = line


def _cut(text: str) -> str:
    text = clean(text)
    left = len(text) - _LONGEST_LINE
    return text if left <= 0 else f"{text[:_LONGEST_LINE]} [{left:,} more characters]"


def _count(many: int, what: str) -> str:
    return f"{many:,} {what}{'' if many == 1 else 's'}"
