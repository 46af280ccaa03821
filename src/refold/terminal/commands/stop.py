"""/stop: stop one subagent or all of them."""

from refold.errors import BadInput
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line


async def run(here: Terminal, rest: str) -> None:
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
