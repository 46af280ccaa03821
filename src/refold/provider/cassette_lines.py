"""What stands in a cassette: its lines, and how two requests compare. No I/O but `read`.

    {"cassette": 1}
    {"asked": 1, "as": 0, "same": 0, "messages": [...], "request": {"system": "...", ...}}
    {"answered": 1, "deltas": [{"delta": "text", "text": "Yes."}, {"delta": "done", ...}]}
    {"asked": 2, "as": 1, "same": 3, "messages": [...]}
    {"answered": 2, "deltas": [], "error": {"kind": "Overloaded", "words": "...", ...}}

A call begins with the first `same` messages of the call `as` (the one before of the
same session) and adds its `messages`; of the `request` only what has changed since is
told. So a file grows as its session does. Where a message stands in a journal is no
part of the question, and neither is how it is watched. JSON that we only carry is a
string, to the byte; a picture is told by its digest. What ends early has
`"stopped": true`, or no answer at all.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.errors import (
    BadInput,
    Overloaded,
    ProviderError,
    Refused,
    TooLong,
    Unreachable,
)
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Pictures,
    Request,
    Retrying,
    TextDelta,
    ThinkingDelta,
)
from refold.values.log import Log
from refold.values.messages import Spoken

VERSION = 1

Mask: TypeAlias = Callable[[bytes], bytes]
Plain: TypeAlias = Any  # what JSON can say


def unmasked(data: bytes) -> bytes:
    return data


class Asked(Struct, frozen=True):
    """A request as plain values. `line` and `answered_at`: between which lines it ran."""

    fields: dict[str, Plain]
    messages: Log[Plain]
    number: int = 0
    line: int = 0
    answered_at: int = 0


class Answered(Struct, frozen=True):
    number: int
    deltas: tuple[Delta, ...] = ()
    error: ProviderError | None = None
    stopped: bool = False


class Calls(Struct, frozen=True):
    """A whole cassette. `broken_at`: the line that was cut off, if one was."""

    asked: tuple[Asked, ...]
    answers: dict[int, Answered]
    broken_at: int = 0


class Plainly:
    """Requests as plain values. What was in the request before is not done again."""

    def __init__(self, mask: Mask = unmasked) -> None:
        self._mask = mask
        self._known: dict[str, tuple[Log[Spoken], Asked]] = {}  # the last of each session
        self._digests: dict[str, tuple[bytes, str]] = {}

    def asked(self, request: Request, number: int = 0) -> Asked:
        return self._next(request, number)[0]

    def adopt(self, asked: Asked, equal: Asked) -> None:
        """`equal` is as good as `asked`: what is the same object need not be compared."""
        session = asked.fields["session"]
        talk, _ = self._known[session]
        self._known[session] = talk, replace(asked, messages=equal.messages)

    def news(self, number: int, request: Request) -> dict[str, Plain]:
        """The line of a call: what is different from the one before."""
        now, before, same = self._next(request, number)
        line: dict[str, Plain] = {"asked": number, "as": before.number, "same": same}
        line["messages"] = list(now.messages[same:])
        known = before.fields
        changed = {k: v for k, v in now.fields.items() if k not in known or v != known[k]}
        return {**line, "request": changed} if changed else line

    def _next(self, request: Request, number: int) -> tuple[Asked, Asked, int]:
        talk, before = self._known.get(request.session) or (Log[Spoken](), nothing())
        same = _same(talk, request.messages)
        plain = before.messages
        if same < len(plain):
            plain = Log(plain[:same])
        for spoken in request.messages[same:]:
            plain = plain.plus(to_plain(spoken.message, self._mask))
        now = Asked(self._fields(request), plain, number)
        self._known[request.session] = request.messages, now
        return now, before, same

    def _fields(self, request: Request) -> dict[str, Plain]:
        plain = {n: to_plain(getattr(request, n), self._mask) for n in _fields()}
        return {**plain, "pictures": self._told(request.pictures)}

    def _told(self, pictures: Pictures) -> dict[str, str]:
        told: dict[str, str] = {}
        for name, data in sorted(pictures.items()):
            known = self._digests.get(name)
            if known is None or known[0] is not data:
                known = self._digests[name] = data, f"sha256:{sha256(data).hexdigest()}"
            told[name] = known[1]
        return told


def nothing() -> Asked:
    """What a first call is compared with."""
    return Asked({}, Log[Plain]())


def to_plain(value: object, mask: Mask = unmasked) -> Plain:
    """`value` as JSON can say it. A struct leaves out what is as it is by default."""
    match value:
        case Struct():
            config = value.__struct_config__
            tag = {} if config.tag is None else {str(config.tag_field): config.tag}
            return {**tag, **_own(value, mask)}
        case Raw():
            return mask(bytes(value)).decode("utf-8", "surrogateescape")
        case str():
            return _masked(value, mask)
        case tuple() | list():
            return [to_plain(each, mask) for each in cast("Sequence[object]", value)]
        case Mapping():
            found = cast("Mapping[str, object]", value)
            return {_masked(k, mask): to_plain(v, mask) for k, v in found.items()}
        case _:
            return value


def line_of(value: dict[str, Plain]) -> bytes:
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return written.encode() + b"\n"
    except UnicodeEncodeError:  # half a character; escaped it can be written
        return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def answer_to_line(answer: Answered, mask: Mask = unmasked) -> bytes:
    deltas = [
        {"delta": _KIND_OF[type(delta)], **_own(delta, mask)}
        for delta in joined(answer.deltas)
    ]
    line: dict[str, Plain] = {"answered": answer.number, "deltas": deltas}
    if (error := answer.error) is not None:
        kind = next(kind for kind in _ERRORS if isinstance(error, kind))
        told = {"kind": kind.__name__, "words": _masked(str(error), mask)}
        wait = error.retry_after if isinstance(error, Overloaded) else None
        line["error"] = told if wait is None else {**told, "retry_after": wait}
    return line_of({**line, "stopped": True} if answer.stopped else line)


def joined(deltas: Iterable[Delta]) -> tuple[Delta, ...]:
    """Neighbours that mean the same as one are one. The order stays."""
    found: list[Delta] = []
    for delta in deltas:
        one = _as_one(found[-1], delta) if found else None
        if one is None:
            found.append(delta)
        else:
            found[-1] = one
    return tuple(found)


def read(file: Path) -> Calls:
    """All calls of a cassette. Raises `BadInput` that names the file and the line."""
    try:
        *lines, rest = file.read_bytes().split(b"\n")
    except OSError as error:
        raise BadInput(f"the cassette {file} cannot be read: {error}") from error
    _check(file, lines)
    asked: dict[int, Asked] = {}
    answers: dict[int, Answered] = {}
    for number, line in enumerate(lines[1:], start=2):
        try:
            found = json.loads(line)
            if "asked" in found:
                asked[found["asked"]] = _asked(found, number, asked)
            else:
                answers[found["answered"]] = _answered(found)
                at = found["answered"]
                asked[at] = replace(asked[at], answered_at=number)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise BadInput(
                f"the cassette {file}, line {number}, cannot be read "
                f"({type(error).__name__}: {error}): record it anew"
            ) from error
    ends = len(lines) + 1
    whole = (a if a.answered_at else replace(a, answered_at=ends) for a in asked.values())
    return Calls(tuple(whole), answers, ends if rest else 0)


# Words that are ours: a key that happens to be one of them must not change them.
_OURS = frozenset({"role", "stop", "wire", "tool_choice", "effort"})
_KIND_OF: dict[type, str] = {
    TextDelta: "text",
    ThinkingDelta: "thinking",
    CallDelta: "call",
    Retrying: "retrying",
    Done: "done",
}
_DELTAS: dict[str, type[Delta]] = {
    "text": TextDelta,
    "thinking": ThinkingDelta,
    "call": CallDelta,
    "retrying": Retrying,
    "done": Done,
}
_ERRORS: tuple[type[ProviderError], ...] = (
    TooLong,
    Refused,
    Overloaded,
    Unreachable,
    ProviderError,
)


def _fields() -> tuple[str, ...]:
    """Those of a request that are told as they are."""
    apart = ("messages", "pictures", "trace")
    return tuple(name for name in Request.__struct_fields__ if name not in apart)


def _own(value: Struct, mask: Mask) -> dict[str, Plain]:
    names, defaults = value.__struct_fields__, value.__struct_defaults__
    needed = len(names) - len(defaults)
    found: dict[str, Plain] = {}
    for at, name in enumerate(names):
        held = getattr(value, name)
        if at < needed or held != defaults[at - needed]:
            found[name] = held if name in _OURS else to_plain(held, mask)
    return found


def _masked(text: str, mask: Mask) -> str:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        # Two halves of one character come back from JSON as that character.
        data = text.encode("utf-16-le", "surrogatepass")
        text = data.decode("utf-16-le", "surrogatepass")
        data = text.encode("utf-8", "surrogatepass")
    return text if mask is unmasked else mask(data).decode("utf-8", "surrogatepass")


def _same(before: Log[Spoken], now: Log[Spoken]) -> int:
    """With how many messages both begin."""
    same = 0
    for old, new in zip(before, now, strict=False):
        if old.message is not new.message and old.message != new.message:
            break
        same += 1
    return same


def _as_one(first: Delta, second: Delta) -> Delta | None:
    match first, second:
        case TextDelta(before), TextDelta(after):
            return TextDelta(before + after)
        case ThinkingDelta(before, wire, data), ThinkingDelta(after) if not (
            bytes(data) or wire
        ):
            return replace(second, text=before + after)
        case CallDelta(index, before, _, _, "", data), CallDelta(
            again, after, "", "", "", more
        ) if index == again and not bytes(data) and not bytes(more):
            return replace(first, arguments=before + after)
        case _:
            return None


def _check(file: Path, lines: list[bytes]) -> None:
    try:
        version = json.loads(lines[0])["cassette"]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise BadInput(
            f'{file} is no cassette: its first line should be {{"cassette": {VERSION}}}'
        ) from error
    if version != VERSION:
        raise BadInput(
            f"the cassette {file} is of version {version!r}, and this refold reads "
            f"version {VERSION}: record it anew"
        )


def _asked(found: dict[str, Plain], line: int, asked: Mapping[int, Asked]) -> Asked:
    before = asked[found["as"]] if found["as"] else nothing()
    messages, same = before.messages, found["same"]
    if same < len(messages):
        messages = Log(messages[:same])
    for message in found["messages"]:
        messages = messages.plus(message)
    fields = {**before.fields, **found.get("request", {})}
    return Asked(fields, messages, found["asked"], line)


def _answered(found: dict[str, Plain]) -> Answered:
    deltas = tuple(_delta(each) for each in found["deltas"])
    error = _error(found["error"]) if "error" in found else None
    return Answered(found["answered"], deltas, error, found.get("stopped", False))


def _delta(found: dict[str, Plain]) -> Delta:
    kind, data = _DELTAS[found["delta"]], found.get("data")
    fields = {k: v for k, v in found.items() if k not in ("delta", "data")}
    delta = msgspec.convert(fields, kind)
    if data is not None and isinstance(delta, ThinkingDelta | CallDelta):
        return replace(delta, data=Raw(data.encode("utf-8", "surrogateescape")))
    return delta


def _error(found: dict[str, Plain]) -> ProviderError:
    kind = next(kind for kind in _ERRORS if kind.__name__ == found["kind"])
    if kind is Overloaded:
        return Overloaded(found["words"], retry_after=found.get("retry_after"))
    return kind(found["words"])
