"""/background: the subagents that run in the background."""

from msgspec.structs import replace

from refold.errors import BadInput
from refold.terminal.terminal import Terminal
from refold.views.children_list import child_lines


async def run(here: Terminal, rest: str) -> None:
    if rest:
        raise BadInput(f"type /background, not /background {rest}: /stop NAME stops one")
    family = here.session.view.children
    beside = tuple(each for each in family.running if each.born.background)
    if not beside:
        here.printer.say("No subagent runs in the background.")
        return
    moved = await here.session.reports.children_moved()
    only = replace(family, children=beside)
    here.printer.lines(child_lines(only, moved, here.printer.room))
