"""/plan: switch to plan mode, or show the plan that waits for approval.
/plans: list the plans of this session, or show one.
/execute: approve the plan that waits, or leave plan mode.
"""

from refold.commands.command_context import CommandContext, Markdown
from refold.commands.mode import MODE_MEANINGS
from refold.errors import BadInput
from refold.views.escape import on_one_line
from refold.views.styled import line
from refold.views.todo_list import plan_lines

_WAITS_HINT = "The plan waits: /execute approves it, a message continues planning."


async def run(here: CommandContext, rest: str) -> None:
    """Switch to plan mode and send `rest`; without `rest`, show the pending plan."""
    view = here.session.view
    if rest == "list":
        here.show(*plan_lines(view.plans.made, here.look.room))
        return
    on = here.session.mode == "plan"
    if not on:
        await here.session.set_mode("plan")
        here.show(line(f"plan: {MODE_MEANINGS['plan']}", "dim"))
    if rest:
        await here.say(rest)
    elif view.plans.waiting is not None:
        if here.terminal is not None:
            here.terminal.show_plan()
        else:
            here.show(Markdown(view.plans.waiting.text), line(_WAITS_HINT, "dim"))
    elif on:
        here.show(line("Plan mode is on. Leave it with /execute or Shift+Tab.", "dim"))


async def run_plans(here: CommandContext, rest: str) -> None:
    """Show the list of plans; with a number, that plan in full."""
    plans = here.session.view.plans.made
    if not rest:
        rows = plan_lines(plans, here.look.room - 3)
        for number, row in enumerate(rows, start=1):
            here.show((("accent", f"{number:>2} "), *row) if plans else row)
        return
    number = int(rest) if rest.isascii() and rest.isdecimal() else 0
    if not 1 <= number <= len(plans):
        hint = f"type 1 to {len(plans)}" if plans else "there is none yet"
        raise BadInput(f"there is no plan {rest!r} in this session: {hint}")
    plan = plans[number - 1]
    here.show(line(on_one_line(plan.title), "strong"), Markdown(plan.text))


async def run_execute(here: CommandContext, rest: str) -> None:
    if rest:
        raise BadInput("/execute takes no argument: it approves the plan that waits")
    session = here.session
    if (waiting := session.view.plans.waiting) is not None:
        if await session.judge_plan(waiting.seq, approved=True):
            here.show(line(f"approved: {on_one_line(waiting.title)}", "good"))
            await here.carry_out()
        return
    if session.mode != "plan":
        raise BadInput("There is no plan to approve. /plan starts one.")
    mode = session.permissions.mode_after_planning
    await session.set_mode(mode)
    here.show(line(f"Plan mode is off. The mode is {mode}.", "dim"))
