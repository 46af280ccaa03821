"""/clear: start a new session."""

from refold.commands.command_context import CommandContext
from refold.views.styled import line


async def run(context: CommandContext, arguments: str) -> None:
    await context.switch(None)
    context.show(line("A new session. The previous one is kept.", "dim"))
