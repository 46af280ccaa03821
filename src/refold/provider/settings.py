"""Settings about providers: `[commands.NAME]`, and prices and windows of models.

Data only, because every start reads the settings. `command.spec` checks the commands, `prices`
applies the prices.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field

from refold.values.modes import Format

Context: TypeAlias = Literal["continue", "fresh", "sliding", "summarize"]


class UsagePlaces(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Paths of the token counts in a line of JSON."""

    input: str = ""  # input tokens
    cached: str = ""  # input tokens read from the cache
    cache_write: str = ""  # input tokens written to the cache
    output: str = ""  # output tokens
    reasoning: str = ""  # reasoning tokens
    input_has_cached: bool = True  # whether `input` includes cached tokens


class ProgramSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that is used as a model. See [command lines](../guides/backends.md)."""

    command: tuple[str, ...] = ()  # the program and its arguments
    tools: Literal["", "none"] = ""  # must be "none": the program runs no tools
    stdin: bool | None = None  # whether the prompt goes to its input; false: no input
    model: str = ""  # the model, if `-m` names none
    keys: tuple[str, ...] = ()  # environment variables with keys that it can see
    environ: dict[str, str] = field(default_factory=dict[str, str])  # variables to set
    install: str = ""  # how to install it, shown if it is missing
    context: Context = "continue"  # what is sent of the conversation
    format: Format = "plain"  # how the conversation is written
    window: int = 20  # messages that "sliding" and "summarize" leave whole
    idle: float = 0.0  # seconds without output; 0: the default of all backends
    output: Literal["text", "jsonl"] = "text"  # what it prints
    # Paths in a line of JSON.
    text: str = ""  # path of a piece of the response
    whole: str = ""  # path of the whole response
    thinking: str = ""  # path of the model's thinking
    error: str = ""  # path of an error message
    end: str = ""  # path that only the last line has
    cost: str = ""  # path of the cost in US dollars
    usage: UsagePlaces = UsagePlaces()


CLAUDE_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
CODEX_KEYS = ("OPENAI_API_KEY", "CODEX_API_KEY")
GEMINI_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")


def key_names(commands: Mapping[str, ProgramSettings]) -> frozenset[str]:
    """Return the variables with keys for built-in command lines and the user's `commands`."""
    own = (name for command in commands.values() for name in command.keys)
    return frozenset((*CLAUDE_KEYS, *CODEX_KEYS, *GEMINI_KEYS, *own))


# A larger price for a million tokens is a mistake in a settings file.
Dollars: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]
AtLeast0: TypeAlias = Annotated[int, Meta(ge=0)]


class Override(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices and context window of a model. Prices are US dollars per million tokens.

    A price that is not set is taken from the built-in list, without its tiers. If you set
    a price for input, tokens read from or written to the cache cost the same, unless you
    set their prices, too.
    """

    input: Dollars | None = None  # input tokens
    output: Dollars | None = None  # output tokens
    cached: Dollars | None = None  # input tokens read from the cache
    cache_write: Dollars | None = None  # input tokens written to the cache
    window: AtLeast0 = 0  # context window in tokens; 0: as in the list

    @property
    def has_price(self) -> bool:
        """Whether at least one price is set."""
        return any(
            p is not None for p in (self.input, self.output, self.cached, self.cache_write)
        )
