"""Describes a GGUF file as a model, by its name and its content.

`hub` chooses a file of a repository, `download` fetches it, and `models` stores it.
"""

import os
import re
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from refold.errors import BadInput, Unreachable
from refold.provider.local.download import FromFile, FromUrl, parse_source
from refold.provider.local.gguf import read_header
from refold.provider.local.hub import HubFile
from refold.provider.local.models import (
    EMBEDDED_MODELS,
    HUB_MODELS,
    KNOWN_MODELS,
    LocalModel,
    ModelDirectory,
    ModelSource,
    memory_of,
)

_SIZE_TIMEOUT_SECONDS = 30.0  # for a server to report how large the file is
# Smaller models call tools better in the format of `embedded` than in that of their
# template.
_MIN_TOOL_PARAMETERS = 2_500_000_000


def own_model(place: str, name: str = "") -> LocalModel:
    """Describe the model at a path or URL, before its installation.

    `name` is the name of a built-in model of which `place` is a copy, or "". Raises `BadInput`
    if there is no model, and `Unreachable` if its size is not reported.
    """
    source = parse_source(place)
    if isinstance(source, FromFile):
        read_header(source.path)
        size = source.path.stat().st_size
    else:
        size = _size_at(place)
    file = unquote(urlsplit(place).path) if isinstance(source, FromUrl) else source.name
    own_name = name or _name_of_file(file)
    if not own_name:
        raise BadInput(f"{place!r} has no name for a model: give the file one")
    is_taken = any(own_name in (m.name, m.file.removesuffix(".gguf")) for m in KNOWN_MODELS)
    if is_taken and not name:
        raise BadInput(
            f"{own_name} is a model that refold knows: install it with "
            "refold local install --model NAME --from FILE, or give your file another name"
        )
    return LocalModel(own_name, f"{own_name}.gguf", size, sha256="", memory=memory_of(size))


def hub_model(repository: str, file: HubFile) -> LocalModel:
    """Describe a model file of the hub, before its installation.

    Return the built-in model if the file has the same content. A model that refold lists gets
    its name from that list.
    """
    for known in EMBEDDED_MODELS:
        if file.sha256 == known.sha256:
            return known
    listed = (
        m.name for m in HUB_MODELS if (m.repository, m.quant) == (repository, file.quant)
    )
    name = next(listed, "") or _name_of_file(file.path)
    return LocalModel(
        name,
        f"{name}.gguf",
        file.size,
        sha256=file.sha256,
        repository=repository,
        hub_path=file.path,
        quant=file.quant,
        memory=memory_of(file.size),
    )


def add_to_directory(
    model: LocalModel, origin: ModelSource, models: ModelDirectory
) -> LocalModel:
    """Record a fetched model, and return it with the values in its file's header.

    If the file is not a model, delete it and raise `BadInput`.
    """
    try:
        header = read_header(models.path_of(model))
    except BadInput:
        models.remove(model)
        raise
    described = replace(
        model,
        sha256=origin.sha256,
        context=header.context,
        token_bytes=header.token_bytes,
        calls_tools=header.shows_tools and header.parameters >= _MIN_TOOL_PARAMETERS,
    )
    models.add(described)
    return described


def _name_of_file(file: str) -> str:
    name = re.sub(r"[^a-z0-9._-]+", "-", file.rpartition("/")[2].lower())
    return name.removesuffix(".gguf").strip("-._")


def _size_at(url: str) -> int:
    """Return the size in bytes of the file at a URL. Raises `Unreachable` if unknown."""
    from refold.provider.blocking_http import open_url

    try:
        with open_url(url, os.environ, seconds=_SIZE_TIMEOUT_SECONDS) as answer:
            size = int(answer.headers.get("content-length") or 0)
    except (OSError, ValueError, BadInput) as error:
        raise Unreachable(f"{FromUrl(url).name} cannot be fetched: {error}") from error
    if not size:
        raise Unreachable(
            f"{FromUrl(url).name} does not say how large it is: download the file, and "
            "give its path"
        )
    return size
