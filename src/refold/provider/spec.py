"""A provider as data: everything known about it before the first request.

`catalog` has the built-in ones, and connects.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.errors import BadInput

Wire: TypeAlias = Literal[
    "anthropic", "openai-responses", "openai-chat", "gemini", "ollama"
]


class Quirks(Struct, frozen=True):
    """Where a server differs from others that speak OpenAI's Chat API."""

    output_limit: str = "max_tokens"  # what the limit of an answer is called
    short_ids: bool = False  # a call's id is nine letters and digits, and nothing else
    bridged: bool = False  # an answer must stand between a result and a person's words
    thinking_back: str = ""  # the field that an answer with calls must return it in
    stream: bool = True  # it can tell an answer piece by piece
    effort_in: str = "reasoning_effort"  # the field; nested in "reasoning"; "": none
    schema_beside_tools: bool = False  # a schema for answers leaves calls alone
    cache_key: bool = False  # it takes one: requests of a session belong together
    costs: bool = False  # it tells what an answer cost, if asked
    details: str = ""  # the name under which its `reasoning_details` are kept for it


class ProviderSpec(Struct, frozen=True):
    """A provider as data. Variables are looked at in the order they stand."""

    name: str
    wire: Wire
    label: str  # as messages name it
    base_url: str  # "": everybody has their own
    url_env: str = ""
    key_env: str = ""
    bearer_env: str = ""  # a token that goes in as a bearer, where that is another thing
    model: str = ""  # the one to take when a person names only the provider
    aliases: tuple[str, ...] = ()
    advice: str = ""  # what to look at when nobody answers
    key_too: tuple[str, ...] = ()  # other variables that may hold the key
    url_too: tuple[tuple[str, str], ...] = ()  # or the address, and what to put after it
    key_header: str = ""  # that the key goes in; "": the wire's own
    keyless: bool = False  # it may ask for none: a server on this machine
    quirks: Quirks = Quirks()

    @property
    def own(self) -> bool:
        """Does it run on a machine of whoever asks it?"""
        return self.keyless or self.wire == "ollama"

    @property
    def secret_envs(self) -> tuple[str, ...]:
        """Every variable that may hold what lets us in."""
        return tuple(filter(None, (self.key_env, *self.key_too, self.bearer_env)))


def no_provider(name: str, names: Iterable[str]) -> BadInput:
    """`names` are those there are. All of them would be a wall: the nearest, or where to look."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), names, cutoff=0.5)
    way_out = (
        f"did you mean {' or '.join(near)}?" if near else "refold models --all lists them"
    )
    return BadInput(f"there is no provider {name!r}; {way_out}")
