"""Secrets are masked here, before anything is written, and nowhere else.

Two kinds: values we know (provider keys), and values that look like a
well-known kind of secret. The same value always gives the same mask, so a
masked journal folds like any other.
"""

import re
from collections.abc import Iterable

from refold.journal import codec

MASK = b"[secret]"
_SHORTEST = 6  # a "key" shorter than this is a placeholder, and a word of every text

# What a secret of each kind begins with, and what it looks like inside JSON. The
# beginnings are looked for first: most texts hold none, and that is cheap to see.
_SHAPES: tuple[tuple[bytes, bytes], ...] = (
    (b"sk-", rb"\bsk-[A-Za-z0-9_-]{20,}"),
    (b"gh", rb"\bgh[pousr]_[A-Za-z0-9]{36,}"),
    (b"github_pat_", rb"\bgithub_pat_[A-Za-z0-9_]{40,}"),
    (b"glpat-", rb"\bglpat-[A-Za-z0-9_-]{20,}"),
    (b"xox", rb"\bxox[abprs]-[A-Za-z0-9-]{20,}"),
    (b"AKIA", rb"\bAKIA[A-Z0-9]{16}\b"),
    (b"AIza", rb"\bAIza[A-Za-z0-9_-]{35}"),
    (b"hf_", rb"\bhf_[A-Za-z0-9]{30,}"),
    (b"npm_", rb"\bnpm_[A-Za-z0-9]{36}"),
    (b"pypi-", rb"\bpypi-[A-Za-z0-9_-]{50,}"),
    (b"eyJ", rb"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    (b"PRIVATE KEY", rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----"),
)  # fmt: skip


class Masks:
    def __init__(self, values: Iterable[str] = ()) -> None:
        long_enough = {v for v in values if len(v) >= _SHORTEST}
        # The longest first: one secret may be the beginning of another.
        exact = sorted({codec.as_in_json(v) for v in long_enough}, key=len, reverse=True)
        self._exact = tuple(exact)
        self._shapes = tuple((start, re.compile(shape)) for start, shape in _SHAPES)

    def mask(self, data: bytes) -> bytes:
        """`data`, which is JSON or plain text, without its secrets."""
        for value in self._exact:
            if value in data:
                data = data.replace(value, MASK)
        for start, shape in self._shapes:
            if start in data:
                data = shape.sub(MASK, data)
        return data
