"""Answers of models that are remembered, so that the same question is not asked again.

Off unless somebody sets it: a model asked twice may say two things, and sometimes that
is what one wants to know. What makes two questions the same is in the key.
"""

from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import anyio

from refold.engine.within import key_of
from refold.place.private import write
from refold.rlm.within import Journal, ModelReply, answered

Kind: TypeAlias = Literal["off", "session", "project"]


class Memo(Protocol):
    """`model` is as provider/model; `key` that of a question."""

    async def get(self, model: str, key: str) -> ModelReply | None: ...
    async def put(self, model: str, key: str, answer: ModelReply) -> None: ...


class SessionMemo:
    """All that was answered in this session, by its journal."""

    def __init__(self, record: Journal) -> None:
        self._record = record
        self._known = dict[tuple[str, str], ModelReply]()
        self._reading, self._read = anyio.Lock(), False

    async def get(self, model: str, key: str) -> ModelReply | None:
        async with self._reading:
            if not self._read:
                for asked, told in answered(await self._record.entries()):
                    known = ModelReply(told.text, told.whole)
                    self._known.setdefault((asked.model, asked.key), known)
                self._read = True
        return self._known.get((model, key))

    async def put(self, model: str, key: str, answer: ModelReply) -> None:
        self._known[model, key] = answer


class ProjectMemo:
    """A file for each answer. Lost ones only cost: nothing here is ever waited for."""

    def __init__(self, directory: Path, record: Journal) -> None:
        self._directory, self._record = directory, record

    async def get(self, model: str, key: str) -> ModelReply | None:
        path = self._path(model, key)
        try:
            return ModelReply(
                await anyio.to_thread.run_sync(lambda: path.read_text("utf-8"))
            )
        except (OSError, UnicodeDecodeError):
            return None

    async def put(self, model: str, key: str, answer: ModelReply) -> None:
        path, text = self._path(model, key), await answer.read(self._record)
        await anyio.to_thread.run_sync(_write, path, text)

    def _path(self, model: str, key: str) -> Path:
        name = key_of(model, key)
        return self._directory / name[:2] / name


def _write(path: Path, text: str) -> None:
    try:
        write(path, text)
    except (OSError, UnicodeEncodeError):
        return  # it is asked again, then
