"""Serves the settings of models over REST: the default model, providers and their keys,
embedded models.

No response contains a key: a page sees only its last characters.
"""

from collections.abc import Sequence
from typing import Annotated

from anyio import to_thread
from fastapi import Query, Request, Response
from msgspec import Meta, Struct

from refold.client.host import Host
from refold.client.settings import model_settings
from refold.client.settings.model_downloads import ModelDownloads
from refold.client.settings.model_settings import (
    EmbeddedModel,
    EmbeddedModels,
    ModelChoice,
    ProviderRow,
)
from refold.client.settings.provider_keys import KeyCheck, ProviderKeys
from refold.errors import BadInput
from refold.server.api import Api, find_or_404, json_response, read_body

SETTINGS_PATH = "/api/settings"
_MAX_KEY_CHARS = 4096
_UNSAFE_TRAFFIC = (
    "a key is not taken here, because the traffic can be read on its way: store it on the machine "
    "of the server with `refold auth set`, or serve with --tls-cert"
)
Folder = Annotated[str, Query(max_length=4096, description='"": that of the server')]


class WantedModel(Struct, frozen=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1, max_length=200)]


class NewKey(Struct, frozen=True, forbid_unknown_fields=True):
    """An API key to store for a provider.

    With `unchecked`, the key is stored even if the provider could not be reached. A key
    that the provider refuses is not stored.
    """

    key: Annotated[str, Meta(min_length=1, max_length=_MAX_KEY_CHARS)]
    unchecked: bool = False


class StoredKey(Struct, frozen=True):
    """The result of storing a key; `text` is the result of checking the key.

    If `stored` is false, the provider could not be reached, and `text` says why.
    """

    stored: bool
    text: str
    model: str = ""  # the model of new conversations now
    notices: Sequence[str] = ()


class KeyVerdict(Struct, frozen=True):
    good: bool
    text: str


class RemovedKey(Struct, frozen=True):
    places: Sequence[str]
    notices: Sequence[str]


# pyright: reportUnusedFunction=false
# FastAPI calls each function below as a route.
def add_models(api: Api, host: Host, *, safe: bool) -> None:
    """Add the routes of models. `safe` says that no other machine can read a key on its way."""
    _add_default(api, host)
    _add_keys(api, host, safe=safe)
    _add_embedded(api, host)


def _add_default(api: Api, host: Host) -> None:
    @api.route("GET", f"{SETTINGS_PATH}/model", ModelChoice)
    async def model(folder: Folder = "") -> Response:
        """Return the model of new conversations in a folder, and the models to choose
        from.
        """
        async with host.start_in(folder) as launch:
            return json_response(
                await to_thread.run_sync(model_settings.model_choice, launch)
            )

    @api.route("PUT", f"{SETTINGS_PATH}/model", ModelChoice, body=WantedModel)
    async def choose(request: Request) -> Response:
        """Make a model the default, if it can be used."""
        wanted = await read_body(request, WantedModel)
        async with host.start_in() as launch:
            await to_thread.run_sync(model_settings.choose_model, launch, wanted.model)
        return json_response(await _apply_choice(host))


def _add_keys(api: Api, host: Host, *, safe: bool) -> None:
    """Add the routes of keys. If traffic is not `safe` from others, no key is accepted."""

    @api.route("GET", f"{SETTINGS_PATH}/providers", list[ProviderRow])
    async def providers() -> Response:
        """List the providers that have a key or need one.

        `ends` has the last characters of the key; no more of it is shown.
        """
        keys = await _keys(host)
        return json_response(await to_thread.run_sync(model_settings.provider_rows, keys))

    @api.route("PUT", f"{SETTINGS_PATH}/providers/{{name}}/key", StoredKey, body=NewKey)
    async def store(request: Request, name: str) -> Response:
        """Check a key with its provider, and store it as `refold auth set` does.

        The response is 400 for a key that the provider refuses. If the provider could not
        be reached, `stored` is false: send the key again with `unchecked`. No key is
        accepted if others could read the traffic.
        """
        if not safe:
            raise BadInput(_UNSAFE_TRAFFIC)
        keys = await _keys(host)
        new_key = await read_body(request, NewKey)
        spec = find_or_404(keys.spec, name)
        key = new_key.key.strip()
        check = await keys.check_new(spec, key)
        if check.refused:
            raise BadInput(check.text)
        if not (check.good or new_key.unchecked):
            return json_response(StoredKey(stored=False, text=check.text))
        change = await to_thread.run_sync(keys.store, spec, key)
        choice = await _apply_choice(host)
        stored_key = StoredKey(
            stored=True, text=check.text, model=choice.model, notices=change.notices
        )
        return json_response(stored_key)

    @api.route("DELETE", f"{SETTINGS_PATH}/providers/{{name}}/key", RemovedKey)
    async def remove(name: str) -> Response:
        """Remove a stored key, as `refold auth remove` does."""
        keys = await _keys(host)
        spec = find_or_404(keys.spec, name)
        change = await to_thread.run_sync(keys.remove, spec.name)
        host.reload_settings()
        return json_response(RemovedKey(change.places, change.notices))

    @api.route("POST", f"{SETTINGS_PATH}/providers/{{name}}/check", KeyVerdict)
    async def check(name: str) -> Response:
        """Ask a provider whether it accepts its stored key, as `refold auth test` does."""
        keys = await _keys(host)
        spec = find_or_404(keys.spec, name)
        try:
            key = await to_thread.run_sync(keys.find, spec)
            verdict = await keys.check(spec, key)
        except BadInput as error:
            verdict = KeyCheck(str(error))
        return json_response(KeyVerdict(verdict.good, verdict.text))


def _add_embedded(api: Api, host: Host) -> None:
    downloads_of_server: ModelDownloads | None = None  # made at the first request

    async def get_downloads() -> ModelDownloads:
        nonlocal downloads_of_server
        if downloads_of_server is None:
            async with host.start_in() as launch:
                downloads_of_server = ModelDownloads(launch.app.environ)
        return downloads_of_server

    @api.route("GET", f"{SETTINGS_PATH}/embedded", EmbeddedModels)
    async def list_embedded() -> Response:
        """List the models that run on this machine, and downloads with their progress."""
        downloads = await get_downloads()
        return json_response(
            await to_thread.run_sync(model_settings.list_local_models, downloads)
        )

    @api.route("GET", f"{SETTINGS_PATH}/embedded/{{name}}", EmbeddedModel)
    async def progress(name: str) -> Response:
        """Return an embedded model, with the progress of its download."""
        downloads = await get_downloads()
        return json_response(find_or_404(model_settings.find_local_model, downloads, name))

    @api.route("POST", f"{SETTINGS_PATH}/embedded/{{name}}", None, status=202)
    async def download(name: str) -> Response:
        """Begin to download a model. The list shows its progress."""
        downloads = await get_downloads()
        find_or_404(downloads.start, name)
        return Response(status_code=202)

    @api.route("DELETE", f"{SETTINGS_PATH}/embedded/{{name}}", None, status=204)
    async def remove(name: str) -> Response:
        """Stop the download of a model, or delete a model that is not being downloaded."""
        downloads = await get_downloads()
        find_or_404(model_settings.find_local_model, downloads, name)
        if not downloads.stop(name):
            await to_thread.run_sync(downloads.remove, name)
        return Response(status_code=204)


async def _keys(host: Host) -> ProviderKeys:
    async with host.start_in() as launch:
        return await to_thread.run_sync(model_settings.provider_keys, launch)


async def _apply_choice(host: Host) -> ModelChoice:
    """Apply the changed default model to the open conversations, and return the model
    choice.
    """
    host.reload_settings()
    async with host.start_in() as launch:
        return await to_thread.run_sync(model_settings.model_choice, launch)
