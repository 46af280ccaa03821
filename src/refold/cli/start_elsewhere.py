"""`--workspace ADDRESS`: the directory that stands for a workspace elsewhere."""

from pathlib import Path

from refold.client.elsewhere import find_directory_elsewhere
from refold.errors import BadInput


def directory_elsewhere(address: str) -> Path:
    """Raises `BadInput` if it is not an address."""
    if (directory := find_directory_elsewhere(address)) is None:
        raise BadInput(
            f"--workspace {address!r} is not an address: give ssh://host/dir, or another "
            "one that `refold --help all` lists; to work on this machine, change the directory"
        )
    return directory
