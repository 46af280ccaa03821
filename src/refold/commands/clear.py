"""/clear: start a new session."""

from refold.commands.command_context import CommandContext
from refold.views.styled import line


async def run(here: CommandContext, rest: str) -> None:
    await here.switch(None)
    here.show(line("A new session. The previous one is kept.", "dim"))
