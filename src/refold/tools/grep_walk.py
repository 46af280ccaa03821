"""A program that searches files as ripgrep does, for machines without ripgrep.

`grep` starts it in the directory to be searched and parses its output, the same as of
ripgrep's JSON lines and fields that `grep` needs. It is a process of its own because a
Python pattern can run forever, and only a process can be stopped.
"""

import os
import re
import sys
from collections.abc import Iterator

import msgspec

from refold.errors import ToolFailed
from refold.place.file_walk import walk
from refold.place.files import DiskFiles
from refold.place.port import Files, Real
from refold.tools.grep import GrepQuery
from refold.tools.text_files import written
from refold.values.text import clean

_LONGEST_LINE = 200_000  # characters; fewer are shown


def main(wanted: str) -> None:
    asked = msgspec.json.decode(wanted, type=GrepQuery)
    try:
        pattern = re.compile(asked.pattern, re.IGNORECASE if asked.ignore_case else 0)
    except re.error as error:
        sys.stdout.write(f"error: {error}\n")
        sys.exit(2)
    here = os.path.realpath(os.curdir)
    files = DiskFiles(here)
    for path in _paths(here, asked, files):
        content, why = _content(Real(os.path.join(here, path)), files)
        if why or (written(content) is None and pattern.search(content.decode("latin-1"))):
            _print_skipped(path, why or "a binary file that matches")
            continue
        for kind, number, line in _hits(content, pattern, asked.context):
            _print(kind, path, number, line)


def _paths(here: str, asked: GrepQuery, files: Files) -> Iterator[str]:
    path = asked.path
    if files.kind(Real(os.path.join(here, path))) == "file":
        yield path
    else:
        found = walk(
            here,
            lambda: None,
            asked.excludes,
            lambda path, why: _print_skipped(os.path.relpath(path, here), why),
        )
        yield from (os.path.relpath(each, here) for each in found)


def _content(real: Real, files: Files) -> tuple[bytes, str]:
    """The file, through the same door as any other, or why it cannot be read."""
    try:
        return files.read(real), ""
    except ToolFailed as error:
        return b"", f"not searched: {str(error).rstrip('.')}"


def _hits(
    content: bytes, pattern: re.Pattern[str], context: int
) -> Iterator[tuple[str, int, str]]:
    text = written(content)
    if text is None:
        return
    lines = text.plain.removesuffix("\n").split("\n") if text.text else []
    hits = {at for at, line in enumerate(lines) if pattern.search(line)}
    near = {n for at in hits for n in range(at - context, at + context + 1)}
    for at in sorted(near):
        if 0 <= at < len(lines):
            yield ("match" if at in hits else "context"), at + 1, lines[at]


def _print_skipped(path: str, why: str) -> None:
    line = msgspec.json.encode(
        {"type": "skipped", "data": {"path": _carried(path), "why": why}}
    )
    sys.stdout.buffer.write(line + b"\n")


def _print(kind: str, path: str, number: int, line: str) -> None:
    data = {
        "path": _carried(path),
        "lines": {"text": clean(line[:_LONGEST_LINE])},
        "line_number": number,
    }
    sys.stdout.buffer.write(msgspec.json.encode({"type": kind, "data": data}) + b"\n")


def _carried(path: str) -> dict[str, str | bytes]:
    if clean(path) is path:
        return {"text": path}
    return {"bytes": os.fsencode(path)}  # msgspec writes bytes as base64
