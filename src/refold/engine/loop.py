"""Runs a turn: decides on an action, performs it, and repeats that. The view has all state.

This module has no features. A policy changes the next step, the seam (`calls`) wraps a call,
and a watcher of the hub observes. Cancelling is safe at every await: an effect that has
happened is recorded while the step unwinds, and one that has not happened is decided again.
"""

from collections.abc import Callable
from typing import assert_never

import anyio

from refold.engine import model_call
from refold.engine.budget import estimate_next_step, request_more
from refold.engine.checkpoint import save_if_changed
from refold.engine.decide import (
    AskModel,
    ChosenAction,
    CompactConversation,
    Deliver,
    EndTurn,
    Reject,
    RequestBudget,
    RunCalls,
    RunHook,
    SettleCalls,
    Wait,
    decide,
)
from refold.engine.world import Record, World
from refold.journal.events.kinds import AnswerRejected, Delivered, TurnEnded


async def run_turn(
    world: World, record: Record, on_step: Callable[[anyio.CancelScope], None]
) -> None:
    """Run steps until the turn has ended, or waits for the user.

    It also returns when the session's directory changes, because that needs a new world.

    Each step has a cancel scope, which is passed to `on_step`. A stop is recorded first,
    then the scope is cancelled, and the next decision sees the stop.
    """
    directory = record.view.session.directory
    while (
        record.view.session.directory == directory
        and (choice := decide(record.view, world.policies)) is not None
    ):
        with anyio.CancelScope() as step:
            on_step(step)
            await perform(choice, world, record)


async def perform(choice: ChosenAction, world: World, record: Record) -> None:
    """Perform the chosen action, and record the result."""
    by = f"policy {choice.by}"
    match choice.action:
        case AskModel():
            await _ask(choice, choice.action, world, record)
        case RunCalls():
            # Imported late: the first response has no calls yet.
            from refold.engine import calls

            await calls.run_ready(world, record)
        case SettleCalls(ids, reason):
            from refold.engine import calls

            open_calls = [c for c in record.view.conversation.calls if c.call.id in ids]
            await record(
                *(calls.end_unexecuted(c, reason, world, record) for c in open_calls),
                author=by,
            )
        case Reject() | Deliver() as action:
            await record(_event_of(action), author=by)
        case RunHook() as action:
            # Imported late: most sessions have no hooks.
            from refold.engine import run_hooks

            await run_hooks.run_due(action, world, record)
        case CompactConversation() as action:
            # Imported late: most sessions end before they need it.
            from refold.engine.summarize import compact_conversation

            await compact_conversation(action, world, record, by)
        case Wait():
            await record.wait_for_event(after=record.view.seq)
        case RequestBudget():
            need = estimate_next_step(record.view, world.model.price)
            await request_more(
                need, world.budget, world.lineage.grant, record, record_refusal=True
            )
        case EndTurn(outcome, reason):
            await save_if_changed(world, record)
            await record(TurnEnded(outcome, reason), kept=True, author=by)
        case _:
            assert_never(choice.action)


def _event_of(action: Reject | Deliver) -> AnswerRejected | Delivered:
    if isinstance(action, Reject):
        return AnswerRejected(action.notes)
    return Delivered(action.messages)


async def _ask(
    choice: ChosenAction, action: AskModel, world: World, record: Record
) -> None:
    if await model_call.begin(choice, action, world, record):
        await model_call.ask(world, record)
