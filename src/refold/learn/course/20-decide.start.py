"""Print what the session would do next, after each event."""

import sys
from pathlib import Path

from refold.engine.decide import decide
from refold.engine.policies.conversation import converse
from refold.journal.events.codec import decode
from refold.journal.state.fold import View, apply

POLICIES = [converse]

view = View()
for entry, _ in decode(Path(sys.argv[1]).read_bytes().splitlines()):
    view = apply(view, entry)
    choice = decide(view, POLICIES)
    action = f"{choice.action} because of {choice.by}" if choice else "wait"
    print(f"{entry.seq} {type(entry.event).__name__}: {action}")
