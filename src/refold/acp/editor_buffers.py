"""The texts of the files that the editor has open, by the methods `fs/…` of the protocol.

Implements `place.port.Editor`, for threads. `place.editor_files` decides which files are asked
for, and what an answer means.
"""

import os
import threading
from collections.abc import Coroutine, Sequence
from typing import TypeVar

import anyio
from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import FileSystemCapabilities
from anyio import from_thread
from anyio.lowlevel import current_token

from refold.errors import ToolFailed
from refold.values.path_names import below

_ANSWER_SECONDS = 20.0  # for one answer; a person may have to unlock something
T = TypeVar("T")


class EditorBuffers:
    """The files of one session, whose id is set as `session` when it is known.

    `directories` are the directories of the session as the editor names them. If the editor
    does not answer within `patience` seconds, it is not asked again.
    """

    def __init__(
        self,
        editor: Client,
        *,
        writes: bool,
        directories: Sequence[str],
        patience: float = _ANSWER_SECONDS,
    ) -> None:
        self.session = ""
        self.writes = writes
        self._patience, self._hangs = patience, False
        self._editor = editor
        self._names = _safe_names(directories)
        self._loop, self._thread = current_token(), threading.get_ident()

    def read(self, real: str) -> str:
        return self._wait_for(self._read(self._display_name(real)))

    def write(self, real: str, text: str) -> None:
        self._wait_for(self._write(self._display_name(real), text))

    async def _read(self, path: str) -> str:
        answer = await self._editor.read_text_file(session_id=self.session, path=path)
        return answer.content

    async def _write(self, path: str, text: str) -> None:
        await self._editor.write_text_file(session_id=self.session, path=path, content=text)

    def _wait_for(self, asking: Coroutine[None, None, T]) -> T:
        async def ask() -> T:
            with anyio.fail_after(self._patience):
                return await asking

        if not self.session or threading.get_ident() == self._thread:
            asking.close()
            raise ToolFailed("the session is not open in it yet")
        if self._hangs:
            asking.close()
            raise ToolFailed("it did not answer before")
        try:
            return from_thread.run(ask, token=self._loop)
        except TimeoutError as error:
            self._hangs = True
            raise ToolFailed(f"no answer in {self._patience:g} s") from error
        except RequestError as error:
            raise ToolFailed(str(error) or f"error {error.code}") from error
        except ValueError as error:
            raise ToolFailed("it gave no valid answer") from error
        except (ConnectionError, RuntimeError) as error:
            raise ToolFailed("it disconnected") from error

    def _display_name(self, real: str) -> str:
        for directory, name in self._names:
            if below(real, directory):
                return os.path.normpath(
                    os.path.join(name, os.path.relpath(real, directory))
                )
        return real


def buffers_of(
    editor: Client, fs: FileSystemCapabilities | None, directories: Sequence[str]
) -> EditorBuffers | None:
    """Return the buffers; None if the editor cannot read files, because a write could then
    lose unsaved text.
    """
    if fs is None or not fs.read_text_file:
        return None
    return EditorBuffers(editor, writes=bool(fs.write_text_file), directories=directories)


def _safe_names(directories: Sequence[str]) -> list[tuple[str, str]]:
    """Return real path and name of each directory whose name no command can redirect."""
    real = [os.path.realpath(path) for path in directories]
    return [
        (place, name)
        for place, name in zip(real, directories, strict=True)
        if not any(
            below(path, root)
            for path in (os.path.abspath(name), os.path.realpath(os.path.dirname(name)))
            for root in real
            if place != name
        )
    ]
