"""Lists the policies of a turn in order, with their settings, and loads those of packages.

The rank of a proposal decides first (`engine.decide`); between proposals of one rank the first
policy wins. The comment at each policy gives the reason for its position. `tests/engine`
(`test_policy_order`) swaps each pair whose order matters.
"""

from collections.abc import Callable, Iterable
from typing import cast

from msgspec import Raw

from refold.config.settings import Settings
from refold.engine.budget import Price
from refold.engine.decide import Action, Note, Policy
from refold.engine.policies.budget import draw_on_grant, end_over_budget, warn_of_budget
from refold.engine.policies.compaction import compact_when_full, in_window
from refold.engine.policies.conversation import converse, final
from refold.engine.policies.plan_mode import in_plan_mode, plan_ready
from refold.engine.policies.reminders import (
    ended_commands,
    nested_instructions,
    place_rebuilt,
    reminder_policies,
)
from refold.engine.policies.step_limit import at_most, going_on
from refold.engine.policies.stuck import not_refused, not_stuck
from refold.engine.policies.turn_end import (
    after_a_stop,
    continue_cut_response,
    stopping,
    wait_for_children,
)
from refold.engine.prune import CompactionShares
from refold.errors import BadInput
from refold.journal.state.fold import View
from refold.plugins import Plugin
from refold.values.log_level import WriteLog
from refold.values.usage import Budget

POLICY_GROUP = "refold.policies"  # the group of entry points


def policies(
    settings: Settings,
    schema: Raw | None,
    steps: int = 0,
    parent_prices: Price | None = None,
    *,
    acts_by_code: bool = False,
    watched: bool = False,
) -> tuple[Policy, ...]:
    """Return the policies of a turn, in their order.

    `schema` is that of the final response, or None. `steps` is a step limit in addition to that
    of the settings; the lower one applies. `parent_prices` are the prices for a subagent whose
    parent granted the budget. `acts_by_code` says that the agent acts by writing code, and
    `watched` that a user watches, so that steps need no limit. Raises `BadInput` for an invalid
    `schema`.
    """
    limits = settings.limits
    compaction = compact_when_full(compaction_shares(settings))
    return (
        # A stop by a person comes first: calls are settled and not run, and the turn ends
        # with the person's reason, not with a plan, an answer or a limit.
        stopping,
        # A response without code may not end the task, so its schema is not checked yet.
        *_code_policies(acts_by_code=acts_by_code),
        # Before all policies that end a turn with an answer: an invalid answer fails, or is
        # rejected.
        *_schema_policies(schema, limits.corrections),
        # Ends by a tool come before ends by a limit. A plan is judged before an answer of
        # the same response counts.
        plan_ready,
        final,
        # `in_window` asks `compaction` itself, because only a conversation that cannot be
        # compacted is too long.
        in_window(compaction),
        compaction,
        # The cause comes before the symptom: a model whose calls are all refused also runs
        # out of steps.
        not_refused(limits.refused_responses),
        # Before `converse`: the summary at the limit is the end of the steps, and not an
        # answer.
        at_most(
            _lowest_limit(steps, limits.turn_steps(watched=watched)),
            limits.wrap_up_steps,
            summary=limits.final_summary,
        ),
        continue_cut_response(limits.continuations, code=acts_by_code),
        *not_stuck(
            limits.repeated_calls,
            limits.alternating_calls,
            limits.repeated_errors,
            limits.repeated_searches,
        ),
        # These policies return notes. All notes are used, and the model reads them in this order.
        going_on,
        after_a_stop,
        in_plan_mode(settings.permission_mode),
        *(reminder_policies() if settings.reminders else ()),
        nested_instructions,
        place_rebuilt,
        ended_commands,
        wait_for_children,
        converse,
        # After `converse`: a turn that ends by itself has not run out of budget.
        end_over_budget(budget(settings), parent_prices),
        *(
            (draw_on_grant(budget(settings), parent_prices),)
            if parent_prices is not None
            else ()
        ),
        *warn_of_budget(budget(settings), has_grant=parent_prices is not None),
    )


def _lowest_limit(*limits: int) -> int:
    """Return the lowest of these limits. A limit of 0 means no limit."""
    return min(filter(None, limits), default=0)


def load_policies(
    plugins: Iterable[Plugin], log: WriteLog
) -> tuple[tuple[Policy, ...], tuple[str, ...]]:
    """Load the policies of the entry points `plugins`.

    Also return a sentence about each entry point that cannot be loaded.
    """
    loaded, problems = list[Policy](), list[str]()
    for plugin in plugins:
        try:
            loaded.append(_skip_once_failed(plugin, plugin.function(), log))
        except BadInput as error:
            problems.append(str(error))
    return tuple(loaded), tuple(problems)


def _skip_once_failed(
    plugin: Plugin, function: Callable[..., object], log: WriteLog
) -> Policy:
    """Return the policy `function`, which this process skips after its first exception.

    The exception is written to the log.
    """
    broken = False

    def policy(view: View) -> Action | Note | None:
        """Return what the policy decides; None from its first exception on."""
        nonlocal broken
        if broken:
            return None
        try:
            return cast("Action | Note | None", function(view))
        except Exception as error:  # a bug of the policy must not end the session
            broken = True
            log("warning", str(plugin.error_about(f"{type(error).__name__}: {error}")))
            return None

    policy.__name__ = plugin.name
    return policy


def _code_policies(*, acts_by_code: bool) -> tuple[Policy, ...]:
    """Return the policy for an agent that acts by writing code; () for other agents."""
    if not acts_by_code:
        return ()
    from refold.engine.policies.code_only import code_or_final

    return (code_or_final,)


def _schema_policies(schema: Raw | None, corrections: int) -> tuple[Policy, ...]:
    """Return the policy that requires an answer by `schema`; () without a schema.

    A model may correct an invalid answer `corrections` times.
    """
    if schema is None:
        return ()
    from refold.engine.policies.answer_schema import require_schema

    try:
        return (require_schema(schema, corrections),)
    except ValueError as error:
        raise BadInput(f"this is not a JSON Schema: {error}") from error


def compaction_shares(settings: Settings) -> CompactionShares:
    """Return the shares of the window at which compaction begins, from the settings."""
    own = settings.context
    return CompactionShares(
        window=own.default_window_tokens,
        prune=own.prune_share,
        frees=own.min_freed_share,
        results=own.kept_results,
        compact=own.compact_share,
        messages=own.kept_messages,
    )


def budget(settings: Settings) -> Budget:
    """Return the budget of a turn from the settings. A setting of 0 means no limit."""
    own = settings.budget
    return Budget(
        dollars=own.dollars or None,
        tokens=own.tokens or None,
        calls=own.calls or None,
        seconds=own.seconds or None,
    )
