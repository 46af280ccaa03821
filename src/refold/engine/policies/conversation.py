"""The basic agent: runs calls, delivers messages, calls the model, ends the turn.

A turn ends with a response without calls; `is_last_word` defines this for other policies.
"""

from refold.engine.decide import Action, AskModel, Deliver, EndTurn, RunCalls
from refold.journal.state.conversation import SHELL_SENDER
from refold.journal.state.fold import View


def converse(view: View) -> Action | None:
    conversation, turn = view.conversation, view.turn
    if conversation.calls:
        ready = any(c.result is None and c.stage != "asked" for c in conversation.calls)
        return RunCalls() if ready else None  # the rest is a person's to answer
    if turn.failed is not None:
        return EndTurn("failed", turn.failed)
    if words := due_messages(view):
        return Deliver(words)
    return _end(view) or AskModel()


def due_messages(view: View) -> tuple[int, ...]:
    """The messages for this step, with the commands that the user ran before sending them."""
    waiting, first = view.conversation.undelivered, not view.turn.steps
    due = {w.seq for w in waiting if w.said.when == "now" or first}
    if due and not first:
        due |= {
            w.seq for w in waiting if w.said.sender == SHELL_SENDER and w.seq < max(due)
        }
    return tuple(w.seq for w in waiting if w.seq in due)


def _end(view: View) -> EndTurn | None:
    """An answer without calls ends the turn, unless a message came after it."""
    last = view.turn.last_answer
    if last is not None and last.stop == "refused":
        why = f": {last.refusal}" if last.refusal else ""
        return EndTurn("failed", f"the model refused to answer{why}")
    return EndTurn("answered") if is_last_word(view) else None


def final(view: View) -> EndTurn | None:
    """End the turn with the answer by which a tool has ended the task."""
    return EndTurn("final") if view.turn.final is not None else None


def is_last_word(view: View) -> bool:
    """Whether the model gave a complete response without calls, and got no message since."""
    last, messages = view.turn.last_answer, view.conversation.messages
    whole = last is not None and last.stop != "length"
    return whole and bool(messages) and messages[-1].message.role == "assistant"
