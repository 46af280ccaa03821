"""What a request says of files: they are shown before the work, and checked after it.

For small models. `request_words` finds what a request expects; `policies.fulfilment` decides when
files are shown, and what happens with problems. Files that may
not be read are neither shown nor checked.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256

import anyio
from msgspec import Raw
from msgspec.json import encode

from refold.engine.checkpoint import save_if_changed
from refold.engine.decide import CheckRequest, ShowFiles
from refold.engine.nested_call import call_within, key_of
from refold.engine.request_words import Expected
from refold.engine.world import Record, World
from refold.errors import ToolFailed
from refold.journal.events.child_events import NestedCallMade
from refold.journal.events.kinds import FilesShown, RequestChecked, Started
from refold.journal.state.fold import View
from refold.journal.state.turn import Turn
from refold.place.port import Files
from refold.values.messages import ToolCall
from refold.values.printable_names import escaped
from refold.values.text import clean

_LARGEST = 1_000_000  # bytes of a file that is looked at
_MOST = 8  # problems: more are not corrected in one go
_SHOWN = 80  # characters of a line

_READER = "read_file"
_MOST_FILES = 4  # that are shown
_LARGEST_FILE = 2_000  # bytes: some seconds of reading on two cores
_LINE_NUMBER = r"(?m)^ *\d+\t"
_THERE = "These files are there already:"
_CHANGED = "After that call:"
_ANSWER = "If the answer stands there, give it now."
_MISSING = "Not there yet: {names}"


async def handle(
    action: ShowFiles | CheckRequest, world: World, record: Record, by: str
) -> None:
    match action:
        case ShowFiles():
            await record(await _shown(action, world, record), by=by)
        case CheckRequest():
            await record(await _checked(action, world, record), by=by)


async def _shown(action: ShowFiles, world: World, record: Record) -> FilesShown:
    """The small files that are new to the model, or changed. Each is read by a call."""
    turn, parts = record.view.turn, list[str]()
    shown = dict[str, str]()
    kinds = await _kinds_and_hashes(action.names, world.files)
    for name, (kind, hash_) in kinds.items():
        changed = kind == "file" and hash_ and hash_ != turn.files_shown.hashes.get(name)
        if (
            changed
            and len(shown) < _MOST_FILES
            and (text := await _read(name, world, record))
        ):
            shown[name] = hash_
            parts.append(f"{name}:\n{text}")
    introduction = _CHANGED if turn.steps else _THERE
    if parts and action.question:
        parts.append(_ANSWER)
    notes = ["\n\n".join((introduction, *parts))] if parts else []
    missing = [name for name, (kind, _) in kinds.items() if kind == "nothing"]
    if missing and not turn.steps:
        notes.append(_MISSING.format(names=", ".join(missing)))
    return FilesShown(tuple(notes), tuple(shown.items()))


async def _kinds_and_hashes(
    names: Sequence[str], files: Files | None
) -> Mapping[str, tuple[str, str]]:
    """For each name what is there, and the sha256 of a file that is small enough."""

    def look(name: str, files: Files) -> tuple[str, str]:
        kind, content = _kind(name, files), b""
        if kind == "file":
            with suppress(ToolFailed):  # it is too large
                content = files.read(files.real(name), _LARGEST_FILE)
        return kind, sha256(content).hexdigest() if content else ""

    def look_at_all(files: Files) -> Mapping[str, tuple[str, str]]:
        return {name: look(name, files) for name in names}

    return {} if files is None else await anyio.to_thread.run_sync(look_at_all, files)


async def _read(name: str, world: World, record: Record) -> str:
    """Its text, without line numbers; "" if that needs approval."""
    from refold.engine.calls import begin, run_alone

    turn = record.view.turn
    id_ = f"named-{turn.seq}-{turn.steps}-{key_of(name)[:8]}"
    call = ToolCall(id_, _READER, Raw(encode({"path": name})))
    if record.view.conversation.call(id_) is None:  # else it was begun before a crash
        opening = begin(call, world, record.view)
        if not any(isinstance(event, Started) for event in opening):
            return ""
    result = await call_within(NestedCallMade(call, ""), world, record, run_alone)
    return "" if result.failed else re.sub(_LINE_NUMBER, "", result.text)


async def _checked(action: CheckRequest, world: World, record: Record) -> RequestChecked:
    """What does not hold."""
    found = list(action.problems)
    await save_if_changed(world, record)  # what commands have changed is known after this
    if world.files is not None and action.expected:
        look = partial(_problems, action, world.files, record.view)
        found += await anyio.to_thread.run_sync(look, world.snapshots is not None)
    return RequestChecked(tuple(dict.fromkeys(found))[:_MOST])


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
