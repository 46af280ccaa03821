"""Requests in plain values, as a cassette holds them: masked, and fit to be compared. Pure.

How the lines are written says `cassette_writing`.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TypeAlias, cast

from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.provider.cassette_lines import Plain, RecordedRequest, nothing
from refold.provider.port import Pictures, Request
from refold.values.log import Log
from refold.values.messages import Spoken

Mask: TypeAlias = Callable[[bytes], bytes]


def unmasked(data: bytes) -> bytes:
    return data


class PlainRequests:
    """Says requests in plain values, to write them down or to compare them.

    A request repeats nearly all that its session asked before. So the last request
    of each session is kept, and only messages that are new since then are put into
    plain values: a long session costs what its messages do, not their square.
    """

    def __init__(self, mask: Mask = unmasked) -> None:
        self._mask = mask
        self._last: dict[str, tuple[Log[Spoken], RecordedRequest]] = {}  # of each session
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
        spoken, before = self._last.get(request.session) or (Log[Spoken](), nothing())
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
        apart = ("messages", "pictures", "trace")
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
    """The fields of a struct, without those that are as they are by default."""
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


def _same(before: Log[Spoken], now: Log[Spoken]) -> int:
    """With how many messages both begin."""
    same = 0
    for old, new in zip(before, now, strict=False):
        if old.message is not new.message and old.message != new.message:
            break
        same += 1
    return same
