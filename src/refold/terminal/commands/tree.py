"""/tree: the running subagents, with progress and cost.
/background: the subagents that run in the background.
/stop: stop one subagent or all of them.
"""

from msgspec.structs import replace

from refold.errors import BadInput
from refold.terminal.terminal import Terminal
from refold.views.children_list import child_lines
from refold.views.escape import on_one_line


async def run(here: Terminal, rest: str) -> None:
    if rest:
        raise BadInput(f"type /tree, not /tree {rest}: refold tree shows any session")
    moved = await here.session.reports.children_moved()
    here.printer.lines(child_lines(here.session.view.children, moved, here.printer.room))


async def run_background(here: Terminal, rest: str) -> None:
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


async def run_stop(here: Terminal, rest: str) -> None:
    """Without a name, all of them; the turn goes on either way."""
    name = rest.strip()
    children = here.session.view.children.running
    running = [each.name for each in children]
    if not running:
        raise BadInput("no subagent is running")
    if name and name not in running:
        shown = ", ".join(running)
        raise BadInput(f"no subagent {on_one_line(name)!r} is running; there is {shown}")
    if all(each.stopped for each in children if name in ("", each.name)):
        here.printer.say("It is being stopped already.", "dim")
        return
    await here.session.stop(name)
    who = name or ", ".join(running)
    here.printer.say(f"Stopping {who}, and the subagents below.", "dim")
