"""/execute: approve the plan that waits, or leave plan mode."""

from refold.engine.authorize import mode_of
from refold.errors import BadInput
from refold.journal.state.rights import after_planning
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line


async def run(here: Terminal, rest: str) -> None:
    if rest:
        raise BadInput("/execute takes no argument: it approves the plan that waits")
    session = here.session
    if (waiting := session.view.plans.waiting) is not None:
        if await session.inbox.approve_plan(waiting.seq):
            here.printer.say(f"approved: {on_one_line(waiting.title)}", "good")
            await here.settle()
        return
    if mode_of(here.around, session.view) != "plan":
        raise BadInput("There is no plan to approve. /plan starts one.")
    mode = after_planning(session.view.rights, here.around.mode)
    await session.inbox.set_mode(mode)
    here.printer.say(f"Plan mode is off. The mode is {mode}.", "dim")
