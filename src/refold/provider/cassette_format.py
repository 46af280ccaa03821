"""The file format of a cassette: JSON lines, and their conversion from and to values.

    {"cassette": 1}
    {"asked": 1, "as": 0, "same": 0, "messages": [...], "request": {"system": "...", ...}}
    {"answered": 1, "deltas": [{"delta": "text", "text": "Yes."}, {"delta": "done", ...}]}
    {"asked": 2, "as": 1, "same": 3, "messages": [...]}
    {"answered": 2, "deltas": [], "error": {"kind": "Overloaded", "words": "...", ...}}

A call starts with the first `same` messages of call `as` (the previous one of the same
session) and adds its own `messages`; `request` has only the fields that changed since.
So a file grows linearly with its session. Sequence numbers of messages, `trace` and the
MCP servers of `hosted`, with their tokens, are not part of a request. JSON that is only passed through is stored as a string, byte for
byte; an image is stored as its digest. A call that was stopped has `"stopped": true`,
or no answer at all.
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
    BadRequest,
    Overloaded,
    ProviderError,
    Refused,
    TooLong,
    Unreachable,
    said_by,
)
from refold.provider.named_file import read_whole
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Dropped,
    HostedCall,
    HostedResult,
    Pictures,
    Request,
    Retrying,
    TextDelta,
    ThinkingDelta,
)
from refold.values.growing import Log
from refold.values.messages import StoredMessage

VERSION = 1

Plain: TypeAlias = Any  # what JSON can say

# What a delta or an error is called in a line. Of errors the first that fits.
DELTAS: dict[str, type[Delta]] = {
    "text": TextDelta,
    "thinking": ThinkingDelta,
    "call": CallDelta,
    "hosted_call": HostedCall,
    "hosted_result": HostedResult,
    "retrying": Retrying,
    "dropped": Dropped,
    "done": Done,
}
ERRORS: dict[str, type[ProviderError]] = {
    "BadRequest": BadRequest,
    "TooLong": TooLong,
    "Refused": Refused,
    "Overloaded": Overloaded,
    "Unreachable": Unreachable,
    "ProviderError": ProviderError,
}


class RecordedRequest(Struct, frozen=True):
    """A request in plain values, and its position in the file, if it is recorded.

    `fields` has all of the request but its messages, by name. It was made in `line` and
    answered in `answered_at`; calls made between the two ran at the same time.
    """

    fields: dict[str, Plain]
    messages: Log[Plain]
    number: int = 0
    line: int = 0
    answered_at: int = 0


class RecordedAnswer(Struct, frozen=True):
    """All that came of the call `number`, an error last. `stopped`: it was left there."""

    number: int
    deltas: tuple[Delta, ...] = ()
    error: ProviderError | None = None
    stopped: bool = False


class Calls(Struct, frozen=True):
    """A whole cassette. `broken_at`: the line that was cut off, if one was."""

    asked: tuple[RecordedRequest, ...]
    answers: dict[int, RecordedAnswer]
    broken_at: int = 0


def nothing() -> RecordedRequest:
    """The empty request with which a session's first call is compared."""
    return RecordedRequest({}, Log[Plain]())


_MOST = 256 * 1024 * 1024  # bytes: days of work


def read(file: Path) -> Calls:
    """All calls of a cassette. Raises `BadInput` that names the file and the line."""
    try:
        *lines, rest = read_whole(file, _MOST).split(b"\n")
    except OSError as error:
        raise BadInput(f"the cassette {file} cannot be read: {said_by(error)}") from error
    _check(file, lines)
    asked: dict[int, RecordedRequest] = {}
    answers: dict[int, RecordedAnswer] = {}
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


def _check(file: Path, lines: list[bytes]) -> None:
    try:
        version = json.loads(lines[0])["cassette"]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise BadInput(
            f'{file} is not a cassette: its first line should be {{"cassette": {VERSION}}}'
        ) from error
    if version != VERSION:
        raise BadInput(
            f"the cassette {file} is of version {version!r}, and this refold reads "
            f"version {VERSION}: record it anew"
        )


def _asked(
    found: dict[str, Plain], line: int, asked: Mapping[int, RecordedRequest]
) -> RecordedRequest:
    before = asked[found["as"]] if found["as"] else nothing()
    messages, same = before.messages, found["same"]
    if same < len(messages):
        messages = Log(messages[:same])
    for message in found["messages"]:
        messages = messages.plus(message)
    fields = {**before.fields, **found.get("request", {})}
    return RecordedRequest(fields, messages, found["asked"], line)


def _answered(found: dict[str, Plain]) -> RecordedAnswer:
    deltas = tuple(_delta(each) for each in found["deltas"])
    error = _error(found["error"]) if "error" in found else None
    return RecordedAnswer(found["answered"], deltas, error, found.get("stopped", False))


def _delta(found: dict[str, Plain]) -> Delta:
    kind, data = DELTAS[found["delta"]], found.get("data")
    fields = {k: v for k, v in found.items() if k not in ("delta", "data")}
    delta = msgspec.convert(fields, kind)
    if data is not None and isinstance(delta, ThinkingDelta | CallDelta | HostedResult):
        return replace(delta, data=Raw(data.encode("utf-8", "surrogateescape")))
    return delta


def _error(found: dict[str, Plain]) -> ProviderError:
    kind = ERRORS[found["kind"]]
    if kind is Overloaded:
        return Overloaded(found["words"], retry_after=found.get("retry_after"))
    return kind(found["words"])


def line_of(value: dict[str, Plain]) -> bytes:
    """One line, with its end."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return written.encode() + b"\n"
    except UnicodeEncodeError:  # half a character; escaped it can be written
        return json.dumps(value, separators=(",", ":")).encode() + b"\n"


Mask: TypeAlias = Callable[[bytes], bytes]


def unmasked(data: bytes) -> bytes:
    return data


def answer_to_line(answer: RecordedAnswer, mask: Mask = unmasked) -> bytes:
    """The line of an answer. Deltas are joined first, so that the mask sees whole texts."""
    deltas = [
        {"delta": _kind_of(delta), **fields_of(delta, mask)}
        for delta in joined(answer.deltas)
    ]
    line: dict[str, Plain] = {"answered": answer.number, "deltas": deltas}
    if (error := answer.error) is not None:
        kind = next(name for name, kind in ERRORS.items() if isinstance(error, kind))
        told = {"kind": kind, "words": masked(str(error), mask)}
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


def _kind_of(delta: Delta) -> str:
    return next(name for name, kind in DELTAS.items() if type(delta) is kind)


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


class PlainRequests:
    """Says requests in plain values, to write them down or to compare them.

    A request repeats nearly all that its session asked before. So the last request
    of each session is kept, and only messages that are new since then are put into
    plain values: a long session costs what its messages do, not their square.
    """

    def __init__(self, mask: Mask = unmasked) -> None:
        self._mask = mask
        self._last: dict[
            str, tuple[Log[StoredMessage], RecordedRequest]
        ] = {}  # of each session
        self._digests: dict[str, tuple[bytes, str]] = {}

    def plain(self, request: Request) -> RecordedRequest:
        """The whole request. It is the last one of its session from now on."""
        return self._next(request, 0)[0]

    def change(self, number: int, request: Request) -> dict[str, Plain]:
        """The line that says the request as a change of its session's last one.

        `number` is that of the call. The request is the last one from now on.
        """
        now, before, same = self._next(request, number)
        line: dict[str, Plain] = {"asked": number, "as": before.number, "same": same}
        line["messages"] = list(now.messages[same:])
        known = before.fields
        changed = {k: v for k, v in now.fields.items() if k not in known or v != known[k]}
        return {**line, "request": changed} if changed else line

    def share_messages(self, last: RecordedRequest, recorded: RecordedRequest) -> None:
        """Let `last`, its session's last request, have the very messages of `recorded`.

        They are equal. What is the same object is compared at once, so the session's
        next request costs a comparison of its new messages only.
        """
        session = last.fields["session"]
        spoken, _ = self._last[session]
        self._last[session] = spoken, replace(last, messages=recorded.messages)

    def _next(
        self, request: Request, number: int
    ) -> tuple[RecordedRequest, RecordedRequest, int]:
        """The request, the one before it, and with how many messages both begin."""
        spoken, before = self._last.get(request.session) or (
            Log[StoredMessage](),
            nothing(),
        )
        same = _same(spoken, request.messages)
        plain = before.messages
        if same < len(plain):
            plain = Log(plain[:same])
        for each in request.messages[same:]:
            plain = plain.plus(to_plain(each.message, self._mask))
        now = RecordedRequest(self._fields(request), plain, number)
        self._last[request.session] = request.messages, now
        return now, before, same

    def _fields(self, request: Request) -> dict[str, Plain]:
        apart = ("messages", "pictures", "trace", "hosted")
        names = (name for name in Request.__struct_fields__ if name not in apart)
        plain = {name: to_plain(getattr(request, name), self._mask) for name in names}
        return {**plain, "pictures": self._told(request.pictures)}

    def _told(self, pictures: Pictures) -> dict[str, str]:
        told: dict[str, str] = {}
        for name, data in sorted(pictures.items()):
            known = self._digests.get(name)
            if known is None or known[0] is not data:
                known = self._digests[name] = data, f"sha256:{sha256(data).hexdigest()}"
            told[name] = known[1]
        return told


def to_plain(value: object, mask: Mask = unmasked) -> Plain:
    """`value` as JSON can say it. A struct leaves out what is as it is by default."""
    match value:
        case Struct():
            config = value.__struct_config__
            tag = {} if config.tag is None else {str(config.tag_field): config.tag}
            return {**tag, **fields_of(value, mask)}
        case Raw():
            return mask(bytes(value)).decode("utf-8", "surrogateescape")
        case str():
            return masked(value, mask)
        case tuple() | list():
            return [to_plain(each, mask) for each in cast("Sequence[object]", value)]
        case Mapping():
            found = cast("Mapping[str, object]", value)
            return {masked(k, mask): to_plain(v, mask) for k, v in found.items()}
        case _:
            return value


def fields_of(value: Struct, mask: Mask = unmasked) -> dict[str, Plain]:
    """The fields of a struct that differ from their defaults."""
    names, defaults = value.__struct_fields__, value.__struct_defaults__
    needed = len(names) - len(defaults)
    found: dict[str, Plain] = {}
    for at, name in enumerate(names):
        held = getattr(value, name)
        if at < needed or held != defaults[at - needed]:
            found[name] = held if name in _OURS else to_plain(held, mask)
    return found


def masked(text: str, mask: Mask) -> str:
    """What may be written of a text."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        # Two halves of one character come back from JSON as that character.
        data = text.encode("utf-16-le", "surrogatepass")
        text = data.decode("utf-16-le", "surrogatepass")
        data = text.encode("utf-8", "surrogatepass")
    return text if mask is unmasked else mask(data).decode("utf-8", "surrogatepass")


# Words that are ours: a key that happens to be one of them must not change them.
_OURS = frozenset({"role", "stop", "wire", "tool_choice", "effort"})


def _same(before: Log[StoredMessage], now: Log[StoredMessage]) -> int:
    """With how many messages both begin."""
    same = 0
    for old, new in zip(before, now, strict=False):
        if old.message is not new.message and old.message != new.message:
            break
        same += 1
    return same
