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
# What a replay does not compare: the day and directory, and the session's own name.
NOT_REPLAYED = frozenset({"system", "session"})


class ModelRequest(Protocol):
    """The options of a start that decide on models."""

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
    def provider(self) -> Provider | None: ...
    @property
    def timed(self) -> bool: ...


class ModelTraits(Struct, frozen=True):
    """How to prompt a model. `small` models get short texts and few tools."""

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
        self._asked = request
        options = ConnectionOptions(request.script, request.timed, request.tenant_keys)
        self.connections = Connections(settings, paths, environ, keys, options)
        windows = {name: own.window for name, own in settings.providers.items()}
        lists = directory_in(paths.state)
        self.figures = ModelFigures(environ, settings.prices, windows, lists)
        self._chains: dict[tuple[str, str], Provider] = {}
        # Providers that call tools as text, by name, way and format.
        self._talking: dict[tuple[str, Acting, str], Provider] = {}
        self._fixed: Provider | None = request.provider
        self._tape: CassetteWriter | None = None
        if before is not None:  # a script and a cassette belong to the whole start
            self._fixed, self._tape = before._fixed, before._tape
            self.connections.continue_scripts(before.connections)
        elif request.record or request.replay:
            self._fixed, self._tape = _from_cassettes(request, self.masks)
        self._offline: tuple[str, ...] | None = None  # models that need no known key
        self._of_ollama: tuple[str, ...] = ()
        self._first_models = dict[str, str]()  # by server
        self._fallback = tuple(map(self.full_name, settings.fallback_models))

    def has_model_choice(self) -> bool:
        """Whether the user chose a model, if only by a key or by installing one."""
        name = self.default()
        return bool(name) and name not in self._of_ollama

    @property
    def has_script(self) -> bool:
        """Whether responses come from the caller, and not from a model by name."""
        return bool(self._asked.provider or self._asked.script)

    def default(self, role: str = "main") -> str:
        """The model to use for a role if none was named; "" if there is none."""
        if self._asked.provider is not None:
            return f"{SCRIPT_PREFIX}own"
        if self._asked.script is not None:
            return f"{SCRIPT_PREFIX}{self._asked.script.name}"
        return self.full_name(self._asked.model or role)

    def full_name(self, name: str) -> str:
        """`name` as provider/model; a role becomes the model that is set for it.

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
            if isinstance(spec, ProviderSpec) and (
                newest := self._newest_of(named.model, spec)
            ):
                return f"{spec.name}/{newest}"
            return named.full_name
        except BadInput as error:
            if of_family := self._resolve_alias(name):
                return of_family
            if of_server := self._first_of_server(name):
                return of_server
            if guesses := self._matching_names(name):
                hint = " or ".join(guesses)
                raise BadInput(
                    f"{name!r} names no provider; did you mean {hint}?"
                ) from error
            raise

    def check(self, name: str) -> str:
        """The full form of `name`. Raises `BadInput` if the model cannot be used."""
        named = self.full_name(name)
        if self._asked.replay is None and self._asked.provider is None:
            self.connections.check(named)
        return named

    def names(self) -> tuple[str, ...]:
        """The models to offer: of the roles, and of each provider likely to answer."""
        connections, roles = self.connections, self._settings.models
        names = [name for role in ROLE_NAMES if (name := getattr(roles, role))]
        names += [
            f"{spec.name}/{spec.model}"
            for spec in connections.known
            if spec.model
            and connections.keys.has_known_key(spec)
            and not self._has_own_address(spec)
        ]
        names += [
            f"{spec.name}/{model}"
            for spec in connections.known
            if spec.model
            and connections.keys.has_known_key(spec)
            and not self._has_own_address(spec)
            for alias in MODEL_ALIASES
            if (model := self._newest_of(alias, spec))
        ]
        names += [
            f"{spec.name}/{entry.name}"
            for spec in connections.known
            if (spec.own or connections.keys.has_known_key(spec))
            and (listed := self.figures.get_list(spec))
            for entry in listed.models[:_MAX_MODELS_PER_SERVER]
        ]
        return tuple(dict.fromkeys((*names, *connections.list_installed())))

    def traits(self, name: str) -> ModelTraits:
        if name.startswith(LOCAL_PREFIX):
            return ModelTraits(self.connections.window_of_embedded(name), small=True)
        if not name or name.startswith(SCRIPT_PREFIX):
            return ModelTraits()
        try:
            named = self.connections.resolve(name)
        except BadInput:
            return ModelTraits()
        return ModelTraits(self.figures.window(named.spec, named.model))

    def calls_in_text(self, name: str, acting: Acting = "native") -> bool:
        """Whether this model is known to call tools as text."""
        return acting == "text" or self.connections.calls_in_text(name)

    def price(self, name: str, usage: Usage) -> float | None:
        """The cost of this usage in US dollars; None: unknown."""
        if name.startswith(SCRIPT_PREFIX):
            return None
        if name.startswith(LOCAL_PREFIX):
            rates = self.figures.rates_here(name.removeprefix(LOCAL_PREFIX))
            return rates and rates.cost(usage)
        try:
            named = self.connections.resolve(name)
        except BadInput:
            return None
        rates = self.figures.rates(named.spec, named.model)
        return rates and rates.cost(usage)

    def provider(
        self, name: str, acting: Acting = "native", form: Format | Literal[""] = ""
    ) -> Provider:
        """The provider of the model `name`. Never raises: it may be one that fails with the
        reason.

        `acting` "text": it calls tools as text, whatever else it can do; "code": by writing
        Python. `form` is the format of the conversation, if it is not that of the settings.
        """
        provider = self._fixed or self._chain(name, form)
        if acting != "native":
            provider = self._with_text_calls(name, provider, acting, form)
        if self._tape is None:
            return provider
        from refold.provider.cassette import Recording

        return Recording(provider, self._tape)

    @property
    def masks(self) -> Redactor:
        """The masks of secrets: every key that is known now or later."""
        return self.connections.masks

    async def aclose(self) -> None:
        await self.connections.aclose()

    def _with_text_calls(
        self, name: str, base: Provider, acting: Acting, form: str
    ) -> Provider:
        # A cassette holds the requests above this; an embedded model calls tools its own
        # way.
        if self._asked.replay is not None:
            return base
        small = self.traits(name).small
        if acting == "text" and small:
            return base
        key = (name, acting, form)
        if key not in self._talking:
            self._talking[key] = (
                _with_code_acting(base, small)
                if acting == "code"
                else _with_text_protocol(base)
            )
        return self._talking[key]

    def _chain(self, name: str, form: Format | Literal[""]) -> Provider:
        """The model, followed by the fallback models."""
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
        """The chain, retried if all its models are overloaded and the task has a time limit."""
        http = self._settings.http
        if not (self._asked.timed and http.retries):
            return chain
        from refold.provider.retry import Backoff, RetryingProvider

        backoff = Backoff(retries=0, longest=http.max_retry_wait_seconds, endless=True)
        return RetryingProvider(chain, backoff, write_log=self.connections.log)

    def _resolve_alias(self, alias: str) -> str:
        """The model of an alias, from a provider with a key if possible; "" if there is none."""
        if alias.lower() not in MODEL_ALIASES:
            return ""
        known, has_key = self.connections.known, self.connections.keys.has_known_key
        keyed = [spec for spec in known if has_key(spec)]
        for spec in (*keyed, *known):
            if model := self._newest_of(alias, spec):
                return f"{spec.name}/{model}"
        return ""

    def _first_of_server(self, name: str) -> str:
        """The first model of the user's server that `name` names; "" if it names none."""
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
        if alias.lower() not in MODEL_ALIASES:
            return ""
        from refold.provider.model_aliases import newest_model

        listed = self.figures.get_list(spec)
        return newest_model(
            alias, spec.name, (m.name for m in (listed.models if listed else ()))
        )

    def _matching_names(self, name: str) -> list[str]:
        """Possible meanings of a name without a provider: a role, or a provider's model."""
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
        """The first model with a key, then one of Ollama, then an embedded one."""
        keys = self.connections.keys
        for spec in self.connections.known:
            if spec.wire == "openai-responses" and self._has_own_address(spec):
                continue  # compatible servers have the Chat API
            if spec.model and keys.has_known_key(spec):
                return f"{spec.name}/{spec.model}"
        if self._offline is None:  # requested once: a second wait is not worth it
            from refold.app.local_servers import ollama_models

            self._of_ollama = ollama_models(self._environ)
            names = (*self._names_from_keyring(), *self._of_ollama)
            self._offline = (*names, *self.connections.list_installed())
        return next(iter(self._offline), "")

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
    """The provider that replaces the model, and the recorder of calls, if any."""
    from refold.provider.cassette import CassetteWriter, Replaying

    fixed = request.provider
    if request.replay is not None:
        fixed = Replaying(request.replay, NOT_REPLAYED, masks.mask)
    return fixed, CassetteWriter(
        request.record, masks.mask
    ) if request.record is not None else None


def _with_text_protocol(provider: Provider) -> Provider:
    from refold.provider.text_protocol.protocol import TextProtocol

    return TextProtocol(provider)


def _with_code_acting(provider: Provider, small: bool) -> Provider:
    from refold.provider.text_protocol.code_acting import CodeActing

    return CodeActing(provider, small=small)


def mcp_host(models: Models, name: str) -> str:
    """The provider of this model, if it connects to MCP servers itself; otherwise ""."""
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
    """The provider for `name` in this role. It fails if the temperature is not allowed."""
    if not models.has_script and (
        why := _temperature_problem(models.connections, name, role.temperature)
    ):
        return Unconnected(why)
    return models.provider(name, acting, form)


def _temperature_problem(
    connections: Connections, name: str, temperature: float | None
) -> str:
    """The reason why a model does not accept this temperature, or ""."""
    if temperature is None or not name or name.startswith((SCRIPT_PREFIX, LOCAL_PREFIX)):
        return ""
    try:
        spec = connections.resolve(name).spec
    except BadInput:  # its provider reports it
        return ""
    if isinstance(spec, ProviderSpec):
        hot = spec.wire == "anthropic" and temperature > 1
        return f"temperature = {temperature:g}: {name} takes 0 to 1" if hot else ""
    if isinstance(spec, PluginProvider):
        return ""
    return (
        f"temperature = {temperature:g}: {name} is another agent's command line and "
        "takes none; unset it or choose another model"
    )
