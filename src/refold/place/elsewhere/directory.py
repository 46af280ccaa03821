"""The directory on this machine that stands for a workspace elsewhere.

Everything that refold stores for a workspace (its sessions, trust, notes, rules) is found by a
directory. That of a workspace elsewhere is below the data directory, and a file in it has the
address. It has no files of the workspace but copies of those with instructions for agents.
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


def directory_of_address(places: Path, text: str) -> Path:
    """The directory for this address, made if necessary. Raises `BadInput`."""
    address = parse_address(text)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", address.text).strip("-.")[:_MAX_NAME_CHARS]
    digest = sha256(os.fsencode(address.text)).hexdigest()[:8]
    directory = places / f"{name}-{digest}"
    make_directories(directory)
    if not (directory / _ADDRESS_FILE).exists():
        create_file(directory / _ADDRESS_FILE, f"{address.text}\n".encode())
    return directory


def address_in(places: Path, directory: Path | str) -> PlaceAddress | None:
    """The address that a directory stands for; None for any other directory."""
    real = Path(os.path.realpath(directory))
    if real.parent != Path(os.path.realpath(places)):
        return None
    try:
        text = (real / _ADDRESS_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return parse_address(text.strip())


def store_instructions(directory: str, files: dict[str, str]) -> None:
    """Copy the instructions of the place, as far as they have changed there."""
    for name in ("AGENTS.md", "CLAUDE.md"):
        path, text = Path(directory, name), files.get(name, "")
        current = path.read_text(encoding="utf-8") if path.is_file() else ""
        if current == text:
            continue
        path.unlink(missing_ok=True)
        if text:
            create_file(path, text.encode())
