"""/permissions: list the rules, or allow something for this session.

What a rule means is decided in `permissions`.
"""

from collections.abc import Mapping

from refold.app.workspace import check_tools
from refold.engine.authorize import mode_of
from refold.errors import BadInput
from refold.permissions.rules import parse
from refold.terminal.commands.mode import MEANINGS
from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line
from refold.views.styled import Line, Style

_STYLES: Mapping[str, Style] = {"deny": "bad", "ask": "warn"}


async def run(here: Terminal, rest: str) -> None:
    what, _, rule = rest.partition(" ")
    if what == "allow" and rule.strip():
        await _allow(here, rule)
    elif not rest:
        _list(here)
    else:
        raise BadInput("type /permissions, or /permissions allow RULE for this session")


async def _allow(here: Terminal, text: str) -> None:
    rule = parse(text, "allow")
    check_tools((rule,), here.around.tools)
    await here.session.inbox.grant(str(rule))
    here.printer.say(f"For this session: {on_one_line(str(rule))}", "dim")


def _list(here: Terminal) -> None:
    now = mode_of(here.around, here.session.view)
    here.printer.say(f"The mode is {now}: {MEANINGS[now]}")
    rows = [(r.verdict, str(r), r.source or "settings") for r in here.around.rules]
    granted = here.session.view.rights.granted
    rows += [("allow", rule, "this session") for rule in granted]
    if not rows:
        here.printer.say("There are no rules.", "dim")
    for verdict, rule, source in rows:
        shown: Line = (
            (_STYLES.get(verdict, "good"), f"  {verdict:5} "),
            ("plain", on_one_line(rule)),
            ("dim", f"  {on_one_line(source)}"),
        )
        here.printer.line(shown)
