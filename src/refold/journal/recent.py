"""What the newest answers of the turn under way called, and what came of it.

Facts only: whether a turn goes in circles is judged by the policies in `engine`. It is
kept apart from the talk because that is told shorter now and then, and a circle must not
get lost with it. What a person says on the way makes calling the same again reasonable:
it begins anew then.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from refold.journal.events import Ended, Entry, ModelAnswered, Started, TakenUp, TurnStarted
from refold.values.log import Log
from refold.values.messages import ToolCall
from refold.values.shown import Output, Shown

HEARS = (TurnStarted, TakenUp, ModelAnswered, Started, Ended)

_COMMAND = 500  # characters of one, to see what kind it is

# Two runs that fail alike differ in these. Cells of Python are numbered through.
_BY_CHANCE = (
    r"\b\d+(?:\.\d+)?\s?(?:ms|s|secs?|seconds?)\b|\b0x[0-9a-fA-F]{4,}\b"
    r"|\bcell \d+(?=, line \d)"
)


class Did(Struct, frozen=True):
    """A call. `arguments`, `result` and `error` are hashes; "" is nothing."""

    id: str
    name: str
    arguments: str  # whatever the order of their names, and the spaces between
    command: str = ""  # the beginning, where it has one
    since: float = 0.0  # when it was started
    took: float = 0.0  # seconds
    result: str = ""
    failed: bool = False
    error: str = ""  # of what it said, where it failed and said something


class Answer(Struct, frozen=True):
    """A whole answer, by its calls. There is at least one."""

    calls: tuple[Did, ...]


class Recent(Struct, frozen=True):
    """`calls` are those of the newest answer; they may be open still."""

    earlier: Log[Answer] = field(default_factory=Log[Answer])
    calls: tuple[Did, ...] = ()

    @property
    def newest_first(self) -> Iterator[Answer]:
        if self.calls:
            yield Answer(self.calls)
        yield from reversed(self.earlier)


def apply(recent: Recent, entry: Entry) -> Recent:
    match entry.event:
        case TurnStarted() | TakenUp():
            return Recent()
        case ModelAnswered(message) if message.calls:
            earlier = recent.earlier
            before = earlier.plus(Answer(recent.calls)) if recent.calls else earlier
            return Recent(before, tuple(map(_called, message.calls)))
        case Started(id_):
            return _with(recent, id_, lambda did: replace(did, since=entry.at))
        case Ended(id_):
            end, at = entry.event, entry.at
            return _with(recent, id_, lambda did: _ended(did, end, at))
        case _:
            return recent


def _called(call: ToolCall) -> Did:
    command, content = "", bytes(call.arguments)
    try:
        found: object = msgspec.json.decode(call.arguments)
        content = msgspec.json.encode(found, order="sorted")
    except (msgspec.DecodeError, RecursionError):
        return Did(call.id, call.name, _hash(content))  # it says what it says
    match found:
        case {"command": str(line)}:
            command = line[:_COMMAND]
        case _:
            pass
    return Did(call.id, call.name, _hash(content), command)


def _with(recent: Recent, id_: str, change: Callable[[Did], Did]) -> Recent:
    """Only a call of the newest answer can still be open."""
    calls = tuple(change(did) if did.id == id_ else did for did in recent.calls)
    return Recent(recent.earlier, calls)


def _ended(did: Did, end: Ended, at: float) -> Did:
    failed, says = _failure(end)
    text = re.sub(_BY_CHANCE, "…", end.text) if failed else end.text
    hashed = _hash(text.encode(errors="replace"))
    return replace(
        did,
        took=max(0.0, at - did.since) if did.since else 0.0,
        result=hashed,
        failed=failed,
        error=hashed if failed and says else "",
    )


def _failure(end: Ended) -> tuple[bool, bool]:
    """Did it fail, and does it say anything of it? Finding nothing is silent."""
    printed = _printed(end.shown)
    if end.outcome == "done" and printed is not None:
        return printed.code != 0, bool(printed.text.strip())
    return end.outcome == "failed", bool(end.text.strip())


def _printed(shown: Sequence[Shown]) -> Output | None:
    return next((part for part in shown if isinstance(part, Output)), None)


def _hash(content: bytes) -> str:
    return blake2b(content, digest_size=12).hexdigest()
