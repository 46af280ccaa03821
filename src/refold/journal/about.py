"""What a session is: where it works, which model it was given, which version wrote it."""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events import (
    AgentChosen,
    Distilled,
    EffortChosen,
    Entry,
    Mended,
    ModelChosen,
    Said,
    SessionResumed,
    SessionStarted,
)
from refold.values.effort import Effort

HEARS = (
    SessionStarted, SessionResumed, Mended, ModelChosen, EffortChosen, Said, AgentChosen,
    Distilled,
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
    mended: tuple[int, str] = (0, "")  # the seq of the newest mending, and what was lost


def apply(about: About, entry: Entry) -> About:
    match entry.event:
        case SessionStarted(directory, refold, id_):
            return About(directory, refold, id_, began=entry.at)
        case SessionResumed(refold):
            return replace(about, refold=refold)
        case Mended(lost):
            return replace(about, mended=(entry.seq, lost))
        case Distilled(upto):
            return replace(about, distilled=upto)
        case ModelChosen() | AgentChosen() | EffortChosen():
            return _chosen(about, entry.event)
        case Said(words, typed=typed) if not about.title:
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
