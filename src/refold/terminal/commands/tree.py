"""/tree: the running subagents, with progress and cost."""

from refold.errors import BadInput
from refold.session.hub import Hub
from refold.terminal.terminal import Terminal
from refold.values.live import ChildMoved
from refold.views.children_list import child_lines


async def run(here: Terminal, rest: str) -> None:
    if rest:
        raise BadInput(f"type /tree, not /tree {rest}: refold tree shows any session")
    moved = await children_moved(here.session.hub)
    here.printer.lines(child_lines(here.session.view.children, moved, here.printer.room))


async def children_moved(hub: Hub) -> dict[str, ChildMoved]:
    """The newest progress of each subagent, as the hub gives it to a new watcher."""
    watch = hub.watch()
    watch.close()
    found = [frame.item async for frame in watch.frames()]
    return {item.node: item for item in found if isinstance(item, ChildMoved)}
