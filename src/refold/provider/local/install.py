"""What an embedded model needs: the sources to download from, and the runtime.

`download` downloads; the subcommands do the talking.
"""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from refold.errors import BadInput
from refold.provider.local.download import (
    FromFile,
    FromPackages,
    FromUrl,
    Source,
    installer,
)
from refold.provider.local.models import LocalModel, Shelf

RUNTIME = "xllamacpp"
HOW_TO_GET_RUNTIME = "pip install 'refold[local]'"


def runtime_is_here() -> bool:
    """Is llama.cpp's package installed? It is not imported to find out."""
    from importlib.util import find_spec

    return find_spec(RUNTIME) is not None


def usual_sources(model: LocalModel, shelf: Shelf) -> Sequence[Source]:
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
