"""How much may run unasked: the mode, and what a person allowed for this session.

A mode or a grant is the person's word; rewinding the talk does not take it back.
The one thing a model may change itself is to begin to plan, for that only takes
rights away.
"""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events import Ended, Entry, Granted, ModeChanged, SessionResumed
from refold.values.control import EnterPlan
from refold.values.rights import Mode

HEARS = (ModeChanged, Granted, Ended, SessionResumed)


class Rights(Struct, frozen=True):
    mode: Mode | None = None  # None: nobody chose, so the settings hold
    before: Mode | None = None  # the mode before the planning; None: as the settings say
    granted: tuple[str, ...] = ()


def apply(rights: Rights, entry: Entry) -> Rights:
    match entry.event:
        case ModeChanged(mode):
            return _in_mode(rights, mode)
        case Ended(control=EnterPlan()):
            return _in_mode(rights, "plan")
        case SessionResumed():  # it was allowed for the session that somebody saw
            return replace(rights, granted=())
        case Granted(rule) if rule not in rights.granted:
            return replace(rights, granted=(*rights.granted, rule))
        case _:
            return rights


def _in_mode(rights: Rights, mode: Mode) -> Rights:
    planning = mode == "plan" and rights.mode != "plan"
    return replace(rights, mode=mode, before=rights.mode if planning else rights.before)
