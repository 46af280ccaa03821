"""/plan: switch to plan mode, or show the plan that waits."""

from refold.terminal.commands.mode import MEANINGS
from refold.terminal.terminal import Terminal
from refold.views.todo_list import plan_lines


async def run(here: Terminal, rest: str) -> None:
    """`rest` is sent as a message. Without one, a plan that waits is shown."""
    view = here.session.view
    if rest == "list":
        here.printer.lines(plan_lines(view.plans.made, here.printer.room))
        return
    on = here.session.mode == "plan"
    if not on:
        await here.session.set_mode("plan")
        here.printer.say(f"plan: {MEANINGS['plan']}", "dim")
    if rest:
        await here.say(rest)
    elif view.plans.waiting is not None:
        here.show_plan()
    elif on:
        here.printer.say("Plan mode is on. Leave it with /execute or Shift+Tab.", "dim")
