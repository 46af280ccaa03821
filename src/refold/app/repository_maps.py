"""Finds the repository of a workspace's map, and starts the processes that build the map.

`code.repomap` makes and reads maps. A session opens one when its agent asks for it, and the
command line does for `refold map`.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from refold import programs
from refold.app.model_connections import NO_BACKGROUND
from refold.code.repomap.map_file import MapUnwritable
from refold.code.repomap.outline import outline
from refold.code.repomap.repository_map import RepositoryMap
from refold.config.paths import Paths
from refold.errors import ToolFailed
from refold.place.file_walk import repository_top
from refold.place.port import Files

if TYPE_CHECKING:
    from refold.app.workspace import Workspace


def maps_directory(paths: Paths) -> Path:
    return paths.data / "maps"


def map_root(directory: str) -> str:
    """Return the root of the repository that contains `directory`, or `directory` itself.

    Links are resolved.
    """
    real = os.path.realpath(directory)
    return repository_top(real) or real


def start_builder(
    root: str, environ: Mapping[str, str]
) -> "subprocess.Popen[bytes] | None":
    """Start a process that builds the map of `root`.

    Return None if the environment forbids background processes, or if none can be started.
    """
    if environ.get(NO_BACKGROUND):
        return None
    return _start("build", root, environ)


def start_helper(root: str, environ: Mapping[str, str]) -> "subprocess.Popen[bytes] | None":
    """Start the second process that builds a map. Return None if it cannot be started."""
    return _start("help", root, environ)


def _start(
    task: str, root: str, environ: Mapping[str, str]
) -> "subprocess.Popen[bytes] | None":
    arguments = ("map", "finish", task, root)
    return programs.start_detached(arguments, {**environ, NO_BACKGROUND: "1"})


async def outline_for_agent(
    workspace: "Workspace",
    paths: Paths | None,
    environ: Mapping[str, str],
    files: Files,
    focus: Sequence[str],
    tokens: int,
) -> str:
    """Return the map of the workspace, limited to what the agent may see in `files`.

    `focus` are files, symbols or words, and `tokens` limits the length. Raises `ToolFailed` if
    the map cannot be written, or if the workspace is elsewhere.
    """
    if paths is None or workspace.elsewhere:
        raise ToolFailed("There is no map of a workspace elsewhere: use glob and grep.")
    root, maps = workspace.directory, maps_directory(paths)
    notes = list[str]()

    def make() -> str:
        """Return the map. A process completes it later if that takes too long now."""
        repository = RepositoryMap(root, files, maps, notes.append)
        try:
            coverage = repository.refresh(first=focus)
            if not (coverage.is_whole and coverage.is_ranked):
                start_builder(root, environ)
            return outline(repository, focus, tokens)
        except MapUnwritable as error:
            raise ToolFailed(f"The map cannot be made: {error}.") from error
        finally:
            repository.close()

    text = await anyio.to_thread.run_sync(make)
    note_lines = [f"({note})\n" for note in notes]
    return "".join((*note_lines, text))
