"""/stop: stop one subagent or all of them."""

from refold.errors import BadInput
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line


async def run(here: Terminal, rest: str) -> None:
    """Without a name, all of them; the turn goes on either way."""
    name = rest.strip()
    running = [each.name for each in here.session.view.children.running]
    if not running:
        raise BadInput("no subagent is running")
    if name and name not in running:
        shown = ", ".join(running)
        raise BadInput(f"no subagent {on_one_line(name)!r} is running; there is {shown}")
    if not await here.session.inbox.stop_child(name):
        here.printer.say("It is being stopped already.", "dim")
        return
    who = name or ", ".join(running)
    here.printer.say(f"Stopping {who}, and the subagents below.", "dim")
