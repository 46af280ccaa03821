"""Finds model servers that run on this machine, and makes the addresses of other servers.

Each server gets one request, at its usual address or at the address in its environment
variable, and half a second to respond. `provider.local` is the embedded model, which refold
runs itself.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec import Struct

from refold.errors import BadInput
from refold.provider import catalog
from refold.provider.spec import ProviderSpec

_TIMEOUT_SECONDS = 0.5  # in which a server must respond
_MAX_ANSWER_BYTES = 1_000_000
# Names of models that do not generate text.
_OTHER_MODELS_PATTERN = re.compile(r"embed|rerank|whisper", re.IGNORECASE)


class LocalServer(Struct, frozen=True):
    """A model server that responded. `models` are full names, such as ollama/llama3."""

    label: str
    models: tuple[str, ...]


def local_servers(environ: Mapping[str, str]) -> tuple[LocalServer, ...]:
    """Return the servers that respond and have a model.

    Ollama comes first, and the others in the order of the catalogue.
    """
    own = [spec for spec in catalog.providers() if spec.own]
    own.sort(key=lambda spec: spec.name != "ollama")
    pairs = ((spec, server_models(spec, environ)) for spec in own)
    return tuple(LocalServer(spec.label, models) for spec, models in pairs if models)


def ollama_models(environ: Mapping[str, str]) -> tuple[str, ...]:
    return server_models(catalog.find("ollama"), environ)


def server_models(spec: ProviderSpec, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the full names of the models of a server; () if it does not respond."""
    from refold.provider.blocking_http import open_url

    if spec.wire == "ollama":
        path, list_key, name_key = "/api/tags", "models", "name"
    else:
        path, list_key, name_key = "/models", "data", "id"
    try:
        url = f"{catalog.address(spec, environ)}{path}"
        with open_url(url, environ, seconds=_TIMEOUT_SECONDS) as answer:
            page = cast("dict[str, Any]", json.loads(answer.read_all(_MAX_ANSWER_BYTES)))
        names = [str(model[name_key]) for model in page[list_key]]
    except (OSError, ValueError, KeyError, TypeError, BadInput):
        return ()
    return tuple(
        f"{spec.name}/{name}" for name in names if not _OTHER_MODELS_PATTERN.search(name)
    )


def own_address(provider: str, host: str, port: int) -> tuple[str, str]:
    """Return the name of a provider, and its address with another host or port.

    Host "" means the usual host, and port 0 the usual port. Raises `BadInput` for a provider
    that the user does not run.
    """
    if any(sign in host for sign in "/@ ") or not (host or port):
        raise BadInput(f"--host takes the name of a machine, not {host!r}; --port its port")
    own_providers = ", ".join(spec.name for spec in catalog.providers() if spec.own)
    try:
        spec = catalog.find(provider)
    except BadInput as error:
        raise BadInput(
            f"{provider!r} has no server that could be elsewhere: --host and --port are "
            f"for {own_providers}, ollama-cli"
        ) from error
    if not spec.own:
        raise BadInput(
            f"{spec.label} is a hosted service; --host and --port only apply to servers "
            f"that you run; set [providers.{spec.name}] base_url for another address"
        )
    usual = urlsplit(spec.base_url)
    is_ipv6 = ":" in host
    host_text = f"[{host}]" if is_ipv6 else host or usual.hostname
    netloc = f"{host_text}:{port or usual.port}"
    return spec.name, f"{usual.scheme}://{netloc}{usual.path}"
