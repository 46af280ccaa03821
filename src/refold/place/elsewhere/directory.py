"""Maps the address of a workspace elsewhere to a directory on this machine.

refold finds everything that it stores for a workspace (sessions, trust, notes, rules) by a
directory. For a workspace elsewhere, this is a directory below the data directory. It contains
a file with the address and copies of the workspace's instruction files for agents, but no other
files of the workspace.
"""

import os
import re
from hashlib import sha256
from pathlib import Path

from refold.place.elsewhere.address import PlaceAddress, parse_address
from refold.place.private_files import make_directories
from refold.safe_open import create_file

_ADDRESS_FILE = ".address"
_MAX_NAME_CHARS = 60
_NAME_PATTERN = re.compile(r"[A-Za-z0-9._-]+-[0-9a-f]{8}")


def directory_of_address(places: Path, text: str) -> Path:
    """Return the directory that represents an address, and create it if it is missing.

    Raises `BadInput` for an invalid address.
    """
    address = parse_address(text)
    directory = places / name_of_address(text)
    make_directories(directory)
    if not (directory / _ADDRESS_FILE).exists():
        create_file(directory / _ADDRESS_FILE, f"{address.text}\n".encode())
    return directory


def name_of_address(text: str) -> str:
    """Return the name of the directory that represents an address, on any machine."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:_MAX_NAME_CHARS]
    return f"{name}-{sha256(os.fsencode(text)).hexdigest()[:8]}"


def is_like_stand_in(directory: str, places: Path) -> bool:
    """Whether a path looks like a directory that represents an address.

    The directory may be from another machine, whose data directory has another path.
    """
    above, name = os.path.split(directory)
    return os.path.basename(above) == places.name and bool(_NAME_PATTERN.fullmatch(name))


def address_in(places: Path, directory: Path | str) -> PlaceAddress | None:
    """Return the address that `directory` represents; None if it represents none."""
    real = Path(os.path.realpath(directory))
    if real.parent != Path(os.path.realpath(places)):
        return None
    try:
        text = (real / _ADDRESS_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return parse_address(text.strip())


def store_instructions(directory: str, files: dict[str, str]) -> None:
    """Update the copies of the place's instruction files in `directory`.

    `files` maps names of these files to their texts. The copy of a file that is not in `files`
    is deleted.
    """
    for name in ("AGENTS.md", "CLAUDE.md"):
        path, text = Path(directory, name), files.get(name, "")
        current = path.read_text(encoding="utf-8") if path.is_file() else ""
        if current == text:
            continue
        path.unlink(missing_ok=True)
        if text:
            create_file(path, text.encode())
