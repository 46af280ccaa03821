"""Runs the user's hooks at the points of a turn, and tells the model what they add.

These are the first request of a session, each message before it is delivered, and the end of
the turn, which a hook may put off. Hooks of single calls are run by the seam
(`engine.run_hooks`), which also performs what is proposed here. A turn that is stopped runs
none. The limits of a turn hold for one that hooks prolong, too.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from refold.engine.decide import EndTurn, Note, Policy, Reject, RunHook
from refold.engine.policies.conversation import due_messages, is_last_word
from refold.journal.state.conversation import REQUEST_SENDERS
from refold.journal.state.fold import View
from refold.values.modes import HookEvent
from refold.values.text import escape_marks

if TYPE_CHECKING:
    from refold.hooks.configuration import Hook

HOOK_CONTEXT = "<reminder>A hook of the person adds this:\n{text}</reminder>"
NOT_YET = (
    "<reminder>A hook of the person does not let you finish yet: {reason}\n"
    "Do what it asks, then finish.</reminder>"
)
MESSAGE_REFUSED = "a hook did not let the message through: {reason}"


def hook_policies(
    matching: "Callable[..., Sequence[Hook]]", *, child: bool
) -> tuple[Policy, ...]:
    """`matching` is `world.Hooks.hooks_for`. The end of a child is `SubagentStop`."""
    end: HookEvent = "SubagentStop" if child else "Stop"

    def is_due(view: View, action: RunHook) -> bool:
        ran, on, about = view.hook_runs.ran, action.on, action.about
        hooks = matching(on, *action.names)
        return any((on, about, hook.key) not in ran for hook in hooks)

    def hooks_due(view: View) -> RunHook | Reject | EndTurn | None:
        if view.turn.stopped or view.turn.failed is not None or view.conversation.calls:
            return None
        hooks_to_run = (action for action in _due_hooks(view, end) if is_due(view, action))
        return next(hooks_to_run, None) or _end_or_rejection(view)

    return hooks_due, hook_context


def hook_context(view: View) -> Note | None:
    """Add the text of hooks to the next request."""
    texts = view.hook_runs.context
    return Note(HOOK_CONTEXT.format(text=escape_marks("\n".join(texts)))) if texts else None


def _due_hooks(view: View, end: HookEvent) -> Sequence[RunHook]:
    source, began = view.hook_runs.began
    if view.turn.open_request is not None:
        return ()
    starts = [RunHook("SessionStart", began, (source,))] if began else []
    waiting, due_now = view.conversation.undelivered, due_messages(view)
    asked = [
        w.seq for w in waiting if w.seq in due_now and w.said.sender in REQUEST_SENDERS
    ]
    submits = [RunHook("UserPromptSubmit", seq) for seq in asked]
    return (
        *starts,
        *submits,
        *([RunHook(end, _last_seq(view))] if _has_finished(view) else ()),
    )


def _end_or_rejection(view: View) -> Reject | EndTurn | None:
    runs = view.hook_runs
    if runs.sent_back:
        return Reject(
            tuple(NOT_YET.format(reason=escape_marks(reason)) for reason in runs.sent_back)
        )
    nothing_new = not due_messages(view) and _last_seq(view) < view.turn.seq
    if runs.refused and nothing_new:
        return EndTurn("failed", MESSAGE_REFUSED.format(reason=runs.refused))
    return None


def _has_finished(view: View) -> bool:
    """Whether the model has finished. A hook cannot postpone a refusal."""
    if due_messages(view) or view.turn.planned:
        return False
    last = view.turn.last_answer
    answered = last is not None and last.stop != "refused" and is_last_word(view)
    return view.turn.final is not None or answered


def _last_seq(view: View) -> int:
    messages = view.conversation.messages
    return messages[-1].seq if messages else 0
