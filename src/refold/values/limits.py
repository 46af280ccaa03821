"""Limits: the budget of a turn, the estimate of a model call, the rules of one run."""

from msgspec import Struct

from refold.values.modes import Mode


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
