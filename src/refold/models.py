"""Which models there are here, what each is good for, and what it costs. Part of the hall.

A model is named `provider/model`, or by its role: main, small, big, judge. How one
is reached says `connections`.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from refold.config.paths import Paths
from refold.config.settings import Roles, Settings
from refold.connections import SCRIPT, SMALL, Connections
from refold.errors import BadInput
from refold.provider import catalog
from refold.provider.catalog import ProviderSpec
from refold.provider.command.spec import CommandSpec
from refold.provider.port import Provider
from refold.session.secrets import Masks
from refold.tools.contract import Tool
from refold.values.usage import Usage

if TYPE_CHECKING:
    from pathlib import Path

    from refold.provider.cassette import Tape

ROLES = Roles.__struct_fields__
# What a replay does not compare: the day and directory, and the session's own name.
NOT_REPLAYED = frozenset({"system", "session"})


class Asked(Protocol):
    """What was wished for, as far as it decides on models."""

    @property
    def model(self) -> str: ...
    @property
    def script(self) -> "Path | None": ...
    @property
    def record(self) -> "Path | None": ...
    @property
    def replay(self) -> "Path | None": ...
    @property
    def provider(self) -> Provider | None: ...


class Profile(Struct, frozen=True):
    """How a model is talked to. `small` ones get few words and few tools."""

    window: int = 0
    small: bool = False

    @property
    def system(self) -> str:
        if not self.small:
            return ""
        from refold.prompts.small import small_system

        return small_system()

    def tools(self, given: tuple[Tool, ...]) -> tuple[Tool, ...]:
        if not self.small:
            return given
        from refold.prompts.small import small_tool
        from refold.tools.careful import careful
        from refold.tools.finish import finish

        short = ((tool, small_tool(tool.spec)) for tool in (*given, finish))
        return tuple(replace(careful(tool), spec=spec) for tool, spec in short if spec)


class Models:
    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        environ: Mapping[str, str],
        keys: Mapping[str, str],
        asked: Asked,
    ) -> None:
        self._settings, self._environ, self._keys = settings, environ, keys
        self._asked = asked
        self._connections = Connections(settings, paths, environ, keys, asked.script)
        self._chains: dict[str, Provider] = {}
        self._fixed: Provider | None = asked.provider
        self._tape: Tape | None = None
        if asked.record or asked.replay:
            self._take_out_the_cassette(asked.record, asked.replay)
        self._offline: tuple[str, ...] | None = None  # what needs no key

    @property
    def scripted(self) -> bool:
        """Do the answers come from the caller, and not from a model by name?"""
        return bool(self._asked.provider or self._asked.script)

    def default(self) -> str:
        """The model to use when nobody named one; "" if there is none."""
        if self._asked.provider is not None:
            return f"{SCRIPT}own"
        if self._asked.script is not None:
            return f"{SCRIPT}{self._asked.script.name}"
        return self.full(self._asked.model or "main")

    def full(self, name: str) -> str:
        """`name` as provider/model; a role becomes the model that is set for it.

        Raises `BadInput` for a name that nobody can be behind.
        """
        roles = self._settings.models
        if name in ROLES:
            name = getattr(roles, name) or roles.main or self._found()
            if name in ROLES:
                raise BadInput(f"a role is set to {name!r}: name a model, provider/model")
        if not name or name.startswith((SCRIPT, SMALL)):
            return name
        return self._connections.named(name).full

    def check(self, name: str) -> str:
        """`name` in full. Raises `BadInput` where it could not be asked anything."""
        found = self.full(name)
        if self._asked.replay is None:
            self._connections.connect(found)
        for link in self._settings.fallback:
            self.full(link)
        return found

    def names(self) -> tuple[str, ...]:
        """What can be offered: one model of each provider, and those installed here."""
        known = self._connections.known
        found = [f"{spec.name}/{spec.model}" for spec in known if spec.model]
        return (*found, *self._connections.installed())

    def profile(self, name: str) -> Profile:
        if name.startswith(SMALL):
            from refold.provider.local.server import CONTEXT

            return Profile(CONTEXT, small=True)
        if not name or name.startswith(SCRIPT):
            return Profile()
        try:
            found = self._connections.named(name)
        except BadInput:
            return Profile()
        return Profile(self._window(found.spec, found.model))

    def price(self, name: str, usage: Usage) -> float | None:
        """What that much of a model costs, in US dollars; None: not known."""
        from refold.provider.prices import price, runs_here

        if name.startswith(SCRIPT):
            return None
        if name.startswith(SMALL):
            model = name.removeprefix(SMALL)
            return price("local", model, usage, self._settings.prices, here=True)
        try:
            spec, model = self._connections.named(name)
            here = isinstance(spec, ProviderSpec) and runs_here(
                spec, catalog.address(spec, self._environ), model
            )
        except BadInput:
            return None
        return price(spec.name, model, usage, self._settings.prices, here=here)

    def provider(self, name: str) -> Provider:
        """Who answers for `name`. Never raises; the answer may be why not."""
        found = self._fixed or self._chain(name)
        if self._tape is None:
            return found
        from refold.provider.cassette import Recording

        return Recording(found, self._tape)

    def secrets(self) -> tuple[str, ...]:
        """Every key we hold, so that none is ever written."""
        specs = self._connections.known
        names = (name for spec in specs for name in spec.secret_envs)
        found = (self._environ.get(name, "") for name in names)
        return tuple(key for key in (*found, *self._keys.values()) if key)

    async def aclose(self) -> None:
        await self._connections.aclose()

    def _take_out_the_cassette(self, record: "Path | None", replay: "Path | None") -> None:
        from refold.provider.cassette import Replaying, Tape

        mask = Masks(self.secrets()).mask
        if replay is not None:
            self._fixed = Replaying(replay, NOT_REPLAYED, mask)
        if record is not None:
            self._tape = Tape(record, mask)

    def _chain(self, name: str) -> Provider:
        """The model, and behind it those to be asked while it is down."""
        others = [each for each in self._settings.fallback if self.full(each) != name]
        if not others or not name or name.startswith(SCRIPT):
            return self._connections.provider(name)
        if name not in self._chains:
            from refold.provider.fallback import Fallback

            links = [name, *map(self.full, others)]
            connect = self._connections.connect
            self._chains[name] = Fallback([(n, partial(connect, n)) for n in links])
        return self._chains[name]

    def _window(self, spec: ProviderSpec | CommandSpec, model: str) -> int:
        from refold.provider.prices import find, override

        own = override(spec.name, model, self._settings.prices)
        of_all = self._settings.providers.get(spec.name)
        listed = find(spec.name, model)
        found = (own and own.window) or (of_all and of_all.window)
        found = found or (listed and listed.window) or 0
        if found or not isinstance(spec, ProviderSpec):
            return found
        return catalog.window_of(spec, model)

    def _found(self) -> str:
        """A key in the environment, then Ollama, then an embedded model."""
        for spec in self._connections.known:
            if spec.wire == "openai-responses" and self._moved(spec):
                continue  # a server that only resembles OpenAI's speaks Chat
            keyed = catalog.has_key(spec, self._environ) or spec.name in self._keys
            if spec.model and keyed:
                return f"{spec.name}/{spec.model}"
        if self._offline is None:  # asked once: nobody is kept waiting twice
            found = ollama_models(self._environ)
            self._offline = (*found, *self._connections.installed())
        return next(iter(self._offline), "")

    def _moved(self, spec: ProviderSpec) -> bool:
        return catalog.address(spec, self._environ) != spec.base_url


def own_address(provider: str, host: str, port: int) -> tuple[str, str]:
    """A provider's name in full, and its address with another host or port.

    Raises `BadInput` for one that does not run on a machine of one's own.
    """
    spec = catalog.find(provider)
    if not (spec.keyless or spec.wire == "ollama"):
        raise BadInput(
            f"{spec.label} runs on its own machines: --host and --port are for a server "
            f"of yours; set [providers.{spec.name}] base_url for another address"
        )
    old = urlsplit(spec.base_url)
    where = f"{host or old.hostname}:{port or old.port}"
    return spec.name, f"{old.scheme}://{where}{old.path}"


def ollama_models(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What an Ollama on this machine has, if one answers at once."""
    import json
    import urllib.request

    url = catalog.address(catalog.find("ollama"), environ)
    try:
        with urllib.request.urlopen(f"{url}/api/tags", timeout=0.5) as answer:
            models = json.load(answer)["models"]
        return tuple(f"ollama/{model['name']}" for model in models)
    except (OSError, ValueError, KeyError, TypeError):
        return ()
