"""Settings of models: the default model, providers with their keys, and embedded models.

`provider_keys` checks and stores keys, `model_downloads` downloads; here are the documents.
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
    """The model of new conversations; `problem` is why none can begin, or ""."""

    model: str
    problem: str
    names: Sequence[str] = ()  # that can be chosen


class ProviderRow(Struct, frozen=True):
    """A provider. `source` says where its key comes from, "" if it has none."""

    name: str
    label: str
    source: str
    variable: str
    ends: str  # the last characters of the key
    key_page: str  # where keys are made
    model: str  # its usual model


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
    """`runtime` is empty if llama.cpp is installed, else how to get it."""

    models: Sequence[EmbeddedModel]
    servers: Sequence[LocalServer]  # of Ollama and others, that answer on this machine
    runtime: str
    machine: str


def model_choice(launch: Launch) -> ModelChoice:
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
    """All providers that take a key: those that have one first, then the most common ones.

    A provider with several wires and no key is listed once.
    """
    specs = {spec.name: spec for spec in keys.specs}
    rows = [
        ProviderRow(
            row.provider, specs[row.provider].label, row.source, row.variable, row.ends,
            KEY_PAGES.get(row.provider, ""), specs[row.provider].model,
        )
        for row in keys.rows(optional=True)
    ]  # fmt: skip
    labels = {row.label: row.name for row in reversed(rows)}
    rows = [row for row in rows if row.source or labels[row.label] == row.name]
    return sorted(rows, key=lambda row: (not row.source, row.name not in KEY_PAGES))


def list_local_models(downloads: ModelDownloads) -> EmbeddedModels:
    machine = this_machine(downloads.environ)
    models = [_row(downloads, machine, item) for item in downloads.directory.list_all()]
    runtime = "" if is_runtime_installed() else HOW_TO_GET_RUNTIME
    servers = local_servers(downloads.environ)
    return EmbeddedModels(models, servers, runtime, machine.text)


def find_local_model(downloads: ModelDownloads, name: str) -> EmbeddedModel:
    """An embedded model by its name. Raises `BadInput` for an unknown one."""
    model = downloads.directory.find(name)
    return _row(downloads, this_machine(downloads.environ), model)


def _row(downloads: ModelDownloads, machine: Machine, model: LocalModel) -> EmbeddedModel:
    model_files = downloads.directory
    return EmbeddedModel(
        model.name, model.size, model.memory, machine.describe_fit(model.memory),
        model_files.is_installed(model), model_files.partial_size(model), downloads.state(model.name),
    )  # fmt: skip
