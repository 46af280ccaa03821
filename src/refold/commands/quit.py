"""/quit: leave; the session stays saved."""

from refold.commands.command_context import CommandContext, terminal_of


async def run(here: CommandContext, rest: str) -> None:
    terminal_of(here, "/quit").quit()
