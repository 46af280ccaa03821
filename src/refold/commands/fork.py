"""/fork: continue in a copy of this session."""

from refold.client.launch import ResumeTarget
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line


async def run(here: CommandContext, rest: str) -> None:
    """Copy all of the session, or up to an event."""
    if rest and not (rest.isdecimal() and int(rest)):
        raise BadInput(f"type /fork, or /fork EVENT with its number, not {rest!r}")
    left = here.session.id
    copy_id = await here.session.fork(int(rest) if rest else None)
    notices = await here.switch(ResumeTarget(copy_id))
    seq = here.session.view.session.forked[1]
    here.show(
        line(f"Forked at event {seq}. You are in the copy; {left} is unchanged.", "dim")
    )
    for notice in notices:
        here.show(line(notice, "warn"))
