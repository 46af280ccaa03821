"""What OpenRouter tells of a model's reasoning, so that it can have it back.

Each model thinks in another shape: words, a summary, something sealed. It comes in
pieces beside the answer, and belongs into `reasoning_details` of the answer when
that is sent again, whole and in its order.

https://openrouter.ai/docs/use-cases/reasoning-tokens
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

# Of a block that comes in pieces: what grows. All else is said once, or again.
_GROWS = ("text", "summary")


def thought_in(details: Iterable[dict[str, Any]]) -> str:
    """The words among them, for people."""
    words = (detail.get(name) for detail in details for name in _GROWS)
    return "".join(word for word in words if isinstance(word, str))


def joined(pieces: Iterable[dict[str, Any]]) -> Raw | None:
    """All of it, as it goes back; None if it cannot be said in JSON."""
    blocks: list[_Block] = []
    for piece in pieces:
        if not (blocks and blocks[-1].goes_on(piece)):
            blocks.append(_Block())
        blocks[-1].add(piece)
    try:
        return Raw(msgspec.json.encode([block.whole() for block in blocks]))
    except (UnicodeEncodeError, OverflowError):  # half a character, a huge number
        return None


class _Block:
    def __init__(self) -> None:
        self._said: dict[str, Any] = {}
        self._grown: dict[str, list[str]] = {}

    def goes_on(self, piece: dict[str, Any]) -> bool:
        """Words go on where they have the same number. What is sealed comes whole."""
        sealed = piece.get("type") == "reasoning.encrypted"
        same = (self._said.get(name) == piece.get(name) for name in ("type", "index"))
        return not sealed and all(same)

    def add(self, piece: dict[str, Any]) -> None:
        for name, value in piece.items():
            if name in _GROWS and isinstance(value, str):
                self._said.setdefault(name, "")
                self._grown.setdefault(name, []).append(value)
            elif value is not None:
                self._said[name] = value

    def whole(self) -> dict[str, Any]:
        return self._said | {name: "".join(said) for name, said in self._grown.items()}
