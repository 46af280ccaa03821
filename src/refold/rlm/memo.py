"""Caches the answers to questions of code, so that an equal question is not paid for again.

The cache is off by default: a model may give two answers to the same question, and sometimes
that is intended. The key of a question contains everything that makes two questions equal.
"""

from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import anyio

from refold.engine.nested_call import key_of
from refold.place.private_files import write
from refold.rlm.call_context import Journal, ModelReply, successful_leaves

Kind: TypeAlias = Literal["off", "session", "project"]


class Memo(Protocol):
    """A cache of answers by `model` (provider/model) and `key` (of the question).

    `get` returns None if it has no answer.
    """

    async def get(self, model: str, key: str) -> ModelReply | None: ...
    async def put(self, model: str, key: str, answer: ModelReply) -> None: ...


class SessionMemo:
    """A cache that consists of the answers in the journal of this session."""

    def __init__(self, record: Journal) -> None:
        self._record = record
        self._known = dict[tuple[str, str], ModelReply]()
        self._lock, self._has_read_journal = anyio.Lock(), False

    async def get(self, model: str, key: str) -> ModelReply | None:
        """Return the known answer, or None. The first call reads the journal."""
        async with self._lock:
            if not self._has_read_journal:
                for asked, reply in successful_leaves(await self._record.entries()):
                    answer = ModelReply(reply.text, reply.full_blob)
                    self._known.setdefault((asked.model, asked.key), answer)
                self._has_read_journal = True
        return self._known.get((model, key))

    async def put(self, model: str, key: str, answer: ModelReply) -> None:
        self._known[model, key] = answer


class ProjectMemo:
    """A cache with a file for each answer, for all sessions of a project.

    It does not wait for the disk, because a lost file only means that a question is paid for
    again.
    """

    def __init__(self, directory: Path, record: Journal) -> None:
        self._directory, self._record = directory, record

    async def get(self, model: str, key: str) -> ModelReply | None:
        """Return the stored answer, or None if no readable answer is stored."""
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
        return  # the question is then asked again
