"""/plan: switch to plan mode, or show the plan that waits for approval.
/plans: list the plans of this session, or show one.
/execute: approve the plan that waits, or leave plan mode.
"""

from refold.commands.command_context import CommandContext, Markdown
from refold.commands.mode import MODE_MEANINGS
from refold.errors import BadInput
from refold.views.escape import escape_to_one_line
from refold.views.styled import line
from refold.views.todo_list import plan_lines

_WAITS_HINT = "The plan waits: /execute approves it, a message continues planning."
_NUMBER_CELLS = 3  # for the number of a plan, and a space


async def run(context: CommandContext, arguments: str) -> None:
    """Switch to plan mode, and send `arguments` as a message.

    If `arguments` is "", show the pending plan, if there is one. For "list", list the plans.
    """
    view = context.session.view
    if arguments == "list":
        context.show(*plan_lines(view.plans.made, context.look.width))
        return
    was_planning = context.session.mode == "plan"
    if not was_planning:
        await context.session.set_mode("plan")
        context.show(line(f"plan: {MODE_MEANINGS['plan']}", "dim"))
    if arguments:
        await context.say(arguments)
    elif view.plans.waiting is not None:
        if context.terminal is not None:
            context.terminal.show_plan()
        else:
            context.show(Markdown(view.plans.waiting.text), line(_WAITS_HINT, "dim"))
    elif was_planning:
        context.show(line("Plan mode is on. Leave it with /execute or Shift+Tab.", "dim"))


async def run_plans(context: CommandContext, arguments: str) -> None:
    """List the plans of the session, or show the plan with the given number in full."""
    plans = context.session.view.plans.made
    if not arguments:
        rows = plan_lines(plans, context.look.width - _NUMBER_CELLS)
        if not plans:
            context.show(*rows)  # says that there are none
            return
        for number, row in enumerate(rows, start=1):
            context.show((("accent", f"{number:>{_NUMBER_CELLS - 1}} "), *row))
        return
    number = int(arguments) if arguments.isascii() and arguments.isdecimal() else 0
    if not 1 <= number <= len(plans):
        hint = f"type 1 to {len(plans)}" if plans else "there is none yet"
        raise BadInput(f"there is no plan {arguments!r} in this session: {hint}")
    plan = plans[number - 1]
    context.show(line(escape_to_one_line(plan.title), "strong"), Markdown(plan.text))


async def run_execute(context: CommandContext, arguments: str) -> None:
    """Approve the plan that waits and carry it out; without a plan, leave plan mode."""
    if arguments:
        raise BadInput("/execute takes no argument: it approves the plan that waits")
    session = context.session
    if (waiting := session.view.plans.waiting) is not None:
        if await session.judge_plan(waiting.seq, approved=True):
            context.show(line(f"approved: {escape_to_one_line(waiting.title)}", "good"))
            await context.carry_out()
        return
    if session.mode != "plan":
        raise BadInput("There is no plan to approve. /plan starts one.")
    mode = session.permissions.mode_after_planning
    await session.set_mode(mode)
    context.show(line(f"Plan mode is off. The mode is {mode}.", "dim"))
