"""What a turn, and all that it starts, may use up; and what one model call might."""

from msgspec import Struct


class Budget(Struct, frozen=True):
    """None: no limit. `tokens` bind where a price is not known: those no cache had, and output."""

    dollars: float | None = None
    tokens: int | None = None
    calls: int | None = None  # of models
    seconds: float | None = None


class Estimate(Struct, frozen=True):
    """What a model call may come to, at most. It is set aside before the call is made."""

    dollars: float | None = None  # None: the price is not known
    tokens: int = 0


NO_LIMIT = Budget()
