"""Which models there are here, and who answers for each. Part of the hall.

A model is named `provider/model`. What cannot be connected still gets a
provider: one that says why, so that a turn ends with a sentence and the words
of the person are not lost.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from refold.config.paths import Paths
from refold.config.settings import Settings
from refold.errors import BadInput, Refused
from refold.provider import catalog
from refold.provider.catalog import Connected, ProviderSpec
from refold.provider.port import Delta, Provider, Request
from refold.provider.retry import Backoff, Patient
from refold.tools.contract import Tool

if TYPE_CHECKING:
    from pathlib import Path

SMALL = "local/"
SCRIPT = "script/"
NOTHING = (
    "no model is configured: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, "
    "start Ollama, run "
    "`refold local install` and use -m local/qwen2.5-coder-1.5b, or take the tour: refold tour"
)


class Asked(Protocol):
    """What was wished for, as far as it decides on models."""

    @property
    def script(self) -> "Path | None": ...
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
        self._settings, self._paths, self._environ = settings, paths, environ
        self._keys, self._asked = keys, asked
        self._known = _known(settings)
        self._open: dict[str, Provider] = {}
        self._closing: list[Connected] = []
        self._offline: tuple[str, ...] | None = None  # what needs no key

    @property
    def scripted(self) -> bool:
        """Do the answers come from the caller, and not from a model by name?"""
        return self._asked.provider is not None or self._asked.script is not None

    def default(self) -> str:
        """The model to use when nobody named one; "" if there is none."""
        if self._asked.provider is not None:
            return f"{SCRIPT}own"
        if self._asked.script is not None:
            return f"{SCRIPT}{self._asked.script.name}"
        return self._settings.model or self._found()

    def check(self, name: str) -> str:
        """`name` in full. Raises `BadInput` where it could not be asked anything."""
        if not name:
            raise BadInput(NOTHING)
        if name.startswith(SCRIPT):
            self.provider(name)
            return name
        if name.startswith(SMALL):
            self._connect(name)
            return name
        spec, model = catalog.named(name, self._known)
        self._connect(name)
        return f"{spec.name}/{model}"

    def names(self) -> tuple[str, ...]:
        """What can be offered: one model of each provider, and those installed here."""
        found = [f"{spec.name}/{spec.model}" for spec in self._known if spec.model]
        return (*found, *self._installed())

    def profile(self, name: str) -> Profile:
        if name.startswith(SMALL):
            from refold.provider.local.server import CONTEXT

            return Profile(CONTEXT, small=True)
        if not name or name.startswith(SCRIPT):
            return Profile()
        try:
            spec, model = catalog.named(name, self._known)
        except BadInput:
            return Profile()
        return Profile(catalog.window_of(spec, model))

    def provider(self, name: str) -> Provider:
        """Who answers for `name`. Never raises; the answer may be why not."""
        if self._asked.provider is not None:
            return self._asked.provider
        if name not in self._open:
            try:
                self._open[name] = self._connect(name or "")
            except BadInput as error:
                return Unconnected(str(error))
        return self._open[name]

    def secrets(self) -> tuple[str, ...]:
        """Every key we hold, so that none is ever written."""
        names = (name for spec in self._known for name in spec.secret_envs)
        found = (self._environ.get(name, "") for name in names)
        return tuple(key for key in (*found, *self._keys.values()) if key)

    async def aclose(self) -> None:
        while self._closing:
            await self._closing.pop().aclose()

    def _connect(self, name: str) -> Provider:
        if name in self._open:
            return self._open[name]
        if not name:
            raise BadInput(NOTHING)
        if name.startswith(SCRIPT):
            return self._script()
        if name.startswith(SMALL):
            return self._kept(name, self._embedded(name))
        spec, _ = catalog.named(name, self._known)
        keyed = catalog.has_key(spec, self._environ)  # the environment goes first
        http = self._settings.http
        found = catalog.connect(
            spec,
            self._environ,
            key="" if keyed else self._keys.get(spec.name, ""),
            idle=http.idle,
            connecting=http.connect,
        )
        backoff = Backoff(retries=http.retries, longest=http.longest_wait)
        return self._kept(name, found, Patient(found, backoff))

    def _kept(self, name: str, found: Connected, outer: Provider | None = None) -> Provider:
        self._closing.append(found)
        self._open[name] = outer or found
        return self._open[name]

    def _script(self) -> Provider:
        from refold.testing.script_file import load

        if self._asked.script is None:
            raise BadInput("a scripted session needs its script: give --script FILE")
        return load(self._asked.script)

    def _embedded(self, name: str) -> Connected:
        from refold.provider.local.embedded import Embedded
        from refold.provider.local.models import find
        from refold.provider.local.server import ServerProcess
        from refold.provider.local.shelf import Shelf, default_directory

        model, shelf = find(name), Shelf(default_directory(self._environ))
        if not shelf.holds(model):
            raise BadInput(
                f"{name} is not installed: `refold local install --model {model.name}` "
                f"fetches {model.size / 1e9:.1f} GB"
            )
        log = self._paths.state / f"{model.name}.log"
        return Embedded(model, ServerProcess(shelf.place(model), log))

    def _installed(self) -> tuple[str, ...]:
        from refold.provider.local.shelf import Shelf, default_directory

        shelf = Shelf(default_directory(self._environ))
        return tuple(f"{SMALL}{model.name}" for model in shelf.installed())

    def _found(self) -> str:
        """A key in the environment, then Ollama, then an embedded model."""
        for spec in self._known:
            if spec.wire == "openai-responses" and self._moved(spec):
                continue  # a server that only resembles OpenAI's speaks Chat
            keyed = catalog.has_key(spec, self._environ) or spec.name in self._keys
            if spec.model and keyed:
                return f"{spec.name}/{spec.model}"
        if self._offline is None:  # asked once: nobody is kept waiting twice
            self._offline = (*ollama_models(self._environ), *self._installed())
        return next(iter(self._offline), "")

    def _moved(self, spec: ProviderSpec) -> bool:
        return catalog.address(spec, self._environ) != spec.base_url


class Unconnected:
    """Says why there is nobody to ask."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        raise Refused(self._why)
        yield  # makes it a generator, as the port has it


def _known(settings: Settings) -> tuple[ProviderSpec, ...]:
    """The built-in providers, changed and added to as the settings say."""
    found = {spec.name: spec for spec in catalog.providers()}
    for name, own in settings.providers.items():
        base = found.get(name)
        if base is None and not (own.wire and own.base_url):
            raise BadInput(
                f"the provider {name!r} in the settings needs a wire and a base_url: "
                f'[providers.{name}] wire = "openai-chat", base_url = "http://…"'
            )
        spec = base or ProviderSpec(name, own.wire or "openai-chat", name, own.base_url)
        found[name] = replace(
            spec,
            wire=own.wire or spec.wire,
            base_url=own.base_url or spec.base_url,
            url_env="" if own.base_url else spec.url_env,
            url_too=() if own.base_url else spec.url_too,
            key_env=own.key_env or spec.key_env,
        )
    return tuple(found.values())


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
