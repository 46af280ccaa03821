"""/plan: switch to plan mode, or show the plan that waits for approval.
/plans: list the plans of this session, or show one.
/execute: approve the plan that waits, or leave plan mode.
"""

from refold.commands.mode import MEANINGS
from refold.console.markdown import print_words
from refold.errors import BadInput
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line
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


async def run_plans(here: Terminal, rest: str) -> None:
    """Without a number, the list; with one, that plan in full."""
    made = here.session.view.plans.made
    if not rest:
        rows = plan_lines(made, here.printer.room - 3)
        for number, row in enumerate(rows, start=1):
            here.printer.line((("accent", f"{number:>2} "), *row) if made else row)
        return
    number = int(rest) if rest.isascii() and rest.isdecimal() else 0
    if not 1 <= number <= len(made):
        there = f"type 1 to {len(made)}" if made else "there is none yet"
        raise BadInput(f"there is no plan {rest!r} in this session: {there}")
    plan = made[number - 1]
    here.printer.say(on_one_line(plan.title), "strong")
    here.printer.gap()
    print_words(plan.text, here.printer)


async def run_execute(here: Terminal, rest: str) -> None:
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
