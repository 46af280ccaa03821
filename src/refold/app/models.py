"""The available models: their names and roles, their capabilities and their prices.

A model is named `provider/model`, or by its role: main, small, big, judge.
`model_connections` connects to it.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from refold.agents.profile import Acting
from refold.app.model_connections import (
    LOCAL_PREFIX,
    SCRIPT_PREFIX,
    ConnectionOptions,
    Connections,
    Unconnected,
)
from refold.config.api_keys import TenantKey
from refold.config.paths import Paths
from refold.config.settings import RoleOptions, Roles, Settings
from refold.errors import BadInput
from refold.provider import catalog
from refold.provider.catalog import ProviderSpec
from refold.provider.known_models import MODEL_ALIASES
from refold.provider.model_figures import ModelFigures, directory_in
from refold.provider.port import Provider
from refold.provider.spec import PluginProvider, find_by_name
from refold.session.redactor import Redactor
from refold.tools.contract import Tool
from refold.values.modes import Format
from refold.values.usage import Usage

if TYPE_CHECKING:
    from pathlib import Path

    from refold.provider.cassette import CassetteWriter

ROLE_NAMES = Roles.__struct_fields__
_MAX_MODELS_PER_SERVER = 20  # models of one server that are offered
# Fields of a request that a replay does not compare, because they differ in each start:
# `system` contains the date and the directory, `session` is the id of the session.
NOT_REPLAYED = frozenset({"system", "session"})


class ModelRequest(Protocol):
    """The options of a start that decide which models it uses."""

    @property
    def model(self) -> str: ...
    @property
    def tenant_keys(self) -> Mapping[str, TenantKey]: ...
    @property
    def script(self) -> "Path | None": ...
    @property
    def record(self) -> "Path | None": ...
    @property
    def replay(self) -> "Path | None": ...
    @property
    def provider(self) -> Provider | None: ...  # of refold's caller, for every model
    @property
    def timed(self) -> bool: ...  # it has a time limit, and no user attends


class ModelTraits(Struct, frozen=True):
    """How refold prompts a model. A `small` model gets short texts and few tools."""

    window: int = 0
    small: bool = False

    @property
    def system(self) -> str:
        if not self.small:
            return ""
        from refold.prompts.presets import small_system

        return small_system()

    def tools(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        if not self.small:
            return tools
        from refold.prompts.presets import small_tool
        from refold.tools.shell import without_overwriting
        from refold.tools.turn_control import finish

        short = ((tool, small_tool(tool.spec)) for tool in (*tools, finish))
        return tuple(
            without_overwriting(tool).with_spec(spec) for tool, spec in short if spec
        )


class Models:
    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        environ: Mapping[str, str],
        keys: Mapping[str, str],
        request: ModelRequest,
        before: "Models | None" = None,
    ) -> None:
        self._settings, self._environ = settings, environ
        self._request = request
        options = ConnectionOptions(request.script, request.timed, request.tenant_keys)
        self.connections = Connections(settings, paths, environ, keys, options)
        windows = {name: own.window for name, own in settings.providers.items()}
        lists = directory_in(paths.state)
        self.figures = ModelFigures(environ, settings.prices, windows, lists)
        self._chains: dict[tuple[str, str], Provider] = {}
        # Providers that call tools as text or code, by model, acting and format.
        self._text_callers: dict[tuple[str, Acting, str], Provider] = {}
        self._fixed_provider: Provider | None = request.provider
        self._cassette_writer: CassetteWriter | None = None
        if before is not None:  # a script and a cassette belong to the whole start
            self._fixed_provider = before._fixed_provider
            self._cassette_writer = before._cassette_writer
            self.connections.continue_scripts(before.connections)
        elif request.record or request.replay:
            self._fixed_provider, self._cassette_writer = _from_cassettes(
                request, self.masks
            )
        self._keyless_names: tuple[str, ...] | None = None  # models that need no known key
        self._ollama_names: tuple[str, ...] = ()
        self._first_models = dict[str, str]()  # the first model of each server
        self._fallback = tuple(map(self.full_name, settings.fallback_models))

    def has_model_choice(self) -> bool:
        """Whether the user chose a model, directly or by setting a key or installing a
        model.
        """
        name = self.default()
        return bool(name) and name not in self._ollama_names

    @property
    def has_script(self) -> bool:
        """Whether responses come from a script or from refold's caller, not from a model."""
        return bool(self._request.provider or self._request.script)

    def default(self, role: str = "main") -> str:
        """Return the model for a role for which no model was named.

        Return "" if no model can be used.
        """
        if self._request.provider is not None:
            return f"{SCRIPT_PREFIX}own"
        if self._request.script is not None:
            return f"{SCRIPT_PREFIX}{self._request.script.name}"
        return self.full_name(self._request.model or role)

    def full_name(self, name: str) -> str:
        """Return `name` in the form provider/model. A role stands for its model in the
        settings.

        Raises `BadInput` for an impossible name.
        """
        roles = self._settings.models
        if name in ROLE_NAMES:
            name = getattr(roles, name) or roles.main or self._default_name()
            if name in ROLE_NAMES:
                raise BadInput(f"a role is set to {name!r}: name a model, provider/model")
        name = self._settings.model_aliases.get(name, name)
        if not name or name.startswith((SCRIPT_PREFIX, LOCAL_PREFIX)):
            return name
        if any(letter.isspace() for letter in name):
            raise BadInput(f"{name!r} is not a model name: provider/model has no spaces")
        try:
            named = self.connections.resolve(name)
            spec = named.spec
            newest = (
                self._newest_of(named.model, spec) if isinstance(spec, ProviderSpec) else ""
            )
            return f"{spec.name}/{newest}" if newest else named.full_name
        except BadInput as error:
            if alias_model := self._resolve_alias(name):
                return alias_model
            if server_model := self._first_of_server(name):
                return server_model
            if guesses := self._matching_names(name):
                hint = " or ".join(guesses)
                raise BadInput(
                    f"{name!r} names no provider; did you mean {hint}?"
                ) from error
            raise

    def check(self, name: str) -> str:
        """Return the full form of `name`. Raises `BadInput` if the model cannot be used."""
        named = self.full_name(name)
        if self._request.replay is None and self._request.provider is None:
            self.connections.check(named)
        return named

    def names(self) -> tuple[str, ...]:
        """Return the models to offer: those of roles, and those that are likely to respond."""
        connections, roles = self.connections, self._settings.models
        names = [name for role in ROLE_NAMES if (name := getattr(roles, role))]
        keyed = [s for s in connections.known if connections.keys.has_known_key(s)]
        hosted = [s for s in keyed if s.model and not self._has_own_address(s)]
        names += [f"{spec.name}/{spec.model}" for spec in hosted]
        newest = [
            (spec, self._newest_of(alias, spec))
            for spec in hosted
            for alias in MODEL_ALIASES
        ]
        names += [f"{spec.name}/{model}" for spec, model in newest if model]
        for spec in connections.known:
            listed = self.figures.get_list(spec) if spec.own or spec in keyed else None
            models = listed.models[:_MAX_MODELS_PER_SERVER] if listed else ()
            names += [f"{spec.name}/{model.name}" for model in models]
        return tuple(dict.fromkeys((*names, *connections.list_installed())))

    def traits(self, name: str) -> ModelTraits:
        if name.startswith(LOCAL_PREFIX):
            return ModelTraits(self.connections.window_of_embedded(name), small=True)
        if not name or name.startswith(SCRIPT_PREFIX):
            return ModelTraits()
        try:
            named = self.connections.resolve(name)
        except BadInput:  # the call of the model reports it
            return ModelTraits()
        return ModelTraits(self.figures.window(named.spec, named.model))

    def calls_in_text(self, name: str, acting: Acting = "native") -> bool:
        """Whether this model is known to call tools as text."""
        return acting == "text" or self.connections.calls_in_text(name)

    def price(self, name: str, usage: Usage) -> float | None:
        """Return the cost of this usage in US dollars, or None if the price is unknown."""
        if name.startswith(SCRIPT_PREFIX):
            return None
        if name.startswith(LOCAL_PREFIX):
            rates = self.figures.rates_here(name.removeprefix(LOCAL_PREFIX))
            return rates.cost(usage) if rates else None
        try:
            named = self.connections.resolve(name)
        except BadInput:
            return None
        rates = self.figures.rates(named.spec, named.model)
        return rates.cost(usage) if rates else None

    def provider(
        self, name: str, acting: Acting = "native", form: Format | Literal[""] = ""
    ) -> Provider:
        """Return the provider of the model `name`.

        Never raises: if the model cannot be used, the provider fails with the reason. With the
        `acting` "text" the model calls tools as text, even if it can call them natively; with
        "code" it calls them by writing Python. `form` is the format of the conversation, if it is
        not that of the settings.
        """
        provider = self._fixed_provider or self._chain(name, form)
        if acting != "native":
            provider = self._with_text_calls(name, provider, acting, form)
        if self._cassette_writer is None:
            return provider
        from refold.provider.cassette import Recording

        return Recording(provider, self._cassette_writer)

    @property
    def masks(self) -> Redactor:
        """The redactor that masks every known key, including keys that are found later."""
        return self.connections.masks

    async def aclose(self) -> None:
        await self.connections.aclose()

    def _with_text_calls(
        self, name: str, base: Provider, acting: Acting, form: str
    ) -> Provider:
        """Wrap `base` if the model calls tools in text or by writing code; see `provider`."""
        # A cassette records the requests above this level, because an embedded model calls
        # tools in its own way.
        if self._request.replay is not None:
            return base
        small = self.traits(name).small
        if acting == "text" and small:
            return base
        key = (name, acting, form)
        if key not in self._text_callers:
            self._text_callers[key] = (
                _with_code_acting(base, small=small)
                if acting == "code"
                else _with_text_protocol(base)
            )
        return self._text_callers[key]

    def _chain(self, name: str, form: Format | Literal[""]) -> Provider:
        """Return a provider that tries the model, and then the fallback models."""
        others = [model for model in self._fallback if model != name]
        if not others or not name or name.startswith(SCRIPT_PREFIX):
            return self.connections.provider(name, form)
        if (name, form) not in self._chains:
            from refold.provider.fallback import Fallback

            connect = self.connections.connect
            links = [(model, partial(connect, model, form)) for model in (name, *others)]
            self._chains[name, form] = self._retry_overload(Fallback(links))
        return self._chains[name, form]

    def _retry_overload(self, chain: Provider) -> Provider:
        """Wrap the chain so that it waits and tries again while all models are overloaded.

        Return it unchanged if the time of a turn has no limit, or if the settings allow no
        retries.
        """
        http = self._settings.http
        if not (self._request.timed and http.retries):
            return chain
        from refold.provider.retry import Backoff, RetryingProvider

        # Only overloads are retried here: each model's own connection retries other errors.
        backoff = Backoff(retries=0, longest=http.max_retry_wait_seconds, endless=True)
        return RetryingProvider(chain, backoff, write_log=self.connections.log)

    def _resolve_alias(self, alias: str) -> str:
        """Return the model of an alias, if possible from a provider with a key.

        Return "" if the alias is unknown.
        """
        if alias.lower() not in MODEL_ALIASES:
            return ""
        known, has_key = self.connections.known, self.connections.keys.has_known_key
        keyed = [spec for spec in known if has_key(spec)]
        for spec in (*keyed, *known):
            if model := self._newest_of(alias, spec):
                return f"{spec.name}/{model}"
        return ""

    def _first_of_server(self, name: str) -> str:
        """Return the first model of the user's server with this name; "" if there is no server.

        Raises `BadInput` if the server lists no model.
        """
        spec = find_by_name(name.lower(), self.connections.known)
        if spec is None or spec.model or not spec.own:
            return ""
        if spec.name not in self._first_models:  # requested once, as in `_default_name`
            from refold.app.local_servers import server_models

            listed = server_models(spec, self._environ)
            self._first_models[spec.name] = next(iter(listed), "")
        if not self._first_models[spec.name]:
            address = catalog.address(spec, self._environ)
            raise BadInput(
                f"{name!r} names no model, and {spec.label} at {address} lists none: "
                f"{spec.advice or 'start it'}, or write {spec.name}/MODEL"
            )
        return self._first_models[spec.name]

    def _newest_of(self, alias: str, spec: ProviderSpec) -> str:
        """Return the newest model of this provider that an alias stands for, or ""."""
        if alias.lower() not in MODEL_ALIASES:
            return ""
        from refold.provider.model_aliases import newest_model

        listed = self.figures.get_list(spec)
        models = listed.models if listed else ()
        return newest_model(alias, spec.name, (model.name for model in models))

    def _matching_names(self, name: str) -> list[str]:
        """Suggest names for a name without a provider: its models, or similar roles and
        aliases.
        """
        if "/" in name:
            return []
        from refold.provider.prices import find
        from refold.values.similar_names import similar

        known = [spec for spec in self.connections.known if find(spec.name, name)]
        matches = [f"{spec.name}/{name}" for spec in known]
        return matches[:3] or similar(
            name, [*ROLE_NAMES, *MODEL_ALIASES, *self._settings.model_aliases]
        )

    def _default_name(self) -> str:
        """Return the first model that can be used without further settings, or "".

        A model with a known key comes first, then a model with a key in the keyring, a model of
        Ollama, and an embedded model.
        """
        keys = self.connections.keys
        for spec in self.connections.known:
            if spec.wire == "openai-responses" and self._has_own_address(spec):
                continue  # compatible servers have the Chat API
            if spec.model and keys.has_known_key(spec):
                return f"{spec.name}/{spec.model}"
        # Requested once, because each request may take its whole time limit.
        if self._keyless_names is None:
            from refold.app.local_servers import ollama_models

            self._ollama_names = ollama_models(self._environ)
            names = (*self._names_from_keyring(), *self._ollama_names)
            self._keyless_names = (*names, *self.connections.list_installed())
        return next(iter(self._keyless_names), "")

    def _names_from_keyring(self) -> tuple[str, ...]:
        known = [
            s for s in self.connections.known if s.model and not self._has_own_address(s)
        ]
        spec = self.connections.keys.first_in_keyring(known)
        return (f"{spec.name}/{spec.model}",) if spec else ()

    def _has_own_address(self, spec: ProviderSpec) -> bool:
        return catalog.has_custom_address(spec, self._environ)


def _from_cassettes(
    request: ModelRequest, masks: Redactor
) -> "tuple[Provider | None, CassetteWriter | None]":
    """Return the provider that replaces all models, and the writer that records a cassette.

    The provider is that of the caller, or replays a cassette. Provider and writer may be None.
    """
    from refold.provider.cassette import CassetteWriter, Replaying

    fixed = request.provider
    if request.replay is not None:
        fixed = Replaying(request.replay, NOT_REPLAYED, masks.mask)
    writer = None
    if request.record is not None:
        writer = CassetteWriter(request.record, masks.mask)
    return fixed, writer


def _with_text_protocol(provider: Provider) -> Provider:
    from refold.provider.text_protocol.protocol import TextProtocol

    return TextProtocol(provider)


def _with_code_acting(provider: Provider, *, small: bool) -> Provider:
    from refold.provider.text_protocol.code_acting import CodeActing

    return CodeActing(provider, small=small)


def mcp_host(models: Models, name: str) -> str:
    """Return the provider of a model if it connects to MCP servers itself, otherwise ""."""
    if models.has_script or not name or name.startswith((SCRIPT_PREFIX, LOCAL_PREFIX)):
        return ""
    try:
        spec = models.connections.resolve(name).spec
    except BadInput:  # its provider reports it
        return ""
    return spec.name if isinstance(spec, ProviderSpec) and spec.hosts_mcp else ""


def provider_for_role(
    models: Models,
    name: str,
    role: RoleOptions,
    acting: Acting = "native",
    form: Format | Literal[""] = "",
) -> Provider:
    """Return the provider for the model `name` in a role. See `Models.provider`.

    Its requests fail if the model does not accept the temperature of the role.
    """
    if not models.has_script:
        problem = _temperature_problem(models.connections, name, role.temperature)
        if problem:
            return Unconnected(problem)
    return models.provider(name, acting, form)


def _temperature_problem(
    connections: Connections, name: str, temperature: float | None
) -> str:
    """Return why a model does not accept this temperature, or ""."""
    if temperature is None or not name or name.startswith((SCRIPT_PREFIX, LOCAL_PREFIX)):
        return ""
    try:
        spec = connections.resolve(name).spec
    except BadInput:  # its provider reports it
        return ""
    if isinstance(spec, ProviderSpec):
        is_too_hot = spec.wire == "anthropic" and temperature > 1
        return f"temperature = {temperature:g}: {name} takes 0 to 1" if is_too_hot else ""
    if isinstance(spec, PluginProvider):
        return ""
    return (
        f"temperature = {temperature:g}: {name} is another agent's command line and "
        "takes none; unset it or choose another model"
    )
