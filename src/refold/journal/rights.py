"""How much may run unasked: the mode, and what a person allowed for this session.

A mode or a grant is the person's word; rewinding the talk does not take it back.
"""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events import Entry, Granted, ModeChanged
from refold.values.rights import Mode

HEARS = (ModeChanged, Granted)


class Rights(Struct, frozen=True):
    mode: Mode | None = None  # None: nobody chose, so the settings hold
    granted: tuple[str, ...] = ()


def apply(rights: Rights, entry: Entry) -> Rights:
    match entry.event:
        case ModeChanged(mode):
            return replace(rights, mode=mode)
        case Granted(rule) if rule not in rights.granted:
            return replace(rights, granted=(*rights.granted, rule))
        case _:
            return rights
