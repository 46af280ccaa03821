"""/plans: list the plans of this session, or show one."""

from refold.errors import BadInput
from refold.terminal.screen.markdown import print_words
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line
from refold.views.todo_list import plan_lines


async def run(here: Terminal, rest: str) -> None:
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
