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
from refold.tools.text_files import decode_text
from refold.values.text import clean

_MAX_LINE_CHARS = 200_000  # characters; fewer are shown


def main(wanted: str) -> None:
    asked = msgspec.json.decode(wanted, type=GrepQuery)
    try:
        pattern = re.compile(asked.pattern, re.IGNORECASE if asked.ignore_case else 0)
    except re.error as error:
        sys.stdout.write(f"error: {error}\n")
        sys.exit(2)
    directory = os.path.realpath(os.curdir)
    files = DiskFiles(directory)
    for path in _paths(directory, asked, files):
        content, why = _content(Real(os.path.join(directory, path)), files)
        if why or (
            decode_text(content) is None and pattern.search(content.decode("latin-1"))
        ):
            _print_skipped(path, why or "a binary file that matches")
            continue
        for kind, number, line in _hits(content, pattern, asked.context):
            _print(kind, path, number, line)


def _paths(directory: str, query: GrepQuery, files: Files) -> Iterator[str]:
    path = query.path
    if files.kind(Real(os.path.join(directory, path))) == "file":
        yield path
    else:
        paths = walk(
            directory,
            lambda: None,
            query.excludes,
            lambda path, why: _print_skipped(os.path.relpath(path, directory), why),
        )
        yield from (os.path.relpath(entry, directory) for entry in paths)


def _content(real: Real, files: Files) -> tuple[bytes, str]:
    """The content of a file, or why it cannot be read."""
    try:
        return files.read(real), ""
    except ToolFailed as error:
        return b"", f"not searched: {str(error).rstrip('.')}"


def _hits(
    content: bytes, pattern: re.Pattern[str], context: int
) -> Iterator[tuple[str, int, str]]:
    text = decode_text(content)
    if text is None:
        return
    lines = text.plain.removesuffix("\n").split("\n") if text.text else []
    hits = {index for index, line in enumerate(lines) if pattern.search(line)}
    near = {n for index in hits for n in range(index - context, index + context + 1)}
    for index in sorted(near):
        if 0 <= index < len(lines):
            yield ("match" if index in hits else "context"), index + 1, lines[index]


def _print_skipped(path: str, reason: str) -> None:
    line = msgspec.json.encode(
        {"type": "skipped", "data": {"path": _to_field(path), "why": reason}}
    )
    sys.stdout.buffer.write(line + b"\n")


def _print(kind: str, path: str, number: int, line: str) -> None:
    data = {
        "path": _to_field(path),
        "lines": {"text": clean(line[:_MAX_LINE_CHARS])},
        "line_number": number,
    }
    sys.stdout.buffer.write(msgspec.json.encode({"type": kind, "data": data}) + b"\n")


def _to_field(path: str) -> dict[str, str | bytes]:
    if clean(path) is path:
        return {"text": path}
    return {"bytes": os.fsencode(path)}  # msgspec writes bytes as base64
