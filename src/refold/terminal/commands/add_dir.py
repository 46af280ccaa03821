"""/add-dir: show the directories of the workspace, or add one."""

import anyio

from refold.client.launch import Target
from refold.terminal.commands.cd import directory_named, show_directories, switch_to
from refold.terminal.greeting import shown
from refold.terminal.terminal import Terminal
from refold.values.path_names import below


async def run(here: Terminal, rest: str) -> None:
    about = here.session.view.session
    if not rest:
        show_directories(here)
        return
    directory = await anyio.to_thread.run_sync(
        directory_named, "/add-dir", rest, about.directory
    )
    if any(below(directory, root) for root in (about.directory, *about.roots)):
        here.printer.say(f"{shown(directory)} belongs to the workspace already.", "dim")
        return
    await switch_to(here, Target(added=(directory,)))
