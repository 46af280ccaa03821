"""A provider as data: everything known about it before the first request.

`catalog` has the built-in ones, and connects.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct, structs

from refold.errors import BadInput
from refold.plugins import Plugin, find_plugins, find_unique
from refold.provider.port import Provider

Wire: TypeAlias = Literal[
    "anthropic", "openai-responses", "openai-chat", "gemini", "ollama"
]


class Quirks(Struct, frozen=True):
    """Differences of a server from others with OpenAI's Chat API."""

    output_limit: str = "max_tokens"  # the name of the output limit
    short_ids: bool = False  # ids of calls are exactly nine letters and digits
    bridged: bool = False  # a response must separate a result from a user's message
    thinking_back: str = ""  # the field for it in messages with calls
    stream: bool = True  # it can stream responses
    effort_in: str = "reasoning_effort"  # the field; nested in "reasoning"; "": none
    schema_beside_tools: bool = False  # a schema does not prevent calls
    cache_key: bool = False  # it accepts a key that groups a session's requests
    costs: bool = False  # it reports costs on request
    details: str = ""  # the name under which its `reasoning_details` are stored


class ProviderSpec(Struct, frozen=True):
    """A provider as data. Variables are tried in their order."""

    name: str
    wire: Wire
    label: str  # as messages name it
    base_url: str  # "": each user has their own
    url_env: str = ""
    key_env: str = ""
    bearer_env: str = ""  # a bearer token, if that differs from the key
    model: str = ""  # the model if only the provider is named
    aliases: tuple[str, ...] = ()
    program: str = ""  # the command line of the same maker, as a backend
    advice: str = ""  # what to check if it does not answer
    key_too: tuple[str, ...] = ()  # other variables that may hold the key
    url_too: tuple[tuple[str, str], ...] = ()  # or the address, with the path to append
    key_header: str = ""  # header of the key; "": the usual one of the wire
    keyless: bool = False  # a server on this machine may need no key
    hosts_mcp: bool = False  # it connects to MCP servers that a request names
    quirks: Quirks = Quirks()

    @property
    def own(self) -> bool:
        """Whether it is a server that users run themselves."""
        return self.keyless or self.wire == "ollama"

    @property
    def secret_envs(self) -> tuple[str, ...]:
        """All variables that may hold a key or token."""
        return tuple(filter(None, (self.key_env, *self.key_too, self.bearer_env)))


class Named(Protocol):
    """Something with a name, and other names that are used for it."""

    @property
    def name(self) -> str: ...
    @property
    def aliases(self) -> tuple[str, ...]: ...


AnyNamed = TypeVar("AnyNamed", bound=Named)


def find_by_name(name: str, items: Iterable[AnyNamed]) -> AnyNamed | None:
    """The entry with this name, or else the first with this alias."""
    items = tuple(items)
    by_alias = (spec for spec in items if name in spec.aliases)
    return next((spec for spec in items if spec.name == name), next(by_alias, None))


def unknown_provider_error(name: str, names: Iterable[str]) -> BadInput:
    """The error for an unknown provider; `names` are the known ones. It names the nearest,
    or where to look, instead of all of them.
    """
    from refold.values.similar_names import similar

    suggestions = similar(name, names)
    way_out = (
        f"did you mean {' or '.join(suggestions)}?"
        if suggestions
        else "refold models --all lists them"
    )
    return BadInput(f"there is no provider {name!r}; {way_out}")


PROVIDER_GROUP = "refold.providers"  # the group of entry points


class PluginProvider(Struct, frozen=True):
    """A provider in Python. `make` takes the model and the environment."""

    name: str
    make: Callable[[str, Mapping[str, str]], Provider]


def plugin_provider(name: str) -> ProviderSpec | PluginProvider | None:
    """The provider of that name, if a package has one. Raises `BadInput` if it is broken.

    Packages are searched only for a name that is not built in.
    """
    plugin = find_unique(find_plugins(PROVIDER_GROUP), name)
    return None if plugin is None else provider_of(plugin)


def provider_of(plugin: Plugin) -> ProviderSpec | PluginProvider:
    """What an entry point registers: data for a wire of ours, or a function."""
    registered = plugin.load()
    if isinstance(registered, ProviderSpec):
        return structs.replace(registered, name=plugin.name)
    if not callable(registered):
        raise plugin.error_about("it is neither a function nor a ProviderSpec")
    return PluginProvider(plugin.name, cast("Callable[..., Provider]", registered))
