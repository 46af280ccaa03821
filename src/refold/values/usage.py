"""Budgets, and the token usage and cost of model calls, counted in one way for all
providers.
"""

from msgspec import Struct
from msgspec.structs import force_setattr

from refold.values.modes import Mode


class Usage(Struct, frozen=True):
    """The tokens that model calls used.

    `fresh`, `cached` and `cache_write` add up to all input tokens.

    Providers count differently: Anthropic's "input" excludes cached tokens, OpenAI's includes
    them. The wires convert the counts. `reasoning` is the part of `output` that is thinking. If
    `estimated`, the provider reported no numbers or impossible ones, so some numbers are
    estimates.
    """

    fresh: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    estimated: bool = False

    def __post_init__(self) -> None:
        # A provider's count is never negative, because that would lower the used part of a
        # budget.
        if min(self.fresh, self.cached, self.cache_write, self.output, self.reasoning) >= 0:
            return
        for name in self.__struct_fields__:
            if getattr(self, name) < 0:
                force_setattr(self, name, 0)

    @property
    def input(self) -> int:
        return self.fresh + self.cached + self.cache_write

    @property
    def uncached(self) -> int:
        """The tokens with the full price: input tokens that were in no cache, and output."""
        return self.fresh + self.cache_write + self.output

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.fresh + other.fresh,
            self.cached + other.cached,
            self.cache_write + other.cache_write,
            self.output + other.output,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
        )


class Spent(Struct, frozen=True):
    """The usage of a number of responses, and their cost in US dollars.

    An unknown price is not zero: `dollars` does not include the `unpriced` responses, and
    `cost` is None if there are any.
    """

    usage: Usage = Usage()
    dollars: float = 0.0
    answers: int = 0
    unpriced: int = 0

    @property
    def cost(self) -> float | None:
        """Return the cost in dollars; None if the price of a response is unknown."""
        return None if self.unpriced else self.dollars

    def plus(self, usage: Usage, cost: float | None) -> "Spent":
        """Return the sum with one more response, whose `cost` is None if its price is
        unknown.
        """
        return Spent(
            self.usage + usage,
            self.dollars + (cost or 0.0),
            self.answers + 1,
            self.unpriced + 1 if cost is None else self.unpriced,
        )

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.usage + other.usage,
            self.dollars + other.dollars,
            self.answers + other.answers,
            self.unpriced + other.unpriced,
        )


class Budget(Struct, frozen=True):
    """The maximum that a turn may use, together with its subagents. None means no limit.

    `tokens` are uncached tokens; this limit applies only if a price is unknown.
    """

    dollars: float | None = None
    tokens: int | None = None
    calls: int | None = None  # of models
    seconds: float | None = None


class Estimate(Struct, frozen=True):
    """The most that a model call may cost. It is reserved before the call."""

    dollars: float | None = None  # None: the price is not known
    tokens: int = 0


NO_LIMIT = Budget()
DEFAULT_TOKENS = 2_000_000  # of a budget in which the user has chosen no limit


class RunLimits(Struct, frozen=True, omit_defaults=True):
    """Rules and limits of one run, from its command line or program.

    They apply until the session is left. A later run that resumes the session has rules and
    limits of its own. Rules are in their written form. None and 0 mean that a field is not set.
    `config.folder_settings` converts the rules and limits to settings.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: Mode | None = None
    steps: int = 0
    dollars: float = 0.0
    tokens: int = 0


NO_RUN_LIMITS = RunLimits()
