"""Reads and writes the texts of files that are open in the editor, by its methods `fs/…`.

Implements `place.port.Editor`, for threads. `place.editor_files` decides which files are
requested, and interprets the answers.
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

_ANSWER_SECONDS = 20.0  # for one answer; the user may have to unlock something
T = TypeVar("T")


class EditorBuffers:
    """The files that are open in the editor, for one session.

    `session` is set when the session's id is known. `directories` are the directories of
    the session, as the editor names them. An editor that does not answer within `patience`
    seconds is not asked again.
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
        self._patience = patience
        self._hangs = False  # whether an answer came too late; then no more is requested
        self._editor = editor
        self._names = _safe_names(directories)
        self._loop = current_token()
        self._thread = threading.get_ident()  # of the event loop

    def read(self, real: str) -> str:
        path = self._display_name(real)
        return self._wait_for(self._read(path))

    def write(self, real: str, text: str) -> None:
        path = self._display_name(real)
        self._wait_for(self._write(path, text))

    async def _read(self, path: str) -> str:
        answer = await self._editor.read_text_file(session_id=self.session, path=path)
        return answer.content

    async def _write(self, path: str, text: str) -> None:
        await self._editor.write_text_file(session_id=self.session, path=path, content=text)

    def _wait_for(self, request: Coroutine[None, None, T]) -> T:
        """Return the editor's answer. Raises `ToolFailed` if none arrives.

        Call this method in a thread: in the thread of the event loop it would wait for
        ever.
        """

        async def ask() -> T:
            with anyio.fail_after(self._patience):
                return await request

        if not self.session or threading.get_ident() == self._thread:
            request.close()
            raise ToolFailed("the session is not open in it yet")
        if self._hangs:
            request.close()
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
        """Return the path of a file as the editor writes it, which may have links in it."""
        for directory, name in self._names:
            if below(real, directory):
                return os.path.normpath(
                    os.path.join(name, os.path.relpath(real, directory))
                )
        return real


def buffers_of(
    editor: Client, fs: FileSystemCapabilities | None, directories: Sequence[str]
) -> EditorBuffers | None:
    """Return the buffers of an editor; None if the editor cannot pass the text of files.

    An editor that can only write files is not used, because a write could lose unsaved text.
    """
    if fs is None or not fs.read_text_file:
        return None
    return EditorBuffers(editor, writes=bool(fs.write_text_file), directories=directories)


def _safe_names(directories: Sequence[str]) -> list[tuple[str, str]]:
    """Return the real path of each directory, with the name by which the editor knows it.

    A directory is left out if its name is a link inside of one of the directories, because
    a command could change where the link leads.
    """
    real_paths = [os.path.realpath(path) for path in directories]

    def is_inside(path: str) -> bool:
        return any(below(path, root) for root in real_paths)

    names = list[tuple[str, str]]()
    for real, name in zip(real_paths, directories, strict=True):
        parent = os.path.realpath(os.path.dirname(name))
        is_name_inside = is_inside(os.path.abspath(name)) or is_inside(parent)
        if real == name or not is_name_inside:
            names.append((real, name))
    return names
