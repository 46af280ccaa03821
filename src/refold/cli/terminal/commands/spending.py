"""/cost, /budget and /iterations: what was used up, and what a turn may use up."""

import re

from msgspec.structs import replace

from refold.cli.terminal.conversing import Conversation
from refold.errors import BadInput
from refold.journal.events import ChildEnded
from refold.journal.used import budget_of
from refold.values.budget import NO_LIMIT, Budget
from refold.views.budget import budget_lines
from refold.views.counts import spent_row, window
from refold.views.spending import spending, spending_lines

KINDS = ("tokens", "calls", "seconds", "off")
_HOW = (
    "say /budget USD, /budget tokens N, /budget calls N, /budget seconds N, or /budget off"
)
_MANY = {"k": 1_000, "m": 1_000_000, "": 1}
_NUMBER = re.compile(r"\$?(\d+(?:[._,]\d+)*)\s*([km]?)", re.IGNORECASE)


async def cost(here: Conversation, rest: str) -> None:
    if rest not in ("", "turns"):
        raise BadInput(f"say /cost, or /cost turns, not {rest!r}")
    view = here.session.view
    full = window(view.account.last, view.talk.briefed.window)
    entries = await here.session.record.entries()
    ends = [e.event for e in entries if isinstance(e.event, ChildEnded)]
    found = spending(entries, {end.child: end.spent for end in ends})
    here.paper.lines(spending_lines(found, full, here.paper.room, turns=rest == "turns"))
    if (below := view.account.below).answers:
        here.paper.say(f"its children, and all below them: {spent_row(below)}", "dim")


async def budget(here: Conversation, rest: str) -> None:
    """Show it, or change one limit of it for this session."""
    settled = here.around.budget
    if rest:
        await here.session.inbox.set_budget(
            wanted(rest, budget_of(here.session.view, settled))
        )
    here.paper.lines(budget_lines(here.session.view, settled))


async def iterations(here: Conversation, rest: str) -> None:
    """How many answers a turn may have: shown, or chosen for this session."""
    if rest:
        if rest != "off" and not (rest.isascii() and rest.isdecimal() and int(rest) > 0):
            raise BadInput(f"say /iterations N, or /iterations off, not {rest!r}")
        await here.session.inbox.set_steps(0 if rest == "off" else int(rest))
    chosen, settled = here.session.view.rights.steps, here.around.steps
    if chosen:
        here.paper.say(f"One turn may have {chosen} answers, chosen for this session.")
    else:
        here.paper.say(f"One turn may have {settled} answers, as limits.steps says.")


def wanted(text: str, now: Budget) -> Budget:
    """`now` with the limit that `text` names changed. Raises `BadInput`."""
    if text.lower() == "off":
        return NO_LIMIT
    kind, _, number = text.rpartition(" ")
    match kind.strip().lower():
        case "" | "usd":
            return replace(now, dollars=_amount(number, text))
        case "tokens" | "calls" as limit:
            count = _amount(number, text)
            if not count.is_integer():
                raise BadInput(f"{text!r} is no budget: {limit} are whole numbers")
            return replace(now, **{limit: int(count)})
        case "seconds":
            return replace(now, seconds=_amount(number, text))
        case _:
            raise BadInput(f"{text!r} is no budget: {_HOW}")


def _amount(number: str, text: str) -> float:
    found = _NUMBER.fullmatch(number)
    try:
        value = float(found[1].replace(",", "").replace("_", "")) if found else 0.0
    except ValueError:
        value = 0.0
    if found is None or not value:
        raise BadInput(f"{text!r} is no budget: {_HOW}")
    return value * _MANY[found[2].lower()]
