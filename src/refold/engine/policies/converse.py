"""The plain agent: answer calls, hear words, ask; end when nothing is called."""

from refold.engine.decide import Action, AskModel, EndTurn, RunCalls, TakeUp
from refold.engine.policies.last_word import is_last_word
from refold.journal.fold import View


def converse(view: View) -> Action | None:
    talk, turn = view.talk, view.turn
    if talk.calls:
        ready = any(c.result is None and c.stage != "asked" for c in talk.calls)
        return RunCalls() if ready else None  # the rest is a person's to answer
    if turn.failed is not None:
        return EndTurn("failed", turn.failed)
    words = tuple(w.seq for w in talk.unheard if w.said.when == "now" or not turn.steps)
    if words:
        return TakeUp(words)
    return _end(view) or AskModel()


def _end(view: View) -> EndTurn | None:
    """An answer that calls nothing ends the turn, unless words came since."""
    last = view.turn.last
    if last is not None and last.stop == "refused":
        why = f": {last.why}" if last.why else ""
        return EndTurn("failed", f"the model refused to answer{why}")
    return EndTurn("answered") if is_last_word(view) else None
