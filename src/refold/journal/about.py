"""What a session is: where it works, which model it was given, which version wrote it."""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events import (
    AgentChosen,
    Distilled,
    EffortChosen,
    Entry,
    Forked,
    Mended,
    ModelChosen,
    Said,
    SessionResumed,
    SessionStarted,
)
from refold.journal.talk import WISHING
from refold.values.effort import Effort

HEARS = (
    SessionStarted, SessionResumed, Mended, ModelChosen, EffortChosen, Said, AgentChosen,
    Distilled, Forked,
)  # fmt: skip
_TITLE = 60


class About(Struct, frozen=True):
    directory: str = ""
    refold: str = ""
    id: str = ""
    model: str = ""  # chosen by a person, as provider/model; "": the settings hold
    effort: Effort = ""  # chosen by a person; "": the settings hold
    agent: str = ""  # chosen by a person; "": the settings hold
    then: str = ""  # the agent that carries out what this one plans; "": itself
    distilled: int = 0  # up to this event, memory has been made of it
    title: str = ""
    began: float = 0.0
    before: str = ""  # another version, that wrote it until this one took it up
    forked: tuple[str, int] = ("", 0)  # the session that this is a copy of, up to an event
    mended: tuple[int, str] = (0, "")  # the seq of the newest mending, and what was lost


def apply(about: About, entry: Entry) -> About:
    match entry.event:
        case SessionStarted(directory, refold, id_):
            return About(directory, refold, id_, began=entry.at)
        case SessionResumed(refold):
            before = about.refold if about.refold != refold else ""
            return replace(about, refold=refold, before=before)
        case Mended(lost):
            return replace(about, mended=(entry.seq, lost))
        case Distilled(upto):
            return replace(about, distilled=upto)
        case Forked(source, seq, id=id_):
            # What was said up to here is the business of that session's memory.
            known = max(about.distilled, entry.seq)
            return replace(about, id=id_, forked=(source, seq), distilled=known)
        case ModelChosen() | AgentChosen() | EffortChosen():
            return _chosen(about, entry.event)
        case Said(words, sender, typed=typed) if not about.title and sender in WISHING:
            return replace(about, title=" ".join((typed or words).split())[:_TITLE])
        case _:
            return about


def _chosen(about: About, event: ModelChosen | AgentChosen | EffortChosen) -> About:
    match event:
        case ModelChosen(model):
            return replace(about, model=model)
        case AgentChosen(agent, then):
            return replace(about, agent=agent, then=then)
        case EffortChosen(effort):
            return replace(about, effort=effort)
