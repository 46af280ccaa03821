"""What a session is: where it works, which model it was given, which version wrote it."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events import (
    AgentChosen,
    Distilled,
    EffortChosen,
    Entry,
    Forked,
    Imported,
    Mended,
    ModelChosen,
    Said,
    SessionResumed,
    SessionStarted,
)
from refold.journal.naming import Renamed, Tagged, Titled
from refold.journal.talk import WISHING
from refold.values.effort import Effort

HEARS = (
    SessionStarted, SessionResumed, Mended, ModelChosen, EffortChosen, Said, AgentChosen,
    Distilled, Forked, Imported, Renamed, Tagged,
    Titled,
)  # fmt: skip
LONGEST_TITLE = 60


class Whereabouts(Struct, frozen=True):
    """Where a session works: real paths. `roots` are the further directories of it."""

    directory: str = ""
    roots: tuple[str, ...] = ()


class About(Struct, frozen=True):
    directory: str = ""
    refold: str = ""
    id: str = ""
    roots: tuple[str, ...] = ()  # what else belongs to its workspace
    model: str = ""  # chosen by a person, as provider/model; "": the settings hold
    effort: Effort = ""  # chosen by a person; "": the settings hold
    agent: str = ""  # chosen by a person; "": the settings hold
    then: str = ""  # the agent that carries out what this one plans; "": itself
    distilled: int = 0  # up to this event, memory has been made of it
    title: str = ""  # the beginning of the first words, or as a model found it
    titled: bool = False  # did one?
    name: str = ""  # that a person gave it
    tags: tuple[str, ...] = ()
    began: float = 0.0
    before: str = ""  # another version, that wrote it until this one took it up
    imported: int = 0  # the seq of the event up to which it came from a file
    forked: tuple[str, int] = ("", 0)  # the session that this is a copy of, up to an event
    mended: tuple[int, str] = (0, "")  # the seq of the newest mending, and what was lost


def apply(about: About, entry: Entry) -> About:
    match entry.event:
        case SessionStarted(directory, refold, id_, roots=roots):
            return About(directory, refold, id_, began=entry.at, roots=roots)
        case SessionResumed():
            return _resumed(about, entry.event)
        case Mended(lost):
            return replace(about, mended=(entry.seq, lost))
        case Distilled(upto):
            return replace(about, distilled=upto)
        case Forked() | Imported():
            return _copied(about, entry.event, entry.seq)
        case (
            ModelChosen() | AgentChosen() | EffortChosen() | Renamed() | Tagged() | Titled()
        ):
            return _chosen(about, entry.event)
        case Said(words, sender, typed=typed) if not about.title and sender in WISHING:
            return replace(about, title=" ".join((typed or words).split())[:LONGEST_TITLE])
        case _:
            return about


def _copied(about: About, event: Forked | Imported, seq: int) -> About:
    # What was said up to here is the business of another session's memory.
    known = max(about.distilled, seq)
    # Its name is the other's: nobody could tell them apart by it.
    name = about.name if event.id == event.source else ""
    copied = replace(about, id=event.id, name=name, distilled=known)
    if isinstance(event, Forked):
        return replace(copied, forked=(event.source, event.seq))
    # Nobody here has chosen a model or an agent yet.
    nothing: Any = {"model": "", "effort": "", "agent": "", "then": "", "roots": ()}
    return replace(copied, imported=seq, directory=event.directory, **nothing)


def _resumed(about: About, event: SessionResumed) -> About:
    return replace(
        about,
        refold=event.refold,
        before=about.refold if about.refold != event.refold else "",
        directory=event.directory or about.directory,
        roots=about.roots if event.roots is None else event.roots,
    )


def _chosen(
    about: About,
    event: ModelChosen | AgentChosen | EffortChosen | Renamed | Tagged | Titled,
) -> About:
    match event:
        case ModelChosen(model):
            return replace(about, model=model)
        case AgentChosen(agent, then):
            return replace(about, agent=agent, then=then)
        case EffortChosen(effort):
            return replace(about, effort=effort)
        case Renamed(name):
            return replace(about, name=name)
        case Tagged(tags):
            return replace(about, tags=tags)
        case Titled(title):
            return replace(about, title=title, titled=True)
