"""/plan, /plans and /execute: begin to plan, see the plans, and carry one out."""

from refold.cli.terminal.conversing import Conversation
from refold.cli.terminal.display.printing import print_words
from refold.engine.judging import mode_of
from refold.errors import BadInput
from refold.journal.rights import after_planning
from refold.views.escape import on_one_line
from refold.views.plans import listed


async def plan(here: Conversation, rest: str) -> None:
    """Begin to plan; with words, they are said at once. A plan that waits is shown."""
    view = here.session.view
    if rest == "list":
        here.paper.lines(listed(view.plans.made, here.paper.room))
        return
    on = mode_of(here.around, view) == "plan"
    if not on:
        await here.session.inbox.set_mode("plan")
        here.paper.say("plan: it only looks, and makes a plan for you to approve", "dim")
    if rest:
        await here.say(rest)
    elif view.plans.waiting is not None:
        here.judge()
    elif on:
        here.paper.say("Plan mode is on. /execute or Shift+Tab leaves it.", "dim")


async def plans(here: Conversation, rest: str) -> None:
    """The plans of this session; or one of them, whole, by its number in that list."""
    made = here.session.view.plans.made
    if not rest:
        rows = listed(made, here.paper.room - 3)
        for number, row in enumerate(rows, start=1):
            here.paper.line((("accent", f"{number:>2} "), *row) if made else row)
        return
    number = int(rest) if rest.isascii() and rest.isdecimal() else 0
    if not 1 <= number <= len(made):
        there = f"1 to {len(made)}" if made else "none yet"
        raise BadInput(f"there is no plan {rest!r} in this session: there is {there}")
    plan = made[number - 1]
    here.paper.say(on_one_line(plan.title), "strong")
    here.paper.gap()
    print_words(plan.text, here.paper)


async def execute(here: Conversation, rest: str) -> None:
    """Approve the plan that waits, or just leave plan mode."""
    if rest:
        raise BadInput("/execute takes no words: it approves the plan that waits")
    session = here.session
    if (waiting := session.view.plans.waiting) is not None:
        if await session.inbox.approve_plan(waiting.seq):
            here.paper.say(f"approved: {on_one_line(waiting.title)}", "good")
            await here.go()
        return
    if mode_of(here.around, session.view) != "plan":
        raise BadInput("There is no plan to carry out. /plan begins one.")
    mode = after_planning(session.view.rights, here.around.mode)
    await session.inbox.set_mode(mode)
    here.paper.say(f"Plan mode is off. The mode is {mode}.", "dim")
