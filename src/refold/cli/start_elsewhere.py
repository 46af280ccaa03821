"""`--workspace ADDRESS` or NAME: the directory that stands for a workspace elsewhere."""

import os
from pathlib import Path

from refold.client.elsewhere import find_directory_elsewhere
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import current_directory, paths
from refold.errors import BadInput
from refold.place.elsewhere.address import is_address


def directory_elsewhere(address: str) -> Path:
    """Raises `BadInput` if it is not an address, and no name in the settings."""
    named = {} if is_address(address) else _named_workspaces()
    if (directory := find_directory_elsewhere(address, named)) is None:
        names = f", or one of {', '.join(named)}" if named else ""
        raise BadInput(
            f"--workspace {address!r} is not an address: give ssh://host/dir{names}, or another "
            "one that `refold --help all` lists; to work on this machine, change the directory"
        )
    return directory


def _named_workspaces() -> dict[str, str]:
    loaded = load_folder_settings(current_directory(), paths(os.environ), os.environ, {})
    return loaded.settings.workspaces
