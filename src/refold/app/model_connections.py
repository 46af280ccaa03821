"""Connects to a model: its wire, with retries and the other wrappers of a provider.

A model that cannot be used still gets a provider, which fails with the reason. So the turn ends
with a sentence, and the user's message is not lost.
"""

from collections.abc import AsyncGenerator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from refold.config.api_keys import Keys, TenantKey
from refold.config.paths import Paths
from refold.config.settings import Provider as OwnProvider
from refold.config.settings import Settings
from refold.errors import BadInput, NoModel, Refused
from refold.logs.logbook import Logbook
from refold.provider import catalog
from refold.provider.capability_fallback import ToolFallback
from refold.provider.catalog import ConnectedProvider, ProviderSpec
from refold.provider.port import Delta, Provider, Request
from refold.provider.retry import Backoff, RetryingProvider
from refold.provider.settings import key_names
from refold.provider.spec import (
    PluginProvider,
    Quirks,
    find_by_name,
    plugin_provider,
    unknown_provider_error,
)
from refold.session.redactor import Redactor
from refold.values.modes import Format

if TYPE_CHECKING:
    from pathlib import Path

    from refold.provider.command.spec import CommandSpec
    from refold.provider.lazy import LazyProvider
    from refold.provider.local.models import LocalModel
    from refold.provider.local.server import SharedServer
    from refold.provider.text_protocol.selection import TextCallModels

LOCAL_PREFIX = "local/"
SCRIPT_PREFIX = "script/"
NO_BACKGROUND = "REFOLD_NO_BACKGROUND"  # if set, no process outlives ours
# The server of an embedded model ends after this idle time if no process may outlive ours.
_SHORT_KEEP_SECONDS = 1.0
NO_MODEL_TEXT = (
    "no model is configured: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, "
    "start Ollama, run "
    "`refold local install` and use -m local/qwen2.5-coder-1.5b, or take the tour: refold tour"
)


class ConnectionOptions(Struct, frozen=True):
    """Options of all connections of a start.

    `timed` says that the caller limits the time of each turn. `tenant_keys` has the keys of a
    tenant, by provider.
    """

    script: "Path | None" = None
    timed: bool = False
    tenant_keys: Mapping[str, TenantKey] = MappingProxyType({})


NO_CONNECTION_OPTIONS = ConnectionOptions()


class Connections:
    """The open connections to models. Each is made when it is first used."""

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        environ: Mapping[str, str],
        keys: Mapping[str, str],
        options: ConnectionOptions = NO_CONNECTION_OPTIONS,
    ) -> None:
        settings = _with_addresses(settings, options.tenant_keys)
        own_keys = {provider: own.key for provider, own in options.tenant_keys.items()}
        self._settings, self._paths, self._environ = settings, paths, environ
        self._script, self._timed = options.script, options.timed
        self.known = _provider_specs(settings)
        server_key_names = {name for spec in self.known for name in spec.secret_envs}
        self._key_names = server_key_names | key_names(settings.commands)
        secret_names = (*settings.secret_variables, *self._key_names)
        secrets = (environ.get(name, "") for name in secret_names)
        self.masks = Redactor(
            (*secrets, *keys.values(), *own_keys.values()), self._mask_key
        )
        self.log = Logbook(paths.state, settings.log_level, self.masks.mask)
        self.keys = Keys(settings.providers, environ, keys, self.masks.learn, own_keys)
        self._open: dict[tuple[str, str], Provider] = {}  # by name and format
        self._lazy_providers: dict[str, LazyProvider] = {}
        self._to_close: list[ConnectedProvider] = []

    def _mask_key(self) -> bytes:
        # Imported late: few starts mask anything.
        from refold.config.mask_key import read_mask_key

        return read_mask_key(self._paths.data)

    def provider(self, name: str, form: Format | Literal[""] = "") -> Provider:
        """Return the provider for the model `name`. `form` is as in `connect`.

        Never raises: if the model cannot be used, the provider fails with the reason.
        """
        try:
            return self.connect(name, form)
        except BadInput as error:
            return Unconnected(str(error))

    def connect(self, name: str, form: Format | Literal[""] = "") -> Provider:
        """Connect to the model `name`. Raises `BadInput` if it does not exist.

        `form` is the format of the conversation; "" means the format in the settings.
        """
        key = (name, form)
        if key not in self._open:
            self._open[key] = self._connect(name, form)
        return self._open[key]

    def check(self, name: str) -> None:
        """Raise `BadInput` if the model cannot be used. This may wait until its key is read."""
        self.connect(name)
        if name in self._lazy_providers:
            self._lazy_providers[name].connect_now()

    def list_installed(self) -> tuple[str, ...]:
        """Return the names of the embedded models that are on this machine."""
        from refold.provider.local.models import ModelDirectory, default_directory

        model_files = ModelDirectory(default_directory(self._environ))
        return tuple(
            f"{LOCAL_PREFIX}{model.name}" for model in model_files.list_installed()
        )

    def calls_in_text(self, name: str) -> bool:
        """Whether the model calls tools in its text.

        The settings decide, or else refold's knowledge about the model.
        """
        if not name or name.startswith((SCRIPT_PREFIX, LOCAL_PREFIX)):
            return False
        try:
            named = self.resolve(name)
        except BadInput:
            return False
        spec, model = named.spec, named.model
        if not isinstance(spec, ProviderSpec):
            return False
        from refold.provider.text_protocol.selection import choose_protocol, needs_text

        own = self._settings.providers.get(spec.name, OwnProvider())
        protocol = choose_protocol(model, own.tools, own.text_tools)
        if protocol != "auto":
            return protocol == "text"
        return needs_text(spec.name, model) or model in self._text_call_models(spec)

    def window_of_embedded(self, name: str) -> int:
        """Return the context window of an embedded model, in tokens."""
        from refold.provider.local.models import ModelDirectory, default_directory
        from refold.provider.local.server import (
            DEFAULT_CONTEXT_TOKENS,
            context_tokens,
            machine_memory,
        )

        try:
            model = ModelDirectory(default_directory(self._environ)).find(name)
        except BadInput:
            return DEFAULT_CONTEXT_TOKENS
        return context_tokens(model, machine_memory())

    def continue_scripts(self, before: "Connections") -> None:
        """Continue each script at the position that the connections `before` have reached."""
        self._open |= {
            key: provider
            for key, provider in before._open.items()
            if key[0].startswith(SCRIPT_PREFIX)
        }

    async def aclose(self) -> None:
        while self._to_close:
            await self._to_close.pop().aclose()

    def resolve(self, name: str) -> "NamedModel":
        """Return the provider and model that a name `provider/model` stands for.

        Raises `BadInput` with the nearest names.
        """
        provider = name.partition("/")[0].lower()
        if (server := find_by_name(provider, self.known)) is not None:
            return NamedModel(*catalog.parse_model(name, (server,)))
        from refold.provider.command.backends import builtin_specs, parse_name
        from refold.provider.command.spec import parse_own_commands

        parts = parse_name(name, parse_own_commands(self._settings.commands))
        if parts is not None:
            return NamedModel(*parts)
        match plugin_provider(provider):
            case ProviderSpec() as spec:
                return NamedModel(*catalog.parse_model(name, (spec,)))
            case PluginProvider() as plugin:
                return NamedModel(plugin, name.partition("/")[2])
            case None:
                pass
        names = [n for spec in self.known for n in (spec.name, *spec.aliases)]
        names += [*(spec.name for spec in builtin_specs()), "command", "local"]
        raise unknown_provider_error(provider, names)

    def _connect(self, name: str, form: Format | Literal[""]) -> Provider:
        """Return a new provider for a model. Raises `NoModel` if `name` is "".

        `form` is the format of the conversation; "" means the format in the settings.
        """
        if not name:
            raise NoModel(NO_MODEL_TEXT)
        if name.startswith(SCRIPT_PREFIX):
            return self._script_provider()
        if name.startswith(LOCAL_PREFIX):
            return self._with_context(self._close_later(self._connect_embedded(name)), form)
        http, fallback = self._settings.http, self._settings.fallback_models
        backoff = Backoff(
            retries=http.retries,
            longest=http.max_retry_wait_seconds,
            # Another model responds sooner than an overload or a rate limit ends.
            first_limited=1.0 if fallback else 8.0,
            first_overloaded=1.0 if fallback else 4.0,
            longest_overloaded=4.0 if fallback else 60.0,
            fallback=bool(fallback),
            endless=self._timed and not fallback and http.retries > 0,
        )
        named = self.resolve(name)
        match named.spec:
            case ProviderSpec() as spec:
                provider = self._with_context(self._connect_server(spec, named.model), form)
            case PluginProvider(make=make):
                provider = self._with_context(make(named.model, self._environ), form)
            case spec:  # a program of another agent
                provider = self._connect_program(spec, named.model, form)
        return RetryingProvider(ToolFallback(provider), backoff, write_log=self.log)

    def _with_context(self, provider: Provider, form: Format | Literal[""]) -> Provider:
        """Wrap a provider so that it gets less of a conversation, or gets it in another format.

        Return the provider unchanged unless the settings or `form` require a change.
        """
        backend = self._settings.backend
        form = form or backend.format
        if backend.context in ("", "continue") and not form:
            return provider
        from refold.provider.command.prompt import ContextLimiter
        from refold.provider.command.spec import ConversationFormat

        conversation = ConversationFormat(backend.context, form, backend.window_messages)
        return ContextLimiter(provider, conversation)

    def _connect_server(self, spec: ProviderSpec, model: str) -> Provider:
        """Return the provider of a model behind an API, with its protocol for tool calls."""
        from refold.provider.text_protocol.selection import (
            choose_protocol,
            with_call_protocol,
        )

        own = self._settings.providers.get(spec.name, OwnProvider())
        connect_server = partial(self._connect_spec, spec, own.window)
        if self.keys.needs_key_store(spec):
            from refold.provider.lazy import LazyProvider

            provider: ConnectedProvider = LazyProvider(connect_server)
            self._lazy_providers[f"{spec.name}/{model}"] = provider
        else:
            provider = connect_server()
        protocol = choose_protocol(model, own.tools, own.text_tools)
        known = self._text_call_models(spec)
        return with_call_protocol(
            self._close_later(provider), spec.name, spec.wire, model, protocol, known
        )

    def _text_call_models(self, spec: ProviderSpec) -> "TextCallModels":
        """Return the record of those models of a provider that were found to call tools in
        text.
        """
        from refold.provider.text_protocol.selection import TextCallModels

        try:
            address = catalog.address(spec, self._environ)
        except BadInput:
            address = ""
        return TextCallModels(self._paths.state, spec.name, address)

    def _connect_spec(self, spec: ProviderSpec, window: int) -> ConnectedProvider:
        """Return a connection to an API, with the key that is known now, if any."""
        key = self.keys.find(spec)
        return catalog.connect(
            spec,
            self._environ,
            key=key.text_for_wire if key else "",
            idle=self._settings.http.idle_seconds,
            connecting=self._settings.http.connect_seconds,
            window=window,
        )

    def _connect_program(
        self, spec: "CommandSpec", model: str, form: Format | Literal[""]
    ) -> Provider:
        """Return a provider that runs a program of another agent for each response.

        `form` is the format of the conversation; "" means the format in the settings.
        """
        from refold.provider.command.backends import connect
        from refold.provider.command.spec import ConversationFormat, ProgramTimeouts
        from refold.provider.text_protocol.protocol import TextProtocol

        backend = self._settings.backend
        form = form or backend.format
        conversation = ConversationFormat(backend.context, form, backend.window_messages)
        if spec.tools == "on":
            from refold.app.sandboxed_program import SandboxedProgram

            program = SandboxedProgram(spec, model, self._environ, conversation)
            return TextProtocol(self._close_later(program))
        provider = connect(
            spec,
            model,
            environ=self._environ,
            conversation=conversation,
            timeouts=ProgramTimeouts(idle=self._settings.http.idle_seconds),
            secrets=self._key_names,
        )
        return TextProtocol(provider)

    def _close_later(self, provider: ConnectedProvider) -> Provider:
        """Return `provider`, and let `aclose` close it."""
        self._to_close.append(provider)
        return provider

    def _script_provider(self) -> Provider:
        """Return the provider that plays the script. Raises `BadInput` without a script."""
        from refold.provider.script import Script

        if self._script is None:
            raise BadInput("a scripted session needs its script: give --script FILE")
        return Script(self._script)

    def _connect_embedded(self, name: str) -> ConnectedProvider:
        from refold.provider.local.embedded import Embedded

        return Embedded(*self.server_of_embedded(name))

    def server_of_embedded(self, name: str) -> "tuple[LocalModel, SharedServer]":
        """Return an embedded model, and the server that runs it.

        Raises `BadInput` if the model is not installed.
        """
        from refold.provider.local.models import ModelDirectory, default_directory
        from refold.provider.local.server import Serving, SharedServer

        model_files = ModelDirectory(default_directory(self._environ))
        model = model_files.find(name)
        if not model_files.is_installed(model):
            raise BadInput(
                f"{name} is not installed: `refold local install --model {model.name}` "
                f"fetches {model.size / 1e9:.1f} GB"
            )
        may_stay = not self._environ.get(NO_BACKGROUND)
        keep = self._settings.local.keep_seconds if may_stay else _SHORT_KEEP_SECONDS
        serving = Serving(keep=keep, context=self.window_of_embedded(name))
        directory = self._paths.state / "local"
        return model, SharedServer(model_files.path_of(model), directory, serving)


class NamedModel(Struct, frozen=True):
    """The provider and model that a name stands for."""

    spec: "ProviderSpec | CommandSpec | PluginProvider"
    model: str

    @property
    def full_name(self) -> str:
        return f"{self.spec.name}/{self.model}" if self.model else self.spec.name


class Unconnected:
    """A provider for a model that is not available. Each request fails with the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        raise Refused(self._reason)
        yield  # makes the function a generator, as the port requires


def _provider_specs(settings: Settings) -> tuple[ProviderSpec, ...]:
    """Return the built-in providers, with the changes and additions of the settings."""
    specs = {spec.name: spec for spec in catalog.providers()}
    for name, own in settings.providers.items():
        base = specs.get(name)
        if base is None and not (own.wire and own.base_url):
            raise BadInput(
                f"the provider {name!r} in the settings needs a wire and a base_url: "
                f'[providers.{name}] wire = "openai-chat", base_url = "http://…"'
            )
        spec = base or ProviderSpec(name, own.wire or "openai-chat", name, own.base_url)
        specs[name] = replace(
            spec,
            wire=own.wire or spec.wire,
            base_url=own.base_url or spec.base_url,
            url_env="" if own.base_url else spec.url_env,
            url_too=() if own.base_url else spec.url_too,
            key_env=own.key_env or spec.key_env,
            hosts_mcp=spec.hosts_mcp and own.wire in ("", spec.wire),
            quirks=_changed_quirks(name, spec.quirks, own.quirks),
        )
    return tuple(specs.values())


def _with_addresses(settings: Settings, keys: Mapping[str, TenantKey]) -> Settings:
    """Return the settings, with the address that each key has for its provider."""
    addresses = {
        name: replace(settings.providers.get(name, OwnProvider()), base_url=key.base_url)
        for name, key in keys.items()
        if key.base_url
    }
    return replace(settings, providers={**settings.providers, **addresses})


def _changed_quirks(
    name: str, quirks: Quirks, overrides: Mapping[str, bool | str]
) -> Quirks:
    """Return the quirks of the provider `name`, with the `overrides` of the settings.

    Raises `BadInput` for an unknown quirk or an invalid value.
    """
    if wrong := sorted(set(overrides) - set(Quirks.__struct_fields__)):
        names = ", ".join(Quirks.__struct_fields__)
        raise BadInput(
            f"the provider {name!r} in the settings has no quirk {wrong[0]!r}; "
            f"there are {names}"
        )
    try:
        return msgspec.convert({**asdict(quirks), **overrides}, Quirks, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"the quirks of the provider {name!r} do not fit: {error}"
        ) from error
