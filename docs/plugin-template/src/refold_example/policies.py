"""A policy: a pure function of what the session knows. It may add a note for the model."""

from refold.engine.decide import Note
from refold.journal.state.fold import View


def in_metric_units(view: View) -> Note | None:
    """At the first request of a turn."""
    return None if view.turn.steps else Note("<reminder>Use metric units.</reminder>")
