"""Token usage and cost of model calls, counted the same for every provider; and budgets."""

from msgspec import Struct
from msgspec.structs import force_setattr

from refold.values.modes import Mode


class Usage(Struct, frozen=True):
    """`fresh`, `cached` and `cache_write` add up to all input tokens.

    Providers differ: Anthropic's "input" excludes cached tokens, OpenAI's includes them. The
    wires convert. `reasoning` is the part of `output` that is thinking. `estimated`: the
    provider reported nothing, or something impossible, so a part is estimated.
    """

    fresh: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    estimated: bool = False

    def __post_init__(self) -> None:
        # What a provider says is never credit: a negative count would lower a budget's use.
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
        """Input tokens that no cache had, and output: those with the full price."""
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
    """What a number of responses used and cost in US dollars.

    An unknown price is not zero: `dollars` leaves out the `unpriced` responses, and `cost` is
    None while there are any.
    """

    usage: Usage = Usage()
    dollars: float = 0.0
    answers: int = 0
    unpriced: int = 0

    @property
    def cost(self) -> float | None:
        return None if self.unpriced else self.dollars

    def plus(self, usage: Usage, cost: float | None) -> "Spent":
        return Spent(
            self.usage + usage,
            self.dollars + (cost or 0.0),
            self.answers + 1,
            self.unpriced + (cost is None),
        )

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.usage + other.usage,
            self.dollars + other.dollars,
            self.answers + other.answers,
            self.unpriced + other.unpriced,
        )


class Budget(Struct, frozen=True):
    """What a turn, with all that it starts, may use. None: no limit.

    `tokens` are uncached tokens; they bind if a price is not known.
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

    They hold until the session is left; a resumed run brings its own. Rules are as written;
    None and 0: not given. `config.flag_settings` converts them to settings.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: Mode | None = None
    steps: int = 0
    dollars: float = 0.0
    tokens: int = 0


NO_RUN_LIMITS = RunLimits()
