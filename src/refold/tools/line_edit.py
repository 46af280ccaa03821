"""The tools `append`, `insert_line` and `replace_text`: edits that small models get right.

They need no reading before, because they cannot overwrite what was not seen: the first two
only add lines, the third names what it replaces. `edit` has the tools for other models.
"""

import re
from collections.abc import Mapping
from functools import partial

from anyio import to_thread

from refold.errors import ToolFailed
from refold.place.port import Files, Real
from refold.tools.contract import Reply, tool
from refold.tools.edit import as_in_file, not_found
from refold.tools.file_versions import change, changed, current, digest, encoded
from refold.tools.text_files import EditableText, check_sendable, piece, written
from refold.values.display import Diff
from refold.values.printable_names import escaped
from refold.values.tools import Effect

_AROUND = 1  # lines that are shown above and below


@tool(Effect.CHANGE, path="path", dry_run=True)
async def append(path: str, text: str, *, files: Files) -> Reply:
    """Add lines at the end of a file. A file that is not there is made."""
    return await to_thread.run_sync(partial(_append, path, text, files))


@tool(Effect.CHANGE, path="path", dry_run=True)
async def insert_line(
    path: str, line: int, text: str, *, files: Files, known: Mapping[str, str]
) -> Reply:
    """Insert text before a line of a file. Line 1 is the top. For others, read it first."""
    return await to_thread.run_sync(partial(_insert, path, line, text, files, known))


@tool(Effect.CHANGE, path="path", dry_run=True)
async def replace_text(path: str, old: str, new: str, *, files: Files) -> Reply:
    """Replace text in a file, everywhere it occurs."""
    return await to_thread.run_sync(partial(_replace, path, old, new, files))


def _append(path: str, text: str, files: Files) -> Reply:
    check_sendable(text, "text")
    real, added = files.real(path), _lines(text)
    if files.kind(real) == "nothing":
        content = f"{added}\n".encode()
        files.write(real, content, expect="")
        diff = Diff(
            escaped(real), "created", change("", f"{added}\n").text, "", digest(content)
        )
        return Reply(f"Created {files.called(real)} with this text.", (diff,))
    before = files.read(real)
    was = _text(before, files.called(real))
    end = "" if was.plain.endswith("\n") or not was.plain else "\n"
    after = was.text + was.with_ends(f"{end}{added}\n")
    return _written(real, files, before, was, after, was.plain.count("\n") + 1 + len(end))


def _insert(
    path: str, line: int, text: str, files: Files, known: Mapping[str, str]
) -> Reply:
    check_sendable(text, "text")
    real = files.real(path)
    name = files.called(real)
    # By its number a line is only known to whoever saw this version of the file.
    before = files.read(real) if line == 1 else current(real, files, known)
    was = _text(before, name)
    lines = was.text.split("\n")
    lines = [f"{each}\n" for each in lines[:-1]] + [each for each in lines[-1:] if each]
    if not 1 <= line <= len(lines) + 1:
        raise ToolFailed(
            f"{name} has {len(lines)} lines: line must be 1 to {len(lines) + 1}."
        )
    if lines and line == len(lines) + 1 and not lines[-1].endswith("\n"):
        lines[-1] = was.with_ends(f"{lines[-1]}\n")
    lines.insert(line - 1, was.with_ends(f"{_lines(text)}\n"))
    return _written(real, files, before, was, "".join(lines), line)


def _replace(path: str, old: str, new: str, files: Files) -> Reply:
    check_sendable(new, "new")
    real = files.real(path)
    name = files.called(real)
    before = files.read(real)
    was = _text(before, name)
    old, new = as_in_file(old, was.plain), as_in_file(new, was.plain)
    if not old or old == new:
        raise ToolFailed("old must be the text in the file, and new what it becomes.")
    at = was.plain.find(old)
    if at < 0:
        raise ToolFailed(not_found("old", was.plain, old, name))
    found = [match.start() for match in re.finditer(re.escape(old), was.plain)]
    after = was.replaced(found, old, new)  # each line keeps its end
    return _written(real, files, before, was, after, was.plain.count("\n", 0, at) + 1)


def _text(content: bytes, name: str) -> EditableText:
    was = written(content)
    if was is None:
        raise ToolFailed(f"{name} is not text.")
    return was


def _lines(text: str) -> str:
    text = text.replace("\r\n", "\n").strip("\n")
    if not text.strip():
        raise ToolFailed("text is empty: there is nothing to add.")
    return text


def _written(
    real: Real, files: Files, before: bytes, was: EditableText, after: str, line: int
) -> Reply:
    """Write `after`, which has the line ends of the file, and show what is around it."""
    name = files.called(real)
    data = encoded(was, after, name)
    files.write(real, data, expect=digest(before))
    plain = after.replace("\r\n", "\n")
    made = change(was.plain, plain)
    shown = piece(plain, max(1, line - _AROUND), made.plus + 2 * _AROUND).text
    diff = changed(real, made, before, data)
    return Reply(f"Changed {name}. It reads there now:\n{shown}", (diff,))
