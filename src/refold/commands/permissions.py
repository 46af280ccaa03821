"""/permissions: list the rules, or allow something for this session.

What a rule means is decided in `permissions`.
"""

from collections.abc import Mapping

from refold.commands.mode import MEANINGS
from refold.errors import BadInput
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line
from refold.views.styled import Line, Style

_STYLES: Mapping[str, Style] = {"deny": "bad", "ask": "warn"}


_ASKS = "The next change asks once the model has read text from outside"


async def run(here: Terminal, rest: str) -> None:
    what, _, rule = rest.partition(" ")
    if what == "allow" and rule.strip():
        await _allow(here, rule)
    elif not rest:
        _list(here)
    else:
        raise BadInput("type /permissions, or /permissions allow RULE for this session")


async def _allow(here: Terminal, text: str) -> None:
    rule = await here.session.permissions.allow(text)
    here.printer.say(f"For this session: {on_one_line(rule)}", "dim")


def _list(here: Terminal) -> None:
    now = here.session.mode
    here.printer.say(f"The mode is {now}: {MEANINGS[now]}")
    match here.session.permissions.after_outside_text:
        case "asks now":
            here.printer.say(f"{_ASKS}, and it has read some.", "warn")
        case "asks":
            here.printer.say(f"{_ASKS}.", "dim")
        case _:
            pass
    rows = here.session.permissions.listed()
    if not rows:
        here.printer.say("There are no rules.", "dim")
    for verdict, rule, source in rows:
        shown: Line = (
            (_STYLES.get(verdict, "good"), f"  {verdict:5} "),
            ("plain", on_one_line(rule)),
            ("dim", f"  {on_one_line(source)}"),
        )
        here.printer.line(shown)
