"""The basic agent: runs calls, delivers messages, calls the model, ends the turn.

A turn ends with a response without calls. `is_last_word` defines that for other policies.
"""

from refold.engine.decide import Action, AskModel, Deliver, EndTurn, RunCalls
from refold.journal.state.conversation import SHELL_SENDER
from refold.journal.state.fold import View


def converse(view: View) -> Action | None:
    """Return the next action; None if all open calls wait for the user."""
    conversation, turn = view.conversation, view.turn
    if conversation.calls:
        ready = any(c.result is None and c.stage != "asked" for c in conversation.calls)
        return RunCalls() if ready else None
    if turn.failed is not None:
        return EndTurn("failed", turn.failed)
    if messages := due_messages(view):
        return Deliver(messages)
    return _end(view) or AskModel()


def due_messages(view: View) -> tuple[int, ...]:
    """Return the event numbers of the messages that are delivered in this step.

    Commands that the user ran before a message are delivered with it.
    """
    waiting, is_first_step = view.conversation.undelivered, not view.turn.steps
    due = {w.seq for w in waiting if w.said.when == "now" or is_first_step}
    if due and not is_first_step:
        due |= {
            w.seq for w in waiting if w.said.sender == SHELL_SENDER and w.seq < max(due)
        }
    return tuple(w.seq for w in waiting if w.seq in due)


def _end(view: View) -> EndTurn | None:
    """Return the end of the turn if the newest response is the answer or a refusal."""
    last = view.turn.last_answer
    if last is not None and last.stop == "refused":
        why = f": {last.refusal}" if last.refusal else ""
        return EndTurn("failed", f"the model refused to answer{why}")
    return EndTurn("answered") if is_last_word(view) else None


def final(view: View) -> EndTurn | None:
    """Return the end of the turn if a tool has given its final answer; otherwise None."""
    return EndTurn("final") if view.turn.final is not None else None


def is_last_word(view: View) -> bool:
    """Whether the newest message is a complete response of the model without calls."""
    last, messages = view.turn.last_answer, view.conversation.messages
    is_complete = last is not None and last.stop != "length"
    return is_complete and bool(messages) and messages[-1].message.role == "assistant"
