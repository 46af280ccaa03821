"""/mode, /approval and /permissions: what runs unasked, shown and changed.

What a mode or a rule means is decided in `permissions`, and nowhere else.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import get_args

from refold.cli.terminal.conversing import Conversation
from refold.engine.judging import mode_of
from refold.errors import BadInput
from refold.hall.workspace import check_tools
from refold.permissions.rules import parse
from refold.values import rights
from refold.values.rights import Mode
from refold.views.escape import on_one_line
from refold.views.styled import Line, Style

MODES: Sequence[Mode] = get_args(Mode)
# Without a word of their own nobody ends up where everything runs unasked.
_CYCLE: Sequence[Mode] = ("default", "accept-edits", "plan")
_MEANS: Mapping[Mode, str] = {
    "default": "looking runs unasked; edits and commands are asked about",
    "accept-edits": "edits inside the workspace run unasked, too",
    "plan": "it only looks, and makes a plan for you to approve",
    "rules-only": "only what an allow rule covers runs unasked",
    "bypass": "everything runs unasked but what is asked in every mode",
}
_STYLES: Mapping[str, Style] = {"deny": "bad", "ask": "warn"}


def after(mode: Mode) -> Mode:
    """The mode that Shift+Tab leads to."""
    at = _CYCLE.index(mode) + 1 if mode in _CYCLE else 0
    return _CYCLE[at % len(_CYCLE)]


async def mode(here: Conversation, rest: str) -> None:
    if not rest:
        now = mode_of(here.around, here.session.view)
        for each in MODES:
            sign = "*" if each == now else " "
            here.paper.say(f"{sign} {each:14}{_MEANS[each]}")
        return
    await _change(here, _named(rest))


async def approval(here: Conversation, rest: str) -> None:
    if not rest:
        on = mode_of(here.around, here.session.view) != "bypass"
        here.paper.say(f"{'on' if on else 'off'} (/approval on|off changes it)")
        return
    if rest not in ("on", "off"):
        raise BadInput(f"{rest!r} is neither on nor off")
    await _change(here, "default" if rest == "on" else "bypass")


async def permissions(here: Conversation, rest: str) -> None:
    what, _, rule = rest.partition(" ")
    if what == "allow" and rule.strip():
        await _allow(here, rule)
    elif not rest:
        _list(here)
    else:
        raise BadInput("say /permissions, or /permissions allow RULE for this session")


async def _change(here: Conversation, wanted: Mode) -> None:
    await here.session.inbox.set_mode(wanted)
    here.paper.say(f"{wanted}: {_MEANS[wanted]}", "warn" if wanted == "bypass" else "dim")


async def _allow(here: Conversation, text: str) -> None:
    rule = parse(text, "allow")
    check_tools((rule,), here.around.tools)
    await here.session.inbox.grant(str(rule))
    here.paper.say(f"For this session: {on_one_line(str(rule))}", "dim")


def _list(here: Conversation) -> None:
    now = mode_of(here.around, here.session.view)
    here.paper.say(f"The mode is {now}: {_MEANS[now]}")
    rows = [(r.verdict, str(r), r.source or "settings") for r in here.around.rules]
    granted = here.session.view.rights.granted
    rows += [("allow", rule, "this session") for rule in granted]
    if not rows:
        here.paper.say("There are no rules.", "dim")
    for verdict, rule, source in rows:
        shown: Line = (
            (_STYLES.get(verdict, "good"), f"  {verdict:5} "),
            ("plain", on_one_line(rule)),
            ("dim", f"  {on_one_line(source)}"),
        )
        here.paper.line(shown)


def _named(text: str) -> Mode:
    if (found := rights.MODES.get(text)) is not None:
        return found
    near = get_close_matches(text.lower(), rights.MODES, 1, 0.5)
    hint = (
        f"Did you mean {rights.MODES[near[0]]}?"
        if near
        else f"There are {', '.join(MODES)}."
    )
    raise BadInput(f"{text!r} is no mode. {hint}")
