"""A tool has said that the task is done, and how: the turn ends with that."""

from refold.engine.decide import EndTurn
from refold.journal.fold import View


def final(view: View) -> EndTurn | None:
    return EndTurn("final") if view.turn.final is not None else None
