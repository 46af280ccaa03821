"""What a session knows of files: which it has seen, and how they were then.

A file may be changed only as the model last saw it. `known` gives the sha256 of each
by its printable real path; the session keeps it from what tools say they saw and wrote.
"""

from collections.abc import Mapping
from hashlib import sha256

from refold.errors import ToolFailed
from refold.place.names import escaped
from refold.place.port import Files, Real
from refold.tools.diffs import DiffText
from refold.tools.texts import EditableText
from refold.values.shown import Diff


def current(real: Real, files: Files, known: Mapping[str, str]) -> bytes:
    """The content of a file that was read here and has not changed since, or raise."""
    name = files.called(real)
    if files.kind(real) == "nothing":
        raise ToolFailed(f"There is no file {name}: write_file makes one.")
    now = files.read(real)
    if escaped(real) not in known:
        raise ToolFailed(
            f"{name} was not read in this session. Read it first, then change it."
        )
    if known[escaped(real)] != digest(now):
        raise ToolFailed(
            f"{name} has changed since you last read it. Read it again, then change it."
        )
    return now


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def encoded(was: EditableText, text: str, name: str) -> bytes:
    """`text` as bytes of a file that is written as it `was`, or raise."""
    try:
        return was.encoded(text)
    except UnicodeEncodeError as error:
        letter = text[error.start]
        raise ToolFailed(
            f"{name} is {was.encoding}, which cannot hold {letter!r}. "
            "Use other letters, or write the whole file new with write_file."
        ) from error


def changed(real: Real, made: DiffText, before: bytes, after: bytes) -> Diff:
    return Diff(escaped(real), "changed", made.text, digest(before), digest(after))
