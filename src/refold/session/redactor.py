"""Replaces secrets before anything is written. No other module does this.

There are two kinds: known values (provider keys), and values that look like a well-known
kind of secret (`secret_patterns`). The same value always gets the same replacement, so a
redacted journal folds like any other. `stream_redactor` handles text that arrives in
pieces.
"""

from collections.abc import Iterable
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.journal.events import codec
from refold.session import secret_patterns
from refold.values.text import SHORTEST_SECRET, clean

T = TypeVar("T")

MASK = b"[secret]"
# Fields whose words are ours and not somebody's text. A key that happens to be one of
# them ("assistant") must not make an event into something else.
_STRUCTURE = frozenset({
    "role", "stop", "outcome", "verdict", "kind", "when", "why", "mode", "id", "call_id",
    "provider_id", "media_type", "wire", "name", "sender", "client_key", "full_blob", "before", "after",
})  # fmt: skip


class Redactor:
    def __init__(self, values: Iterable[str] = ()) -> None:
        self._exact: tuple[bytes, ...] = ()
        self.learn(*values)

    def learn(self, *values: str) -> None:
        """Redact these values, too, from now on: a key may be found in the middle of a
        session.
        """
        # What is no Unicode can stand in no event either.
        usable = {clean(v) for v in values if len(v) >= SHORTEST_SECRET}
        # As in an event and as in a blob; the longest first, for one may begin another.
        written = {form for v in usable for form in (codec.as_in_json(v), v.encode())}
        self._exact = tuple(sorted({*self._exact, *written}, key=len, reverse=True))

    def masked(self, value: T) -> T:
        """An event, or a part of one, without its secrets. Its shape stays."""
        found: Any = value
        match found:
            case str():
                # A piece of live news may end in half a character.
                data = self.mask(found.encode("utf-8", "surrogatepass"))
                found = data.decode("utf-8", "surrogatepass")
            case Raw():
                found = self._json(found)
            case tuple():
                found = tuple(self.masked(each) for each in cast("tuple[Any, ...]", found))
            case list():
                found = [self.masked(each) for each in cast("list[Any]", found)]
            case dict():
                items = cast("dict[str, Any]", found).items()
                found = {self.masked(key): self.masked(each) for key, each in items}
            case Struct():
                names = [n for n in found.__struct_fields__ if n not in _STRUCTURE]
                found = replace(found, **{n: self.masked(getattr(found, n)) for n in names})
            case _:
                pass
        return found

    def _json(self, raw: Raw) -> Raw:
        try:
            return Raw(msgspec.json.encode(self.masked(msgspec.json.decode(raw))))
        except (msgspec.DecodeError, RecursionError):
            return Raw(msgspec.json.encode(MASK.decode()))

    def mask(self, data: bytes) -> bytes:
        """`data`, which is JSON or plain text, without its secrets."""
        return secret_patterns.masked(self.without_known(data), MASK)

    def without_known(self, data: bytes) -> bytes:
        """The first step of that: only known values are replaced."""
        for value in self._exact:
            if value in data:
                data = data.replace(value, MASK)
        return data

    def known_from(self, data: bytes) -> int:
        """Where at the end of `data` a known value may have begun; its length if nowhere."""
        cut = min((_begun(value, data) for value in self._exact), default=len(data))
        # One that is all there is not cut for the sake of another that begins in it.
        while cut < len(data) and (across := self._across(data, cut)) != -1:
            cut = across
        return cut

    def _across(self, data: bytes, cut: int) -> int:
        found = (
            data.find(value, max(0, cut - len(value) + 1), cut + len(value) - 1)
            for value in self._exact
        )
        return min((at for at in found if at != -1), default=-1)


def _begun(value: bytes, data: bytes) -> int:
    """The offset of the longest beginning of `value` that `data` ends with."""
    at = data.find(value[:1], max(0, len(data) - len(value) + 1))
    while at != -1 and not value.startswith(data[at:]):
        at = data.find(value[:1], at + 1)
    return len(data) if at == -1 else at
