"""Secrets are masked here, before anything is written, and nowhere else.

Two kinds: values we know (provider keys), and values that look like a
well-known kind of secret. The same value always gives the same mask, so a
masked journal folds like any other.
"""

import re
from collections.abc import Iterable
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.journal import codec
from refold.values.clean import SHORTEST_SECRET, clean

T = TypeVar("T")

MASK = b"[secret]"
# Fields whose words are ours and not somebody's text. A key that happens to be one of
# them ("assistant") must not make an event into something else.
_STRUCTURE = frozenset({
    "role", "stop", "outcome", "verdict", "kind", "when", "why", "mode", "id", "call_id",
    "theirs", "wire", "name", "sender", "client_key", "whole", "before", "after",
})  # fmt: skip

# Where a word begins: inside JSON also after the escape of a line break and its like,
# and on a terminal after an order that colours what follows.
_EDGE = rb"(?:\b|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4})|(?<=[0-9;\[]m)|(?<=\[K))"
# What a secret of each kind begins with, and what it looks like inside JSON. The
# beginnings are looked for first: most texts hold none, and that is cheap to see.
# Only what a key is made of may stand between: nothing else can hide behind a mask.
_PEM = (
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:\\[nr]|[A-Za-z0-9+/=\r\n])*"
    rb"-----END [A-Z ]*PRIVATE KEY-----"
)
_SHAPES: tuple[tuple[bytes, bytes], ...] = (
    (b"sk-", _EDGE + rb"sk-[A-Za-z0-9_-]{20,}"),
    (b"gh", _EDGE + rb"gh[pousr]_[A-Za-z0-9]{36,}"),
    (b"github_pat_", _EDGE + rb"github_pat_[A-Za-z0-9_]{40,}"),
    (b"glpat-", _EDGE + rb"glpat-[A-Za-z0-9_-]{20,}"),
    (b"xox", _EDGE + rb"xox[abprs]-[A-Za-z0-9-]{20,}"),
    (b"AKIA", _EDGE + rb"AKIA[A-Z0-9]{16}\b"),
    (b"AIza", _EDGE + rb"AIza[A-Za-z0-9_-]{35}"),
    (b"hf_", _EDGE + rb"hf_[A-Za-z0-9]{30,}"),
    (b"npm_", _EDGE + rb"npm_[A-Za-z0-9]{36}"),
    (b"pypi-", _EDGE + rb"pypi-[A-Za-z0-9_-]{50,}"),
    (b"eyJ", _EDGE + rb"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    (b"PRIVATE KEY", _PEM),
)  # fmt: skip


class Masks:
    def __init__(self, values: Iterable[str] = ()) -> None:
        self._exact: tuple[bytes, ...] = ()
        self.learn(*values)

    def learn(self, *values: str) -> None:
        """These too from now on: a key may come to light in the middle of a session."""
        # What is no Unicode can stand in no event either.
        usable = {clean(v) for v in values if len(v) >= SHORTEST_SECRET}
        # As in an event and as in a blob; the longest first, for one may begin another.
        written = {form for v in usable for form in (codec.as_in_json(v), v.encode())}
        self._exact = tuple(sorted({*self._exact, *written}, key=len, reverse=True))

    def masked(self, value: T) -> T:
        """An event, or what one holds, without its secrets. Its shape stays."""
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
        for value in self._exact:
            if value in data:
                data = data.replace(value, MASK)
        for start, shape in _SHAPES:
            if start in data:
                data = re.sub(shape, MASK, data)
        return data
