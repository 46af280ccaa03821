"""/worktree: continue in a git worktree of its own."""

from refold.client.launch import Target
from refold.terminal.commands.cd import switch_to
from refold.terminal.terminal import Terminal


async def run(here: Terminal, rest: str) -> None:
    await switch_to(here, Target(worktree=rest))
