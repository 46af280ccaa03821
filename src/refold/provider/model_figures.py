"""Determines a model's context window and prices, by one rule for sessions and reports.

The settings come first, then what the provider has reported, then the list of known models.
What providers report is cached in files. A missing or broken file is not an error, because the
provider can be asked again. `model_list` asks.
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
    """A model with the context window and prices that its provider reports."""

    name: str
    window: int = 0  # tokens; 0: not reported
    steps: tuple[PriceTier, ...] = ()  # prices, if they are reported


class StoredModelList(Struct, frozen=True):
    """The models that a provider has reported, as they are stored in a file."""

    at: float  # seconds since 1970
    address: str  # the address of the provider that reported it
    models: tuple[ListedModel, ...]


class ModelFigures:
    """The context windows and prices of models.

    `overrides` are the user's settings for single models, and `windows` the windows that the
    user has set for all models of a provider. `directory` has the stored lists of providers; a
    list is read when it is first needed.
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
        self._lists: dict[str, StoredModelList | None] = {}
        self._by_name: dict[str, dict[str, ListedModel]] = {}  # listed models, by provider

    def window(
        self, spec: "ProviderSpec | CommandSpec | PluginProvider", model: str
    ) -> int:
        """Return the context window of a model in tokens, or 0 if unknown."""
        user_setting = override(spec.name, model, self._overrides)
        if user_setting and user_setting.window:
            return user_setting.window
        if provider_setting := self._windows.get(spec.name, 0):
            return provider_setting
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
        """Return the prices of a model at `now`, in seconds since 1970, or None if unknown."""
        listed = self._find_listed(spec, model)
        tiers = listed.steps if listed else ()
        is_local = False
        if isinstance(spec, ProviderSpec):
            address = self.address(spec)
            is_local = bool(address) and is_on_this_machine(spec, address, model)
        return rates(
            spec.name, model, self._overrides, is_local=is_local, tiers=tiers, now=now
        )

    def rates_here(self, model: str) -> Rates | None:
        """Return an embedded model's prices, which are 0 unless the settings say otherwise."""
        return rates("local", model, self._overrides, is_local=True)

    def get_list(self, spec: ProviderSpec) -> StoredModelList | None:
        """Return the stored list of a provider, or None if its address has reported none."""
        if spec.name not in self._lists:
            self._set_list(spec, load_list(self._directory, spec.name, self.address(spec)))
        return self._lists[spec.name]

    def learn(
        self, spec: ProviderSpec, models: tuple[ListedModel, ...], now: float
    ) -> StoredModelList:
        """Use these models of a provider from now on, and store them for the next start."""
        model_list = StoredModelList(now, self.address(spec), models)
        self._set_list(spec, model_list)
        store_list(self._directory, spec.name, model_list)
        return model_list

    def address(self, spec: ProviderSpec) -> str:
        """Return the address of a provider, or "" if it is not set or invalid."""
        try:
            return catalog.address(spec, self._environ)
        except BadInput:
            return ""

    def _set_list(self, spec: ProviderSpec, model_list: StoredModelList | None) -> None:
        """Set the models of a provider; None means that they are not known."""
        models = model_list.models if model_list else ()
        self._lists[spec.name] = model_list
        self._by_name[spec.name] = {model.name: model for model in models}

    def _find_listed(
        self, spec: "ProviderSpec | CommandSpec | PluginProvider", model: str
    ) -> ListedModel | None:
        """Return what the list of the provider says about the model, or None."""
        if not isinstance(spec, ProviderSpec):
            return None
        self.get_list(spec)  # fills `_by_name`
        return self._by_name[spec.name].get(model)


def directory_in(state: Path) -> Path:
    """Return the directory for stored lists, below refold's state directory."""
    return state / "models"


def load_list(directory: Path, name: str, address: str) -> StoredModelList | None:
    """Read the stored list of a provider, or return None if there is none from this address."""
    try:
        stored = msgspec.json.decode(
            _file(directory, name).read_bytes(), type=StoredModelList
        )
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None  # the provider can be asked again
    return stored if stored.address == address else None


def store_list(directory: Path, name: str, model_list: StoredModelList) -> None:
    """Store a list for the next start, completely or not at all. Errors are ignored."""
    file = _file(directory, name)
    temporary = file.with_suffix(f".{os.getpid()}.new")
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        create_file(temporary, msgspec.json.encode(model_list))
        temporary.replace(file)


def _file(directory: Path, name: str) -> Path:
    return directory / f"{quote(name, safe='')}.json"
