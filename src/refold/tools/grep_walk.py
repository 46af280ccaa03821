"""A program that searches files as ripgrep does, for machines without ripgrep.

`grep` starts it in the directory to search, and parses its output: JSON lines with the fields
of ripgrep that `grep` needs. It is a separate process because a Python pattern can run forever,
and only a process can be stopped.
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

_MAX_LINE_CHARS = 200_000  # a longer line is cut; still fewer characters are shown


def main(wanted: str) -> None:
    """Search for `wanted`, a `GrepQuery` in JSON. Prints one JSON object for each line."""
    query = msgspec.json.decode(wanted, type=GrepQuery)
    try:
        pattern = re.compile(query.pattern, re.IGNORECASE if query.ignore_case else 0)
    except re.error as error:
        sys.stdout.write(f"error: {error}\n")
        sys.exit(2)
    directory = os.path.realpath(os.curdir)
    files = DiskFiles(directory)
    for path in _paths(directory, query, files):
        content, why = _content(Real(os.path.join(directory, path)), files)
        if why:
            _print_skipped(path, why)
            continue
        is_binary = decode_text(content) is None
        if is_binary and pattern.search(content.decode("latin-1")):
            _print_skipped(path, "a binary file that matches")
            continue
        for kind, number, line in _hits(content, pattern, query.context):
            _print(kind, path, number, line)


def _paths(directory: str, query: GrepQuery, files: Files) -> Iterator[str]:
    """Yield the files to search, relative to `directory`. Print the files that are left out."""
    path = query.path
    if files.kind(Real(os.path.join(directory, path))) == "file":
        yield path
    else:
        paths = walk(
            directory,
            on_step=lambda: None,
            excludes=query.excludes,
            on_unread=lambda folder, why: _print_skipped(
                os.path.relpath(folder, directory), why
            ),
        )
        yield from (os.path.relpath(entry, directory) for entry in paths)


def _content(real: Real, files: Files) -> tuple[bytes, str]:
    """Return the content of a file, and why it cannot be read; "" if it can be read."""
    try:
        return files.read(real), ""
    except ToolFailed as error:
        return b"", f"not searched: {str(error).rstrip('.')}"


def _hits(
    content: bytes, pattern: re.Pattern[str], context: int
) -> Iterator[tuple[str, int, str]]:
    """Yield the lines to print: the kind of each line, its number from 1, and its text.

    `context` is the number of lines before and after each match. A binary file has no lines.
    """
    text = decode_text(content)
    if text is None:
        return
    lines = text.plain.removesuffix("\n").split("\n") if text.text else []
    matching = {index for index, line in enumerate(lines) if pattern.search(line)}
    printed = set[int]()
    for index in matching:
        printed.update(range(index - context, index + context + 1))
    for index in sorted(printed):
        if 0 <= index < len(lines):
            kind = "match" if index in matching else "context"
            yield kind, index + 1, lines[index]


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
    if clean(path) is path:  # the same object, if nothing is replaced
        return {"text": path}
    return {"bytes": os.fsencode(path)}  # msgspec writes bytes as base64
