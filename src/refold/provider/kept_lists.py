"""What providers said of their models when they were last asked, a file for each.

Asking them is `listing`'s business. A file that is lost or odd is no error: the
provider can be asked again.
"""

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from refold.own_files import made
from refold.provider.known import PriceTier


class ListedModel(Struct, frozen=True, omit_defaults=True):
    """A model, and what its provider tells of it."""

    name: str
    window: int = 0  # tokens; 0: not told
    steps: tuple[PriceTier, ...] = ()  # prices, where they are told


class Listed(Struct, frozen=True):
    """An answer that was kept."""

    at: float  # seconds since 1970
    address: str  # who gave it
    models: tuple[ListedModel, ...]


def directory_in(state: Path) -> Path:
    """Where lists are kept, given the directory for all that refold remembers."""
    return state / "models"


def remembered(directory: Path, name: str, address: str) -> Listed | None:
    """What the provider at this address said last time."""
    try:
        found = msgspec.json.decode(_file(directory, name).read_bytes(), type=Listed)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None  # it can be asked again
    return found if found.address == address else None


def remember(directory: Path, name: str, listed: Listed) -> None:
    """Keep it for next time, whole or not at all. Where that is not possible, we forget."""
    file = _file(directory, name)
    temporary = file.with_suffix(f".{os.getpid()}.new")
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        made(temporary, msgspec.json.encode(listed))
        temporary.replace(file)


def _file(directory: Path, name: str) -> Path:
    return directory / f"{quote(name, safe='')}.json"
