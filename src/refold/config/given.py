"""Which of the settings one start was given by flags, and the flags that say so again.

Only those by which a turn is steered and a call judged: a session that is run again needs
them, and finds them nowhere else.
"""

from collections.abc import Sequence

from refold.config.layers import COMMAND_LINE
from refold.config.load import Loaded
from refold.config.settings import RuleWithCases
from refold.values.given import Given

_MODE, _STEPS, _DOLLARS = "permission_mode", "limits.steps", "budget.dollars"


def given_in(loaded: Loaded) -> Given:
    """What of the settings comes from flags, and from them alone."""
    settings, origins = loaded
    flagged = {key for key, found in origins.items() if found.origin == COMMAND_LINE}
    rules = settings.permissions
    return Given(
        allow=_flagged(rules.allow),
        ask=_flagged(rules.ask),
        deny=_flagged(rules.deny),
        mode=settings.permission_mode if _MODE in flagged else None,
        steps=settings.limits.steps if _STEPS in flagged else 0,
        dollars=settings.budget.dollars if _DOLLARS in flagged else 0.0,
    )


def as_flags(given: Given) -> dict[str, object]:
    """The same as `load_here` takes it."""
    return {
        "permissions.allow": given.allow,
        "permissions.ask": given.ask,
        "permissions.deny": given.deny,
        _MODE: given.mode,
        _STEPS: given.steps or None,
        _DOLLARS: given.dollars or None,
    }


def _flagged(rules: Sequence[str | RuleWithCases]) -> tuple[str, ...]:
    return tuple(
        each.rule
        for each in rules
        if isinstance(each, RuleWithCases) and each.source == COMMAND_LINE
    )
