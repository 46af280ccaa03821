"""A turn does not end while children are at work whose answers it is to hear."""

from refold.engine.decide import Wait
from refold.engine.policies.last_word import is_last_word
from refold.journal.fold import View


def hearing_children(view: View) -> Wait | None:
    """Stands in the way of an end that the model wants, and of no other."""
    turn = view.turn
    wanted = turn.final is None and turn.stopped is None and turn.failed is None
    open_ones = any(child.born.beside for child in view.family.running)
    if not (wanted and open_ones) or view.talk.calls or view.talk.unheard:
        return None
    return Wait() if is_last_word(view) else None
