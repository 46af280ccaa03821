"""A cache of answers to questions of code, so that the same question is not paid for twice.

It is off by default: a model may give two answers to the same question, and sometimes that
is the purpose. The key contains everything that makes two questions equal.
"""

from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import anyio

from refold.engine.nested_call import key_of
from refold.place.private_files import write
from refold.rlm.call_context import Journal, ModelReply, successful_leaves

Kind: TypeAlias = Literal["off", "session", "project"]


class Memo(Protocol):
    """`model` is provider/model; `key` is the key of a question."""

    async def get(self, model: str, key: str) -> ModelReply | None: ...
    async def put(self, model: str, key: str, answer: ModelReply) -> None: ...


class SessionMemo:
    """The answers in the journal of this session."""

    def __init__(self, record: Journal) -> None:
        self._record = record
        self._known = dict[tuple[str, str], ModelReply]()
        self._reading, self._read = anyio.Lock(), False

    async def get(self, model: str, key: str) -> ModelReply | None:
        async with self._reading:
            if not self._read:
                for asked, reply in successful_leaves(await self._record.entries()):
                    known = ModelReply(reply.text, reply.full_blob)
                    self._known.setdefault((asked.model, asked.key), known)
                self._read = True
        return self._known.get((model, key))

    async def put(self, model: str, key: str, answer: ModelReply) -> None:
        self._known[model, key] = answer


class ProjectMemo:
    """A cache with a file for each answer. A lost file only costs money, so nothing waits
    for the disk.
    """

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
