"""A model's context window and prices, by one rule for sessions and reports.

Settings come first, then what the provider itself reported, then the list of known
models. Provider reports are cached in files; a missing or broken file is not an error,
because the provider can be asked again. `model_list` asks.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from msgspec import Struct

from refold.errors import BadInput
from refold.provider import catalog
from refold.provider.known_models import PriceTier
from refold.provider.prices import (
    Overrides,
    Rates,
    find,
    is_on_this_machine,
    override,
    rates,
)
from refold.provider.spec import PluginProvider, ProviderSpec
from refold.safe_open import create_file

if TYPE_CHECKING:
    from refold.provider.command.spec import CommandSpec


class ListedModel(Struct, frozen=True, omit_defaults=True):
    """A model, and what its provider reports about it."""

    name: str
    window: int = 0  # tokens; 0: not reported
    steps: tuple[PriceTier, ...] = ()  # prices, if they are reported


class StoredModelList(Struct, frozen=True):
    """A stored list of models."""

    at: float  # seconds since 1970
    address: str  # of the provider that reported it
    models: tuple[ListedModel, ...]


class ModelFigures:
    """`overrides` are settings for single models, `windows` for all models of a provider.

    Lists of providers are stored in `directory`. Each is read when first needed.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        overrides: Overrides,
        windows: Mapping[str, int],
        directory: Path,
    ) -> None:
        self._environ, self._directory = environ, directory
        self._overrides, self._windows = overrides, windows
        self._listed: dict[str, StoredModelList | None] = {}
        self._by_name: dict[str, dict[str, ListedModel]] = {}  # listed models, by provider

    def window(
        self, spec: "ProviderSpec | CommandSpec | PluginProvider", model: str
    ) -> int:
        """The context window of the model in tokens; 0: unknown."""
        own = override(spec.name, model, self._overrides)
        tokens = (own.window if own else 0) or self._windows.get(spec.name, 0)
        if tokens:
            return tokens
        listed = self._find_listed(spec, model)
        if listed and listed.window:
            return listed.window
        known = find(spec.name, model)
        if known and known.window:
            return known.window
        return catalog.window_of(spec, model) if isinstance(spec, ProviderSpec) else 0

    def rates(
        self,
        spec: "ProviderSpec | CommandSpec | PluginProvider",
        model: str,
        now: float | None = None,
    ) -> Rates | None:
        """The model's prices at `now`, in seconds since 1970; None: unknown."""
        is_local, listed = False, self._find_listed(spec, model)
        if isinstance(spec, ProviderSpec):
            address = self.address(spec)
            is_local = bool(address) and is_on_this_machine(spec, address, model)
        steps = listed.steps if listed else ()
        return rates(
            spec.name, model, self._overrides, is_local=is_local, tiers=steps, now=now
        )

    def rates_here(self, model: str) -> Rates | None:
        """The prices of an embedded model: zero, because it runs here."""
        return rates("local", model, self._overrides, is_local=True)

    def get_list(self, spec: ProviderSpec) -> StoredModelList | None:
        """The stored list of the provider, if it came from its current address."""
        if spec.name not in self._listed:
            self._keep(spec, load_list(self._directory, spec.name, self.address(spec)))
        return self._listed[spec.name]

    def learn(
        self, spec: ProviderSpec, models: tuple[ListedModel, ...], now: float
    ) -> StoredModelList:
        """Use this list from now on, and store it for the next start."""
        listed = StoredModelList(now, self.address(spec), models)
        self._keep(spec, listed)
        store_list(self._directory, spec.name, listed)
        return listed

    def address(self, spec: ProviderSpec) -> str:
        """The address of the provider; "" if it is not set."""
        try:
            return catalog.address(spec, self._environ)
        except BadInput:
            return ""

    def _keep(self, spec: ProviderSpec, model_list: StoredModelList | None) -> None:
        models = model_list.models if model_list else ()
        self._listed[spec.name] = model_list
        self._by_name[spec.name] = {model.name: model for model in models}

    def _find_listed(
        self, spec: "ProviderSpec | CommandSpec | PluginProvider", model: str
    ) -> ListedModel | None:
        if not isinstance(spec, ProviderSpec):
            return None
        self.get_list(spec)
        return self._by_name[spec.name].get(model)


def directory_in(state: Path) -> Path:
    """The directory for lists, in refold's state directory."""
    return state / "models"


def load_list(directory: Path, name: str, address: str) -> StoredModelList | None:
    """The list that the provider at this address reported last."""
    try:
        stored = msgspec.json.decode(
            _file(directory, name).read_bytes(), type=StoredModelList
        )
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None  # the provider can be asked again
    return stored if stored.address == address else None


def store_list(directory: Path, name: str, model_list: StoredModelList) -> None:
    """Store a list for the next start, completely or not at all. A failure to store is ignored."""
    file = _file(directory, name)
    temporary = file.with_suffix(f".{os.getpid()}.new")
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        create_file(temporary, msgspec.json.encode(model_list))
        temporary.replace(file)


def _file(directory: Path, name: str) -> Path:
    return directory / f"{quote(name, safe='')}.json"
