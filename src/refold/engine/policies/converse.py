"""The plain agent: answer calls, hear words, ask; end when nothing is called."""

from refold.engine.decide import Action, AskModel, EndTurn, RunCalls, TakeUp
from refold.engine.policies.last_word import is_last_word
from refold.journal.fold import View
from refold.journal.talk import SHELL


def converse(view: View) -> Action | None:
    talk, turn = view.talk, view.turn
    if talk.calls:
        ready = any(c.result is None and c.stage != "asked" for c in talk.calls)
        return RunCalls() if ready else None  # the rest is a person's to answer
    if turn.failed is not None:
        return EndTurn("failed", turn.failed)
    if words := _due(view):
        return TakeUp(words)
    return _end(view) or AskModel()


def _due(view: View) -> tuple[int, ...]:
    """Words for this step. With them comes what the person ran before they said them."""
    waiting, first = view.talk.unheard, not view.turn.steps
    due = {w.seq for w in waiting if w.said.when == "now" or first}
    if due and not first:
        due |= {w.seq for w in waiting if w.said.sender == SHELL and w.seq < max(due)}
    return tuple(w.seq for w in waiting if w.seq in due)


def _end(view: View) -> EndTurn | None:
    """An answer that calls nothing ends the turn, unless words came since."""
    last = view.turn.last
    if last is not None and last.stop == "refused":
        why = f": {last.why}" if last.why else ""
        return EndTurn("failed", f"the model refused to answer{why}")
    return EndTurn("answered") if is_last_word(view) else None
