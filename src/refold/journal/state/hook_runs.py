"""The hooks that have run, by event, and the output of hooks that was not yet sent to the
model.

The output of hooks about a call is part of that call (`conversation`). This module does not
know the configured hooks; `engine.policies.hooked_turn` compares them with the hooks that have
run.
"""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    AnswerRejected,
    Compacted,
    Entry,
    HookRan,
    Imported,
    ModelAsked,
    SessionResumed,
    SessionStarted,
    TurnStarted,
)

# The policy that adds the text of hooks to a request.
CONTEXT_POLICY = "hook_context"

EVENT_KINDS = (
    SessionStarted, SessionResumed, Compacted, Imported, TurnStarted, ModelAsked, AnswerRejected,
    HookRan,
)  # fmt: skip


class HookRuns(Struct, frozen=True):
    """The hooks that have run.

    `began` is set while SessionStart hooks may be due: what began ("startup", "resume" or
    "compact") and the seq of its event. Otherwise it is ("", 0).
    """

    began: tuple[str, int] = ("", 0)
    ran: tuple[tuple[str, int, str], ...] = ()  # event, seq of its cause, key of the hook
    context: tuple[str, ...] = ()  # for the next request
    refused: str = ""  # why a message of this turn was not delivered
    sent_back: tuple[str, ...] = ()  # reasons why the turn may not end yet
    active: bool = False  # only a hook keeps this turn from ending


def apply(runs: HookRuns, entry: Entry) -> HookRuns:
    """Return the hooks that have run after this entry."""
    match entry.event:
        case HookRan():
            return _with_run(runs, entry.event)
        case ModelAsked(policies=policies):
            return _after_request(runs, with_context=CONTEXT_POLICY in policies)
        case AnswerRejected() if runs.sent_back:
            return replace(runs, sent_back=())
        case TurnStarted() if runs.active or runs.refused or runs.sent_back:
            return replace(runs, refused="", sent_back=(), active=False)
        case SessionStarted() | SessionResumed() | Compacted():
            return _with_start(runs, entry.event, entry.seq)
        case Imported():  # the file may be forged, so texts for the model are dropped
            return HookRuns()
        case _:
            return runs


def _with_start(
    runs: HookRuns, event: SessionStarted | SessionResumed | Compacted, seq: int
) -> HookRuns:
    """Return the state in which SessionStart hooks are due.

    A compaction that only pruned results changes nothing.
    """
    match event:
        case SessionStarted():
            return replace(runs, began=("startup", seq))
        case SessionResumed():
            return replace(runs, began=("resume", seq))
        case Compacted("prune"):
            return runs
        case Compacted():
            return replace(runs, began=("compact", seq))


def _after_request(runs: HookRuns, *, with_context: bool) -> HookRuns:
    """Return the state after a request: hooks may run again, and no start is due.

    If `with_context` is True, the request had the context, so that is removed, too.
    """
    _, start_seq = runs.began
    has_sent_context = with_context and bool(runs.context)
    if not (runs.ran or start_seq or runs.sent_back or has_sent_context):
        return runs
    context = () if with_context else runs.context
    return replace(runs, began=("", 0), ran=(), context=context, sent_back=())


def _with_run(runs: HookRuns, event: HookRan) -> HookRuns:
    """Return the state after a hook has run, with its reason if it blocked something."""
    if not event.call_id:  # a hook about a call is recorded with that call
        runs = replace(runs, ran=(*runs.ran, (event.on, event.about, event.key)))
    if event.context:
        runs = replace(runs, context=(*runs.context, event.context))
    if event.outcome != "blocked":
        return runs
    reason = event.reason or "it gave no reason"
    if event.on == "UserPromptSubmit":
        return replace(runs, refused=reason)
    if event.on in ("Stop", "SubagentStop"):
        return replace(runs, sent_back=(*runs.sent_back, reason), active=True)
    return runs
