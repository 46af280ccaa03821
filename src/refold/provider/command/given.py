"""A person's own command line, as it stands in `[commands.NAME]` of their settings.

Data alone: every start reads the settings. What it means says `templates`.
"""

from typing import Literal, TypeAlias

from msgspec import Struct, field

Context: TypeAlias = Literal["continue", "fresh", "sliding", "summarize"]
Format: TypeAlias = Literal["plain", "markdown", "json", "xml"]


class UsagePlaces(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the counts of tokens stand in a line of JSON."""

    input: str = ""
    cached: str = ""
    cache_write: str = ""
    output: str = ""
    reasoning: str = ""
    input_has_cached: bool = True  # are cached tokens counted in `input` too?


class Command(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program as a model, as it stands in the settings."""

    command: tuple[str, ...] = ()
    tools: Literal["", "none"] = ""  # it must say that it has none
    stdin: bool | None = None  # the prompt goes in there; else it is closed
    model: str = ""
    keys: tuple[str, ...] = ()  # variables with keys that it is to see
    environ: dict[str, str] = field(default_factory=dict[str, str])
    install: str = ""
    context: Context = "continue"
    format: Format = "plain"
    window: int = 20
    idle: float = 0.0  # seconds it may be silent; 0: as settings for all say
    output: Literal["text", "jsonl"] = "text"
    # Places in a line of JSON.
    text: str = ""  # a piece of the answer
    whole: str = ""  # all of it
    thinking: str = ""
    error: str = ""
    end: str = ""  # stands only in the last line
    cost: str = ""  # US dollars
    usage: UsagePlaces = UsagePlaces()
