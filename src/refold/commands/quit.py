"""/quit: leave refold. The session stays saved."""

from refold.commands.command_context import CommandContext, terminal_of


async def run(context: CommandContext, arguments: str) -> None:
    terminal_of(context, "/quit").quit()
