"""Shows models to users before they choose one: their names, figures and problems.

It sends no request. `models` resolves names and decides which models can be used.
"""

from collections.abc import Mapping

from refold.app.model_connections import LOCAL_PREFIX, SCRIPT_PREFIX
from refold.app.models import ROLE_NAMES, Models
from refold.config.settings import Settings
from refold.errors import BadInput
from refold.provider import catalog
from refold.provider.model_aliases import model_names
from refold.provider.prices import find, override, vendor_name
from refold.provider.spec import ProviderSpec

_LIST_HINT = "refold models {} lists them"


class ModelOffers:
    def __init__(
        self, models: Models, settings: Settings, environ: Mapping[str, str]
    ) -> None:
        self._models, self._settings, self._environ = models, settings, environ

    def names(self) -> tuple[str, ...]:
        """Return `Models.names()`, and the known models of each provider with a key."""
        connections = self._models.connections
        keyed = [
            spec
            for spec in connections.known
            if connections.keys.has_known_key(spec)
            and not catalog.has_custom_address(spec, self._environ)
        ]
        # Another wire of the same vendor has the same models, so only the first one is used.
        first_specs = dict[str, ProviderSpec]()
        for spec in keyed:
            first_specs.setdefault(vendor_name(spec.name), spec)
        known = [
            f"{spec.name}/{model}"
            for spec in first_specs.values()
            for model in model_names(spec.name)
        ]
        return tuple(dict.fromkeys((*self._models.names(), *known)))

    def notes(self, name: str) -> tuple[str, ...]:
        """Return the roles and aliases that the settings give to a model."""
        roles = [
            role for role in ROLE_NAMES if getattr(self._settings.models, role) == name
        ]
        aliases = self._settings.model_aliases.items()
        return (*roles, *(alias for alias, full in aliases if full == name))

    def figures(self, name: str) -> tuple[int, float | None, float | None]:
        """Return the window in tokens, and the prices of a million input and output tokens.

        An unknown window is 0, and an unknown price is None.
        """
        window = self._models.traits(name).window
        if name.startswith(LOCAL_PREFIX):
            return window, 0.0, 0.0
        try:
            named = self._models.connections.resolve(name)
        except BadInput:
            return window, None, None
        rates = self._models.figures.rates(named.spec, named.model)
        if rates is None:
            return window, None, None
        return window, rates.first.input, rates.first.output

    def unknown_model_warning(self, name: str) -> str:
        """Return a warning if the provider's list of models lacks this model, otherwise "".

        Raises `BadInput` for a name that no provider can have.
        """
        full = self._models.full_name(name)
        if not full or full.startswith((SCRIPT_PREFIX, LOCAL_PREFIX)):
            return ""
        named = self._models.connections.resolve(full)
        spec, model = named.spec, named.model
        if not isinstance(spec, ProviderSpec) or model == spec.model:
            return ""
        listed = self._models.figures.get_list(spec)
        names = [item.name for item in listed.models] if listed else []
        known = [*names, *model_names(spec.name)]
        own = override(spec.name, model, self._settings.prices)
        if not known or model in names or find(spec.name, model) or own:
            return ""
        from refold.values.similar_names import similar

        suggestions = [f"{spec.name}/{item}" for item in similar(model, known)]
        hint = (
            f"did you mean {' or '.join(suggestions)}?"
            if suggestions
            else _LIST_HINT.format(spec.name)
        )
        return f"{spec.name} has no model {model!r} that refold knows of; {hint}"
