"""What a request says of files: they are shown before the work, and checked after it.

For small models. `request_words` finds what a request expects; `policies.fulfilment` decides when
files are shown, and what happens with problems. Files that may
not be read are neither shown nor checked.
"""

import posixpath
import re
import shlex
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
from refold.engine.request_text import (
    corrected_text,
    edit_call_for,
    lines_as_json,
    lost_lines,
    problems_in,
    shown_text,
    syntax_error,
)
from refold.engine.request_words import ExpectedFile
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

_MOVED_ONTO = ["nothing", "file", "nothing"]
_DEPTH = 4  # folders below a folder in which files are counted
_WORDS = (
    "no|none|zero",
    "one|single",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
)

_READER = "read_file"
_MOST_FILES = 4  # that are shown
_LARGEST_FILE = 2_000  # bytes: some seconds of reading on two cores
_LINE_NUMBER = r"(?m)^ *\d+\t"
_JSON = "keys and texts in double quotes, between { and }"
_COUNT = r"\n\(\d+ lines?\)$"
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
            parts.append(_as_shown(name, text, numbered=action.numbered))
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
    from refold.engine.calls import begin, run_with_file_locks

    turn = record.view.turn
    id_ = f"named-{turn.seq}-{turn.steps}-{key_of(name)[:8]}"
    call = ToolCall(id_, _READER, Raw(encode({"path": name})))
    if record.view.conversation.call(id_) is None:  # else it was begun before a crash
        opening = begin(call, world, record.view)
        if not any(isinstance(event, Started) for event in opening):
            return ""
    result = await call_within(NestedCallMade(call, ""), world, record, run_with_file_locks)
    return (
        "" if result.failed else re.sub(_COUNT, "", re.sub(_LINE_NUMBER, "", result.text))
    )


def _as_shown(name: str, text: str, *, numbered: bool = False) -> str:
    """The count stands above the text: below, small models take it for a part of it."""
    lines = text.split("\n")
    count = f"{len(lines)} line{'s' if len(lines) > 1 else ''}"
    if numbered:
        lines = [f"{number}: {line}" for number, line in enumerate(lines, 1)]
    return "\n".join((f"{name} ({count}):", *lines))


async def _checked(action: CheckRequest, world: World, record: Record) -> RequestChecked:
    """What does not hold."""
    found, ways = list(action.problems), list[str]()
    await save_if_changed(world, record)  # what commands have changed is known after this
    if world.files is not None and action.expected:
        look = partial(_problems, action, world.files, record.view)
        more, ways = await anyio.to_thread.run_sync(look, world.snapshots is not None)
        found += more
    return RequestChecked(tuple(dict.fromkeys(found))[:_MOST], tuple(dict.fromkeys(ways)))


def _problems(
    action: CheckRequest, files: Files, view: View, all_known: bool
) -> tuple[list[str], list[str]]:
    """With calls that would solve them. `all_known`: what commands have changed is known, too."""
    found, shown = list[str](), view.turn.files_shown
    wrong = dict[
        str, bool
    ]()  # the files that a call could put right: have they lost lines?
    for expected in action.expected:
        name, lost, problems = _of(expected, files, view.turn, all_known)
        found += problems
        if problems and name:
            wrong[name] = wrong.get(name, False) or lost
    ways = list[str]()
    for name, lost in wrong.items():
        text = _text(name, files) or ""
        wanted = shown_text(name, shown) if lost else text
        if lost and not wanted:
            continue
        for expected in action.expected:
            if name in expected.paths:
                wanted = corrected_text(expected, name, wanted)
        ways.append(edit_call_for(name, text, wanted) or _hint(name, text))
    if commands := list(_commands(action.expected, files, view.turn.answer)):
        ways.append(f"bash {encode({'command': ' && '.join(commands)}).decode()}")
    return found, list(filter(None, ways))


def _commands(expected: Sequence[ExpectedFile], files: Files, answer: str) -> Iterator[str]:
    """What moves, copies and deletes the files that the request names, as far as it is not done.

    Nothing is written over, and nothing is deleted that the request does not name.
    """
    gone = {name for each in expected if each.gone for name in each.paths}
    sources = {each.source for each in expected}
    for each in expected:
        placed = [path for path in each.paths if _kind(path, files) != "nothing"]
        if each.counted:
            if any(_miscounted(each.paths[0], files, answer)):
                yield f"ls {each.paths[0]} | wc -l"
        elif each.source and not placed:
            yield from _command_to_place(each, files, moves=each.source in gone)
        elif each.source and each.source in gone:  # it was copied
            hash_ = _hash(each.source, files)
            if hash_ and hash_ == _hash(placed[0], files) and each.source != placed[0]:
                yield shlex.join(("rm", each.source))
        elif each.gone and not sources & set(each.paths) and "*" not in each.paths[0]:
            yield from (shlex.join(("rm", name)) for name in _found(each, files))


def _command_to_place(each: ExpectedFile, files: Files, *, moves: bool) -> Iterator[str]:
    source, place = each.source, each.paths[0]
    folder, name = posixpath.split(place)
    there = _kind(source, files)
    make = [shlex.join(("mkdir", "-p", folder))] if folder else []
    if there == "file" and _kind(folder or ".", files) in ("nothing", "directory"):
        yield from make
        yield shlex.join(("mv" if moves else "cp", source, place))
    elif folder and [there, *(_kind(n, files) for n in (folder, name))] == _MOVED_ONTO:
        # "mv a.txt docs" without a folder docs: it is the file docs now.
        yield shlex.join(("mv", folder, name))
        yield from make
        yield shlex.join(("mv", name, place))


def _hint(name: str, text: str) -> str:
    """Where no call is known: which tool, and what it is to write."""
    if not text:
        return f"Make {name} with write_file."
    if name.endswith(".json") and syntax_error(name, text):
        meant = lines_as_json(text)  # an example would be copied as it is
        return (
            edit_call_for(name, text, meant)
            if meant
            else f"Write JSON into {name}: {_JSON}."
        )
    return ""


def _of(
    expected: ExpectedFile, files: Files, turn: Turn, all_known: bool
) -> tuple[str, bool, list[str]]:
    """The file, if a call could solve the problems; has it lost lines? And the problems."""
    if expected.counted:
        return "", False, list(_miscounted(expected.paths[0], files, turn.answer))
    paths = [path for each in expected.paths for path in _spelled_out(each, files)]
    kinds = {path: _kind(path, files) for path in paths}
    there = _found(expected, files)
    if "" in kinds.values():
        return "", False, []
    if expected.gone:
        return "", False, [f"{name} is still there." for name in there]
    if not there:
        made = "" if expected.source or expected.changed else paths[0]
        return made, False, [f"{paths[0]} is not there."]
    name = there[0]
    real, text = escaped(files.real(name)), _text(name, files)
    had = turn.files_shown.hashes.get(expected.source)
    if had and _hash(name, files) not in ("", had):
        return "", False, [f"{name} has not the content that {expected.source} had."]
    if text is None:
        return "", False, []
    problems = list(problems_in(expected, name, text))
    if real in turn.changed and (error := syntax_error(name, text)):
        problems.append(error)
    if expected.changed and all_known and real not in turn.changed:
        problems = [f"{name} was not changed."]
    lost = list(_losses(expected, name, text, turn, turn.lost_lines.get(real, ())))
    return name, bool(lost), [*lost, *problems]


def _found(expected: ExpectedFile, files: Files) -> list[str]:
    paths = [path for each in expected.paths for path in _spelled_out(each, files)]
    return [path for path in paths if _kind(path, files) not in ("nothing", "")]


def _miscounted(pattern: str, files: Files, answer: str) -> Iterator[str]:
    """Files in folders below may be counted, too, and the answer can be right either way."""
    folder, _, ending = pattern.rpartition("*")
    direct, below = _count(folder or ".", ending, files, _DEPTH)
    if direct < 0:
        return
    said = {int(n) for n in re.findall(r"(?<![\w.])\d{1,9}(?![\w.]*\d)", answer)}
    said |= {
        n for n, word in enumerate(_WORDS) if re.search(rf"(?i)\b(?:{word})\b", answer)
    }
    if not said & {direct, direct + below}:
        yield f"The number of files {pattern} is {direct}, and the answer does not say that."


def _count(folder: str, ending: str, files: Files, depth: int) -> tuple[int, int]:
    """The files with this ending in a folder, and those below it; -1 if it may not be looked at."""
    if _kind(folder, files) != "directory":
        return -1, 0
    direct = below = 0
    for entry in files.items(files.real(folder)):
        if entry.kind == "file" and entry.name.endswith(ending):
            direct += 1
        elif entry.kind == "directory" and depth:
            here, deeper = _count(f"{folder}/{entry.name}", ending, files, depth - 1)
            below += max(here, 0) + deeper
    return direct, below


def _losses(
    expected: ExpectedFile, name: str, text: str, turn: Turn, lines: Sequence[str]
) -> Iterator[str]:
    if lost := lost_lines(expected, lines, text):
        yield f"{name} has lost these lines, put them back: {' / '.join(lost)}"
        return
    more = _blank(shown_text(name, turn.files_shown)) - _blank(text)
    if expected.keeps and more > 0:
        yield f"{name} has lost {more} blank line{'s' if more > 1 else ''}."


def _blank(text: str) -> int:
    return sum(not line.strip() for line in text.split("\n")[:-1])


def _spelled_out(path: str, files: Files) -> Sequence[str]:
    """The files in the first directory that fit a pattern."""
    if not path.startswith("*"):
        return (path,)
    try:
        entries = files.items(files.real("."))
    except ToolFailed:
        return ()
    return sorted(e.name for e in entries if e.kind == "file" and e.name.endswith(path[1:]))


def _kind(path: str, files: Files) -> str:
    """The kind of file at this path; "" if it may not be checked."""
    try:
        real = files.real(path)
        if files.outside(path) is not None or files.unread(real) or files.unshown(real):
            return ""
        return files.kind(real)
    except ToolFailed:
        return ""


def _hash(path: str, files: Files) -> str:
    try:
        return sha256(files.read(files.real(path), _LARGEST)).hexdigest()
    except ToolFailed:
        return ""


def _text(path: str, files: Files) -> str | None:
    try:
        content = files.read(files.real(path), _LARGEST)
    except ToolFailed:
        return None
    return None if b"\0" in content else clean(content.decode(errors="replace"))
