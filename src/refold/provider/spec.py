"""A provider as data: everything that must be known before the first request.

`catalog` lists the built-in providers, and connects to them.
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
    """How a server with OpenAI's Chat API differs from others."""

    output_limit: str = "max_tokens"  # the name of the output limit
    short_ids: bool = False  # ids of calls are exactly nine letters and digits
    bridged: bool = False  # a response must separate a result from a user's message
    thinking_back: str = ""  # the field that returns thinking in messages with calls
    stream: bool = True  # it can stream responses
    # the field for the effort; "reasoning": nested in it; "": none
    effort_in: str = "reasoning_effort"
    schema_beside_tools: bool = False  # a schema does not prevent calls
    cache_key: bool = False  # it accepts a key that groups a session's requests
    costs: bool = False  # it reports costs on request
    details: str = ""  # the name under which its `reasoning_details` are stored


class ProviderSpec(Struct, frozen=True):
    """A provider as data.

    Its address is in the first of the variables `url_env` and `url_too` that is set, and its
    key in the first of `key_env` and `key_too`.
    """

    name: str
    wire: Wire
    label: str  # the name in messages
    base_url: str  # "": each user has another one
    url_env: str = ""
    key_env: str = ""
    bearer_env: str = ""  # a bearer token, if that differs from the key
    model: str = ""  # the model to use if only the provider is named
    aliases: tuple[str, ...] = ()
    program: str = ""  # the command line of the same maker, which can be a backend
    advice: str = ""  # what to check if it does not answer
    key_too: tuple[str, ...] = ()  # other variables that may hold the key
    # other variables with the address, each with the path to append
    url_too: tuple[tuple[str, str], ...] = ()
    key_header: str = ""  # the header for the key; "": the usual one of the wire
    keyless: bool = False  # a server on this machine may need no key
    hosts_mcp: bool = False  # it connects to MCP servers that a request names
    quirks: Quirks = Quirks()

    @property
    def own(self) -> bool:
        """Whether users run servers of this provider themselves."""
        return self.keyless or self.wire == "ollama"

    @property
    def secret_envs(self) -> tuple[str, ...]:
        """The environment variables that may contain a key or token."""
        return tuple(filter(None, (self.key_env, *self.key_too, self.bearer_env)))


class Named(Protocol):
    """An object with a name and aliases."""

    @property
    def name(self) -> str: ...
    @property
    def aliases(self) -> tuple[str, ...]: ...


AnyNamed = TypeVar("AnyNamed", bound=Named)


def find_by_name(name: str, items: Iterable[AnyNamed]) -> AnyNamed | None:
    """Return the first item with this name, or else with this alias, or None."""
    items = tuple(items)
    for item in items:
        if item.name == name:
            return item
    return next((item for item in items if name in item.aliases), None)


def unknown_provider_error(name: str, names: Iterable[str]) -> BadInput:
    """Return the error for an unknown provider `name`. `names` are the known ones.

    It suggests similar names or, if there are none, the command that lists all.
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
    """A provider in an installed package. `make` gets the model's name and the environment."""

    name: str
    make: Callable[[str, Mapping[str, str]], Provider]


def plugin_provider(name: str) -> ProviderSpec | PluginProvider | None:
    """Return the provider with this name from an installed package, or None if there is none.

    The caller tries the built-in names first. Raises `BadInput` for a broken package.
    """
    plugin = find_unique(find_plugins(PROVIDER_GROUP), name)
    return None if plugin is None else provider_of(plugin)


def provider_of(plugin: Plugin) -> ProviderSpec | PluginProvider:
    """Return the provider that an entry point of an installed package registers.

    The entry point names a `ProviderSpec`, which uses one of our wires, or a function that
    makes the provider. Raises `BadInput` if it names anything else.
    """
    registered = plugin.load()
    if isinstance(registered, ProviderSpec):
        return structs.replace(registered, name=plugin.name)
    if not callable(registered):
        raise plugin.error_about("it is neither a function nor a ProviderSpec")
    return PluginProvider(plugin.name, cast("Callable[..., Provider]", registered))
