"""Addresses of workspaces elsewhere, for clients: the directory that stands for one."""

import os
from pathlib import Path

from refold.config.paths import paths
from refold.place.elsewhere.address import is_address
from refold.place.elsewhere.directory import directory_of_address


def find_directory_elsewhere(text: str) -> Path | None:
    """The directory that stands for the workspace at this address; None if it is a path.

    Raises `BadInput` for an address that is none.
    """
    if not is_address(text):
        return None
    return directory_of_address(paths(os.environ).places, text)
