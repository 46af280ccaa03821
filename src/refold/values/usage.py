"""What model calls used, in tokens, counted the same way for every provider; and cost."""

from msgspec import Struct
from msgspec.structs import force_setattr

from refold.values.modes import Mode


class Usage(Struct, frozen=True):
    """`fresh`, `cached` and `cache_write` add up to all that was read.

    Providers differ: Anthropic's own "input" leaves cached tokens out, OpenAI's
    includes them. The wires translate; from here on nobody need know.
    `reasoning` is the part of `output` that was thought and not said. `estimated`: the
    provider told nothing, or what cannot be true, so some of it is an estimate of ours.
    """

    fresh: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    estimated: bool = False

    def __post_init__(self) -> None:
        # What a provider says is never credit: a negative count would lower a budget's use.
        for name in self.__struct_fields__:
            if getattr(self, name) < 0:
                force_setattr(self, name, 0)

    @property
    def input(self) -> int:
        return self.fresh + self.cached + self.cache_write

    @property
    def uncached(self) -> int:
        """What no cache had, and the answer: what a price has to be paid for in full."""
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
    """What some answers used, and what that cost in US dollars.

    An unknown price is not zero: `dollars` leaves the `unpriced` answers out, and
    `cost` says nothing while there are any.
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


# Limits: the budget of a turn, the estimate of a model call, the rules of one run.


class Budget(Struct, frozen=True):
    """What a turn, and all that it starts, may use. None: no limit. `tokens` bind where a price is not known: those no cache had, and output."""

    dollars: float | None = None
    tokens: int | None = None
    calls: int | None = None  # of models
    seconds: float | None = None


class Estimate(Struct, frozen=True):
    """What a model call may come to, at most. It is set aside before the call is made."""

    dollars: float | None = None  # None: the price is not known
    tokens: int = 0


NO_LIMIT = Budget()


class RunLimits(Struct, frozen=True, omit_defaults=True):
    """Rules and limits of one run: from its command line or program, and in no file.

    They hold until the session is left; a resumed run gives its own. Rules stand as they
    were written; None and 0: not given. `config.flag_settings` converts to settings.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: Mode | None = None
    steps: int = 0
    dollars: float = 0.0


NOTHING = RunLimits()
