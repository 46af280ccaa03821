"""The pictures of a talk, read once a turn: a request at every step names them all."""

from collections.abc import Sequence
from typing import Protocol

from refold.errors import JournalError
from refold.provider.port import Pictures


class Blobs(Protocol):
    async def get(self, name: str) -> bytes: ...


class Album:
    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}

    async def of(self, names: Sequence[str], blobs: Blobs) -> Pictures:
        """The bytes of these blobs. One that is gone is left out: wires say so in words."""
        for name in names:
            if name not in self._held:
                try:
                    self._held[name] = await blobs.get(name)
                except JournalError:
                    continue
        return {name: self._held[name] for name in names if name in self._held}
