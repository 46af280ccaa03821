"""/execute: approve the plan that waits, or leave plan mode."""

from refold.errors import BadInput
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line


async def run(here: Terminal, rest: str) -> None:
    if rest:
        raise BadInput("/execute takes no argument: it approves the plan that waits")
    session = here.session
    if (waiting := session.view.plans.waiting) is not None:
        if await session.judge_plan(waiting.seq, approved=True):
            here.printer.say(f"approved: {on_one_line(waiting.title)}", "good")
            await here.settle()
        return
    if session.mode != "plan":
        raise BadInput("There is no plan to approve. /plan starts one.")
    mode = session.permissions.mode_after_planning
    await session.set_mode(mode)
    here.printer.say(f"Plan mode is off. The mode is {mode}.", "dim")
