"""Print what the session would do next, after each event."""

import sys
from pathlib import Path

from refold.engine.decide import EndTurn, Note, decide
from refold.engine.policies.conversation import converse
from refold.journal.events.codec import decode
from refold.journal.state.fold import View, apply


def finish_soon(view):
    """End a turn after three answers, and warn the model after two."""
    if view.turn.steps >= 3:
        return EndTurn("step_limit", "three answers are enough")
    if view.turn.steps == 2:
        return Note("One more answer.")
    return None


POLICIES = [converse, finish_soon]

view = View()
for entry, _ in decode(Path(sys.argv[1]).read_bytes().splitlines()):
    view = apply(view, entry)
    choice = decide(view, POLICIES)
    action = f"{choice.action} because of {choice.by}" if choice else "wait"
    print(f"{entry.seq} {type(entry.event).__name__}: {action}")
