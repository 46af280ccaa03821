"""What every layer says of each setting, and every problem: for showing and for mending.

Where `load` stops at the first thing that is wrong, here the rest counts all the same:
a start must not guess what was meant, and a person who looks for it wants all of it.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from refold.config.folder_settings import unheeded
from refold.config.layers import MANAGED, Layer, Origin
from refold.config.load import combined, flat, layers_of, settled
from refold.config.paths import Paths
from refold.config.project import Project, project
from refold.config.settings import Settings
from refold.config.trusted_folders import Folders, State
from refold.errors import BadInput


class SettingOrigins(Struct, frozen=True):
    """`chain`: who says what of a key, the last of them winning. Rules of all count."""

    settings: Settings
    chain: Mapping[str, tuple[Origin, ...]]
    problems: tuple[str, ...]
    project: Project
    state: State

    @property
    def values(self) -> dict[str, object]:
        """Every setting, by its key."""
        return flat(self.settings)


def told(
    directory: Path,
    places: Paths,
    environ: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
    managed: Path = MANAGED,
) -> SettingOrigins:
    """All that is said of the settings in `directory`. Raises nothing of theirs."""
    problems = list[str]()
    folders = Folders(places.folders)
    found = project(directory, places.settings)
    state = _state(folders, found, problems)
    if state == "unusable":
        problems.append(unheeded(found, state))
    between = list[Layer](found.layers if state == "trusted" else ())
    between += [list(_good(lambda: folders.layer(found.folder), problems))]
    layers = [
        list(_good(read, problems))
        for read in layers_of(places.settings, environ, flags or {}, between, managed)
    ]
    chain: dict[str, tuple[Origin, ...]] = {}
    for key, origin in (pair for layer in layers for pair in layer):
        chain[key] = (*chain.get(key, ()), origin)
    return SettingOrigins(combined(layers).settings, chain, tuple(problems), found, state)


def _state(folders: Folders, found: Project, problems: list[str]) -> State:
    try:
        return folders.state(found)
    except BadInput as error:
        problems.append(str(error))
        return "nothing"


def _good(read: Callable[[], Layer], problems: list[str]) -> Iterator[tuple[str, Origin]]:
    """What is right of a layer. What is not goes to the problems, one by one."""
    try:
        pairs = list(read())
    except BadInput as error:
        problems.append(str(error))
        return
    for pair in pairs:
        try:
            yield from settled([pair])
        except BadInput as error:
            if str(error) not in problems:
                problems.append(str(error))
