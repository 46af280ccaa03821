"""/permissions: list the rules, or allow something for this session.

What a rule means is decided in `permissions`.
"""

from collections.abc import Mapping

from refold.commands.command_context import CommandContext
from refold.commands.mode import MODE_MEANINGS
from refold.errors import BadInput
from refold.views.escape import on_one_line
from refold.views.styled import Line, Style, line

_RULE_STYLES: Mapping[str, Style] = {"deny": "bad", "ask": "warn"}


_ASKS_NOTE = "The next change asks once the model has read text from outside"


async def run(here: CommandContext, rest: str) -> None:
    action, _, rule = rest.partition(" ")
    if action == "allow" and rule.strip():
        await _allow(here, rule)
    elif not rest:
        _list(here)
    else:
        raise BadInput("type /permissions, or /permissions allow RULE for this session")


async def _allow(here: CommandContext, text: str) -> None:
    rule = await here.session.permissions.allow(text)
    here.show(line(f"For this session: {on_one_line(rule)}", "dim"))


def _list(here: CommandContext) -> None:
    now = here.session.mode
    here.show(line(f"The mode is {now}: {MODE_MEANINGS[now]}"))
    match here.session.permissions.after_outside_text:
        case "asks now":
            here.show(line(f"{_ASKS_NOTE}, and it has read some.", "warn"))
        case "asks":
            here.show(line(f"{_ASKS_NOTE}.", "dim"))
        case _:
            pass
    rows = here.session.permissions.rules_in_force()
    if not rows:
        here.show(line("There are no rules.", "dim"))
    for verdict, rule, source in rows:
        shown: Line = (
            (_RULE_STYLES.get(verdict, "good"), f"  {verdict:5} "),
            ("plain", on_one_line(rule)),
            ("dim", f"  {on_one_line(source)}"),
        )
        here.show(shown)
