"""Which policies steer a turn, with what the settings say."""

from msgspec import Raw

from refold.config.settings import Settings
from refold.engine.decide import Policy
from refold.engine.policies.budget import drawing, telling, within
from refold.engine.policies.children import hearing_children
from refold.engine.policies.code import code_or_final
from refold.engine.policies.compaction import compacting
from refold.engine.policies.continuation import joined_up
from refold.engine.policies.converse import converse
from refold.engine.policies.final import final
from refold.engine.policies.planning import in_plan_mode, plan_ready
from refold.engine.policies.refusals import not_refused
from refold.engine.policies.reminders import reminding
from refold.engine.policies.shape import shaped
from refold.engine.policies.step_limit import at_most, going_on
from refold.engine.policies.stopping import after_a_stop, stopping
from refold.engine.policies.stuck import not_stuck
from refold.engine.policies.window import in_window
from refold.engine.shrinking import Shares
from refold.engine.spending import Price
from refold.errors import BadInput
from refold.values.budget import Budget


def policies(
    settings: Settings,
    schema: Raw | None,
    steps: int = 0,
    lent: Price | None = None,
    *,
    coded: bool = False,
) -> tuple[Policy, ...]:
    """What may change the next step. Between equals the first wins.

    `steps` bounds a turn, too: the stricter holds. `lent` knows prices for a session whose
    budget comes from another, so a child's. `coded`: it acts by writing code. Raises `BadInput` for a `schema` that is none.
    """
    limits, shorter = settings.limits, compacting(shares(settings))
    try:
        shape = (shaped(schema, limits.corrections),) if schema is not None else ()
    except ValueError as error:
        raise BadInput(f"this is no JSON Schema: {error}") from error
    return (
        stopping,
        *((code_or_final,) if coded else ()),
        *shape,
        plan_ready,
        final,
        in_window(shorter),
        shorter,
        not_refused(limits.refusals),
        at_most(
            min(steps or limits.steps, limits.steps), limits.warn, summary=limits.summary
        ),
        joined_up(limits.continuations, code=coded),
        *not_stuck(limits.repeats, limits.alternations, limits.searches, limits.errors),
        going_on,
        after_a_stop,
        in_plan_mode(settings.permission_mode),
        *(reminding() if settings.reminders else ()),
        hearing_children,
        converse,
        within(budget(settings), lent),
        *((drawing(budget(settings), lent),) if lent is not None else ()),
        *telling(budget(settings), lent=lent is not None),
    )


def shares(settings: Settings) -> Shares:
    """When the talk is told shorter, as the settings have it."""
    own = settings.context
    return Shares(own.window, own.prune, own.frees, own.results, own.compact, own.messages)


def budget(settings: Settings) -> Budget:
    """What one turn may use up, as the settings have it; there 0 is no limit."""
    own = settings.budget
    dollars, tokens = own.dollars or None, own.tokens or None
    return Budget(dollars, tokens, own.calls or None, own.seconds or None)
