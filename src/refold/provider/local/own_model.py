"""The user's own GGUF file as a model: its name, and what the file says about it.

`download` fetches it, `models` remembers it.
"""

import os
import re
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from refold.errors import BadInput, Unreachable
from refold.provider.local.download import FromFile, FromUrl, source_given
from refold.provider.local.gguf import read_header
from refold.provider.local.models import MODELS, LocalModel, ModelDirectory, ModelSource

_SECONDS = 30.0  # that a server has to say how large the file is
_AROUND_IT = 400_000_000  # bytes of memory beside the model itself, about


def own_model(place: str) -> LocalModel:
    """The model at a path or an address, before it is installed.

    Raises `BadInput` if there is none, and `Unreachable` if its size is not reported.
    """
    source = source_given(place)
    if isinstance(source, FromFile):
        read_header(source.path)
        size = source.path.stat().st_size
    else:
        size = _size_at(place)
    file = unquote(urlsplit(place).path) if isinstance(source, FromUrl) else source.name
    name = re.sub(r"[^a-z0-9._-]+", "-", file.rpartition("/")[2].lower())
    name = name.removesuffix(".gguf").strip("-._")
    if not name:
        raise BadInput(f"{place!r} has no name for a model: give the file one")
    if any(name == model.name or f"{name}.gguf" == model.file for model in MODELS):
        raise BadInput(
            f"{name} is a model that refold knows: install it with "
            "refold local install --model NAME --from FILE, or give your file another name"
        )
    return LocalModel(name, f"{name}.gguf", size, "", memory=size + _AROUND_IT)


def settled(model: LocalModel, origin: ModelSource, shelf: ModelDirectory) -> LocalModel:
    """`model`, which was fetched, with what its file says; it is remembered from now on.

    A file that is no model is deleted. Raises `BadInput`.
    """
    try:
        header = read_header(shelf.place(model))
    except BadInput:
        shelf.remove(model)
        raise
    found = replace(model, sha256=origin.sha256, context=header.context)
    shelf.add(found)
    return found


def _size_at(url: str) -> int:
    from refold.provider.blocking_http import open_url

    try:
        with open_url(url, os.environ, seconds=_SECONDS) as answer:
            size = int(answer.headers.get("content-length") or 0)
    except (OSError, ValueError, BadInput) as error:
        raise Unreachable(f"{FromUrl(url).name} cannot be fetched: {error}") from error
    if not size:
        raise Unreachable(
            f"{FromUrl(url).name} does not say how large it is: download the file, and "
            "give its path"
        )
    return size
