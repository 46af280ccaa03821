"""Runs the user's hooks at the points of a turn, and adds their text to the next request.

The points are the first request of a session, each message before it is delivered, and the end
of the turn, which a hook may postpone. The seam runs the hooks of single calls
(`engine.run_hooks`), and also performs the actions that these policies propose. A turn that is
stopped runs no hooks. The limits of a turn also apply if hooks prolong it.
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
    """Return the policies that run due hooks and that add their text to requests.

    `matching` is `world.Hooks.hooks_for`. At the end of a turn the hooks of `Stop` run, or for
    a `child` those of `SubagentStop`.
    """
    end: HookEvent = "SubagentStop" if child else "Stop"

    def is_due(view: View, action: RunHook) -> bool:
        """Whether a hook for this action has not run yet."""
        ran, on, about = view.hook_runs.ran, action.on, action.about
        hooks = matching(on, *action.names)
        return any((on, about, hook.key) not in ran for hook in hooks)

    def hooks_due(view: View) -> RunHook | Reject | EndTurn | None:
        """Return the next due hook; None if nothing is required.

        If no hook is due, return the action that the hooks which have run require.
        """
        if view.turn.stopped or view.turn.failed is not None or view.conversation.calls:
            return None
        hooks_to_run = (action for action in _due_hooks(view, end) if is_due(view, action))
        return next(hooks_to_run, None) or _end_or_rejection(view)

    return hooks_due, hook_context


def hook_context(view: View) -> Note | None:
    """Return a note with the text of hooks for the next request; None if there is no text."""
    texts = view.hook_runs.context
    return Note(HOOK_CONTEXT.format(text=escape_marks("\n".join(texts)))) if texts else None


def _due_hooks(view: View, end: HookEvent) -> Sequence[RunHook]:
    """Return the hook events of this step, including those whose hooks have run already."""
    if view.turn.open_request is not None:
        return ()
    hooks = list[RunHook]()
    source, start_seq = view.hook_runs.began
    if start_seq:  # 0: the session has no new start
        hooks.append(RunHook("SessionStart", about=start_seq, names=(source,)))
    due_now = due_messages(view)
    for message in view.conversation.undelivered:
        if message.seq in due_now and message.said.sender in REQUEST_SENDERS:
            hooks.append(RunHook("UserPromptSubmit", about=message.seq))
    if _has_finished(view):
        hooks.append(RunHook(end, about=_last_seq(view)))
    return hooks


def _end_or_rejection(view: View) -> Reject | EndTurn | None:
    """Return the action that hooks which have run require; None if they require none."""
    runs = view.hook_runs
    if runs.sent_back:
        return Reject(
            tuple(NOT_YET.format(reason=escape_marks(reason)) for reason in runs.sent_back)
        )
    # If other messages began the turn, too, it continues with those.
    has_no_message = not due_messages(view) and _last_seq(view) < view.turn.seq
    if runs.refused and has_no_message:
        return EndTurn("failed", MESSAGE_REFUSED.format(reason=runs.refused))
    return None


def _has_finished(view: View) -> bool:
    """Whether hooks of the turn's end are due: the model has finished without a refusal."""
    if due_messages(view) or view.turn.planned:
        return False
    last = view.turn.last_answer
    answered = last is not None and last.stop != "refused" and is_last_word(view)
    return view.turn.final is not None or answered


def _last_seq(view: View) -> int:
    """Return the event number of the newest message; 0 if there is none."""
    messages = view.conversation.messages
    return messages[-1].seq if messages else 0
