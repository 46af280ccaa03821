"""Checks the files after the work: are they as the request wants them?

`request_words` finds what a request expects, and `policies.fulfilment` decides what happens
with the problems. Files that may not be read are not checked.
"""

import re
from collections.abc import Iterator
from functools import partial

import anyio

from refold.engine.checkpoint import save_if_changed
from refold.engine.decide import CheckRequest
from refold.engine.request_words import Expected
from refold.engine.world import Record, World
from refold.errors import ToolFailed
from refold.journal.events.kinds import RequestChecked
from refold.journal.state.fold import View
from refold.journal.state.turn import Turn
from refold.place.port import Files
from refold.values.printable_names import escaped
from refold.values.text import clean

_LARGEST = 1_000_000  # bytes of a file that is looked at
_MOST = 8  # problems: more are not corrected in one go
_SHOWN = 80  # characters of a line


async def check_request(
    action: CheckRequest, world: World, record: Record, by: str
) -> None:
    """Record what does not hold."""
    found = list(action.problems)
    await save_if_changed(world, record)  # what commands have changed is known after this
    if world.files is not None and action.expected:
        look = partial(_problems, action, world.files, record.view)
        found += await anyio.to_thread.run_sync(look, world.snapshots is not None)
    await record(RequestChecked(tuple(dict.fromkeys(found))[:_MOST]), by=by)


def _problems(action: CheckRequest, files: Files, view: View, all_known: bool) -> list[str]:
    """`all_known`: what commands have changed is known, too."""
    found = list[str]()
    for expected in action.expected:
        found += _of(expected, files, view.turn, all_known)
    return found


def _of(expected: Expected, files: Files, turn: Turn, all_known: bool) -> Iterator[str]:
    kinds = {path: _kind(path, files) for path in expected.paths}
    there = [path for path, kind in kinds.items() if kind not in ("nothing", "")]
    name = (there or expected.paths)[0]
    if "" in kinds.values():
        return
    if expected.gone:
        if there:
            yield f"{name} is still there."
        return
    if not there:
        yield f"{name} is not there."
        return
    real = escaped(files.real(name))
    if expected.grows and (gone := turn.lost_lines.get(real)):
        yield f"{name} has lost these lines, put them back: {' / '.join(gone)}"
    if expected.changed and all_known and real not in turn.changed:
        yield f"{name} was not changed."
        return
    text = _text(name, files)
    if text is not None:
        yield from _in_text(expected, name, text)


def _in_text(expected: Expected, name: str, text: str) -> Iterator[str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if expected.lacks and re.search(rf"(?<!\w){re.escape(expected.lacks)}(?!\w)", text):
        yield f"{name} still has {_short(expected.lacks)}."
    want = " ".join(expected.text.split())
    if not want:
        return
    plain = [" ".join(line.split()) for line in lines]
    if not any(want in line for line in plain):
        yield f"{name} does not have {_short(want)}. It has: {_short(' / '.join(lines))}"
        return
    if expected.near and (old := _other_value(expected.near, want, plain)):
        yield f"{name} still has {_short(old)}."
    yield from _place(expected, name, want, plain)


def _other_value(key: str, want: str, lines: list[str]) -> str:
    """A line that still gives `key` another value."""
    found = (line for line in lines if line.lower().lstrip("\"'- ").startswith(key.lower()))
    return next((line for line in found if want not in line), "")


def _place(expected: Expected, name: str, want: str, lines: list[str]) -> Iterator[str]:
    if expected.place == "last" and want not in lines[-1]:
        yield f"The last line of {name} is {_short(lines[-1])}, not {_short(want)}."
    if expected.place == "first" and want not in lines[0]:
        yield f"The first line of {name} is {_short(lines[0])}, not {_short(want)}."
    at = next(n for n, line in enumerate(lines) if want in line)
    if expected.after and (at == 0 or expected.after not in lines[at - 1]):
        yield f"{_short(want)} is not right below {_short(expected.after)} in {name}."
    elif expected.before and expected.before not in "".join(lines[at + 1 : at + 2]):
        yield f"{_short(want)} is not right above {_short(expected.before)} in {name}."


def _kind(path: str, files: Files) -> str:
    """The kind of file at this path; "" if it may not be checked."""
    try:
        real = files.real(path)
        if files.outside(path) is not None or files.unread(real) or files.unshown(real):
            return ""
        return files.kind(real)
    except ToolFailed:
        return ""


def _text(path: str, files: Files) -> str | None:
    try:
        content = files.read(files.real(path), _LARGEST)
    except ToolFailed:
        return None
    return None if b"\0" in content else clean(content.decode(errors="replace"))


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
