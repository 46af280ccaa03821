"""Shows and changes the default model, providers with their keys, and embedded models.

This module has the documents; `provider_keys` checks and stores keys, and `model_downloads`
downloads models.
"""

from collections.abc import Sequence

from msgspec import Struct

from refold.app.local_servers import LocalServer, local_servers
from refold.client.launch import Launch
from refold.client.settings.model_downloads import ModelDownload, ModelDownloads
from refold.client.settings.provider_keys import KEY_PAGES, ProviderKeys
from refold.config.set_setting import remember
from refold.errors import BadInput
from refold.provider.local.download import HOW_TO_GET_RUNTIME, is_runtime_installed
from refold.provider.local.machine import Machine, this_machine
from refold.provider.local.models import LocalModel


class ModelChoice(Struct, frozen=True):
    """The model of new conversations. `problem` says why none can begin, or is ""."""

    model: str
    problem: str
    names: Sequence[str] = ()  # models that can be chosen


class ProviderRow(Struct, frozen=True):
    """A provider. `source` says where its key is stored; "" if no key is known."""

    name: str
    label: str
    source: str
    variable: str
    ends: str  # the last characters of the key
    key_page: str  # the page on which users create keys
    model: str  # its default model


class EmbeddedModel(Struct, frozen=True):
    """A model that runs on the machine of the server. Sizes are in bytes."""

    name: str
    size: int
    memory: int
    fit: str  # whether the memory of the machine is enough
    installed: bool
    partial: int  # bytes of an unfinished download
    download: ModelDownload | None = None


class EmbeddedModels(Struct, frozen=True):
    """The models of this machine. `runtime` says how to install llama.cpp; "" if it is
    installed.
    """

    models: Sequence[EmbeddedModel]
    servers: Sequence[LocalServer]  # local servers, such as Ollama, that respond
    runtime: str
    machine: str


def model_choice(launch: Launch) -> ModelChoice:
    """Return the default model, why it cannot be used ("" if it can), and all names."""
    models = launch.app.models
    try:
        launch.check_model()
        problem = ""
    except BadInput as error:
        problem = str(error)
    return ModelChoice(models.default(), problem, models.names())


def choose_model(launch: Launch, name: str) -> None:
    """Make a model the default. Raises `BadInput` if it cannot be used."""
    remember(launch.app.paths, "model", launch.app.models.check(name))


def provider_keys(launch: Launch) -> ProviderKeys:
    return ProviderKeys(launch.app.paths, launch.app.environ)


def provider_rows(keys: ProviderKeys) -> list[ProviderRow]:
    """Return the providers that take a key: those that have a key, then common ones, then
    others.

    A provider with several wires (formats of requests) has a row for each wire. A row without
    a key is left out, unless it is the provider's first row.
    """
    specs = {spec.name: spec for spec in keys.specs}
    rows = list[ProviderRow]()
    labels = set[str]()  # all wires of a provider have the same
    for row in keys.rows(optional=True):
        spec = specs[row.provider]
        is_first_wire = spec.label not in labels
        labels.add(spec.label)
        if not (row.source or is_first_wire):
            continue
        rows.append(
            ProviderRow(
                name=row.provider,
                label=spec.label,
                source=row.source,
                variable=row.variable,
                ends=row.ends,
                key_page=KEY_PAGES.get(row.provider, ""),
                model=spec.model,
            )
        )
    return sorted(rows, key=_provider_order)


def _provider_order(row: ProviderRow) -> tuple[bool, bool]:
    has_key, is_common = bool(row.source), row.name in KEY_PAGES
    return not has_key, not is_common  # False sorts first


def list_local_models(downloads: ModelDownloads) -> EmbeddedModels:
    machine = this_machine(downloads.environ)
    models = [_row(downloads, machine, item) for item in downloads.directory.list_all()]
    runtime = "" if is_runtime_installed() else HOW_TO_GET_RUNTIME
    servers = local_servers(downloads.environ)
    return EmbeddedModels(models, servers, runtime, machine.text)


def find_local_model(downloads: ModelDownloads, name: str) -> EmbeddedModel:
    """Return an embedded model by its name. Raises `BadInput` for an unknown name."""
    model = downloads.directory.find(name)
    return _row(downloads, this_machine(downloads.environ), model)


def _row(downloads: ModelDownloads, machine: Machine, model: LocalModel) -> EmbeddedModel:
    model_files = downloads.directory
    return EmbeddedModel(
        name=model.name,
        size=model.size,
        memory=model.memory,
        fit=machine.describe_fit(model.memory),
        installed=model_files.is_installed(model),
        partial=model_files.partial_size(model),
        download=downloads.state(model.name),
    )
