"""/fork: continue in a copy of this session."""

from refold.client.launch import ResumeTarget
from refold.errors import BadInput
from refold.terminal.terminal import Terminal


async def run(here: Terminal, rest: str) -> None:
    """A copy of all of it, or up to an event."""
    if rest and not (rest.isdecimal() and int(rest)):
        raise BadInput(f"type /fork, or /fork EVENT with its number, not {rest!r}")
    left = here.session.id
    made = await here.session.fork(int(rest) if rest else None)
    notices = await here.switch(ResumeTarget(made))
    at = here.session.view.session.forked[1]
    here.printer.say(f"A copy of {left} up to event {at}.", "dim")
    for notice in notices:
        here.printer.say(notice, "warn")
