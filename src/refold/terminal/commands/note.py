"""/note: save a note, as does a line that begins with #."""

import anyio

from refold.terminal.commands.memory import memory_of
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line


async def run(here: Terminal, rest: str) -> None:
    said = await anyio.to_thread.run_sync(memory_of(here).add, rest)
    here.printer.say(on_one_line(said), "dim")
