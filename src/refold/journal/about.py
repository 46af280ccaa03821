"""What a session is: where it works, which model it was given, which version wrote it."""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events import (
    EffortChosen,
    Entry,
    Mended,
    ModelChosen,
    Said,
    SessionResumed,
    SessionStarted,
)
from refold.values.effort import Effort

HEARS = (SessionStarted, SessionResumed, Mended, ModelChosen, EffortChosen, Said)
_TITLE = 60


class About(Struct, frozen=True):
    directory: str = ""
    refold: str = ""
    id: str = ""
    model: str = ""  # chosen by a person, as provider/model; "": the settings hold
    effort: Effort = ""  # chosen by a person; "": the settings hold
    title: str = ""
    began: float = 0.0
    mended: tuple[int, str] = (0, "")  # the seq of the newest mending, and what was lost


def apply(about: About, entry: Entry) -> About:
    match entry.event:
        case SessionStarted(directory, refold, id_):
            return About(directory, refold, id_, began=entry.at)
        case SessionResumed(refold):
            return replace(about, refold=refold)
        case Mended(lost):
            return replace(about, mended=(entry.seq, lost))
        case ModelChosen(model):
            return replace(about, model=model)
        case EffortChosen(effort):
            return replace(about, effort=effort)
        case Said(words) if not about.title:
            return replace(about, title=" ".join(words.split())[:_TITLE])
        case _:
            return about
