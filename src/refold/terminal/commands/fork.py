"""/fork: continue in a copy of this session."""

from refold.errors import BadInput
from refold.terminal.terminal import Terminal


async def run(here: Terminal, rest: str) -> None:
    """A copy of all of it, or up to an event."""
    if rest and not (rest.isdecimal() and int(rest)):
        raise BadInput(f"type /fork, or /fork EVENT with its number, not {rest!r}")
    left = here.session.view
    made = await here.around.fork(left, int(rest) if rest else None)
    at = made.view.session.forked[1]
    await here.change(made, f"A copy of {left.session.id} up to event {at}.")
