"""/fork: continue in a copy of this session."""

from refold.client.launch import ResumeTarget
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line


async def run(context: CommandContext, arguments: str) -> None:
    """Copy the session, or its part up to the given event, and continue in the copy."""
    if arguments and not (arguments.isdecimal() and int(arguments)):
        raise BadInput(f"type /fork, or /fork EVENT with its number, not {arguments!r}")
    old_id = context.session.id
    copy_id = await context.session.fork(int(arguments) if arguments else None)
    notices = await context.switch(ResumeTarget(copy_id))
    _source, seq = context.session.view.session.forked
    context.show(
        line(f"Forked at event {seq}. You are in the copy; {old_id} is unchanged.", "dim")
    )
    for notice in notices:
        context.show(line(notice, "warn"))
