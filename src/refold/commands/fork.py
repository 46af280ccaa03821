"""/fork: continue in a copy of this session."""

from refold.client.launch import ResumeTarget
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line


async def run(context: CommandContext, arguments: str) -> None:
    """Copy all of the session, or up to an event."""
    if arguments and not (arguments.isdecimal() and int(arguments)):
        raise BadInput(f"type /fork, or /fork EVENT with its number, not {arguments!r}")
    left = context.session.id
    copy_id = await context.session.fork(int(arguments) if arguments else None)
    notices = await context.switch(ResumeTarget(copy_id))
    seq = context.session.view.session.forked[1]
    context.show(
        line(f"Forked at event {seq}. You are in the copy; {left} is unchanged.", "dim")
    )
    for notice in notices:
        context.show(line(notice, "warn"))
