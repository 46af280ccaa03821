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

    At the first step of a turn, these are all waiting messages. Later, these are the messages
    for delivery "now", and the commands that the user ran before the last such message.
    """
    undelivered = view.conversation.undelivered
    if not view.turn.steps:
        return tuple(message.seq for message in undelivered)
    last_urgent = max(
        (message.seq for message in undelivered if message.said.when == "now"), default=0
    )
    return tuple(
        message.seq
        for message in undelivered
        if message.said.when == "now"
        or (message.said.sender == SHELL_SENDER and message.seq < last_urgent)
    )


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
