"""`[commands.NAME]` of the settings, and the variables that hold the keys of programs.

Data only, because every start reads the settings. `spec` checks it.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

Context: TypeAlias = Literal["continue", "fresh", "sliding", "summarize"]
Format: TypeAlias = Literal["plain", "markdown", "json", "xml"]


class UsagePlaces(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Paths of the token counts in a line of JSON."""

    input: str = ""  # input tokens
    cached: str = ""  # input tokens read from the cache
    cache_write: str = ""  # input tokens written to the cache
    output: str = ""  # output tokens
    reasoning: str = ""  # reasoning tokens
    input_has_cached: bool = True  # whether `input` includes cached tokens


class ProgramSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that is used as a model. See [command lines](backends.md)."""

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


CLAUDE = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
CODEX = ("OPENAI_API_KEY", "CODEX_API_KEY")
GEMINI = ("GEMINI_API_KEY", "GOOGLE_API_KEY")


def key_names(commands: Mapping[str, ProgramSettings]) -> frozenset[str]:
    """Those of all that are built in, and of `commands`, a person's own."""
    own = (name for command in commands.values() for name in command.keys)
    return frozenset((*CLAUDE, *CODEX, *GEMINI, *own))
