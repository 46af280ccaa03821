"""/tree: the running subagents, with progress and cost."""

from refold.errors import BadInput
from refold.terminal.terminal import Terminal
from refold.views.children_list import child_lines


async def run(here: Terminal, rest: str) -> None:
    if rest:
        raise BadInput(f"type /tree, not /tree {rest}: refold tree shows any session")
    moved = await here.session.reports.children_moved()
    here.printer.lines(child_lines(here.session.view.children, moved, here.printer.room))
