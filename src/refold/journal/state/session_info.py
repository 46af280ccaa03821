"""What a session is: where it works, which model it was given, which version wrote it."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    AgentChosen,
    EffortChosen,
    Entry,
    Forked,
    Imported,
    JournalRepaired,
    MemoryExtracted,
    ModelChosen,
    Renamed,
    Said,
    SessionResumed,
    SessionStarted,
    Tagged,
    Titled,
)
from refold.journal.state.conversation import REQUESTERS
from refold.values.modes import Effort

HEARS = (
    SessionStarted, SessionResumed, JournalRepaired, ModelChosen, EffortChosen, Said, AgentChosen,
    MemoryExtracted, Forked, Imported, Renamed, Tagged,
    Titled,
)  # fmt: skip
LONGEST_TITLE = 60


class SessionDirectories(Struct, frozen=True):
    """Where a session works: real paths. `roots` are the further directories of it."""

    directory: str = ""
    roots: tuple[str, ...] = ()


class SessionInfo(Struct, frozen=True):
    directory: str = ""
    version: str = ""
    id: str = ""
    roots: tuple[str, ...] = ()  # what else belongs to its workspace
    model: str = ""  # chosen by a person, as provider/model; "": the settings hold
    effort: Effort = ""  # chosen by a person; "": the settings hold
    agent: str = ""  # chosen by a person; "": the settings hold
    after_plan: str = ""  # the agent that carries out what this one plans; "": itself
    memory_up_to: int = 0  # up to this event, memory has been made of it
    title: str = ""  # the beginning of the first words, or as a model found it
    titled: bool = False  # did one?
    name: str = ""  # that a person gave it
    tags: tuple[str, ...] = ()
    started_at: float = 0.0
    version_before: str = ""  # another version, that wrote it until this one took it up
    imported: int = 0  # the seq of the event up to which it came from a file
    forked: tuple[str, int] = ("", 0)  # the session that this is a copy of, up to an event
    repaired: tuple[int, str] = (0, "")  # the seq of the newest mending, and what was lost


def apply(about: SessionInfo, entry: Entry) -> SessionInfo:
    match entry.event:
        case SessionStarted(directory, refold, id_, roots=roots):
            return SessionInfo(directory, refold, id_, started_at=entry.at, roots=roots)
        case SessionResumed():
            return _resumed(about, entry.event)
        case JournalRepaired(lost):
            return replace(about, repaired=(entry.seq, lost))
        case MemoryExtracted(upto):
            return replace(about, memory_up_to=upto)
        case Forked() | Imported():
            return _copied(about, entry.event, entry.seq)
        case (
            ModelChosen() | AgentChosen() | EffortChosen() | Renamed() | Tagged() | Titled()
        ):
            return _chosen(about, entry.event)
        case Said(words, sender, typed=typed) if not about.title and sender in REQUESTERS:
            return replace(about, title=" ".join((typed or words).split())[:LONGEST_TITLE])
        case _:
            return about


def _copied(about: SessionInfo, event: Forked | Imported, seq: int) -> SessionInfo:
    # What was said up to here is the business of another session's memory.
    known = max(about.memory_up_to, seq)
    # Its name is the other's: nobody could tell them apart by it.
    name = about.name if event.id == event.source else ""
    copied = replace(about, id=event.id, name=name, memory_up_to=known)
    if isinstance(event, Forked):
        return replace(copied, forked=(event.source, event.seq))
    # Nobody here has chosen a model or an agent yet.
    nothing: Any = {"model": "", "effort": "", "agent": "", "after_plan": "", "roots": ()}
    return replace(copied, imported=seq, directory=event.directory, **nothing)


def _resumed(about: SessionInfo, event: SessionResumed) -> SessionInfo:
    return replace(
        about,
        version=event.version,
        version_before=about.version if about.version != event.version else "",
        directory=event.directory or about.directory,
        roots=about.roots if event.roots is None else event.roots,
    )


def _chosen(
    about: SessionInfo,
    event: ModelChosen | AgentChosen | EffortChosen | Renamed | Tagged | Titled,
) -> SessionInfo:
    match event:
        case ModelChosen(model):
            return replace(about, model=model)
        case AgentChosen(agent, then):
            return replace(about, agent=agent, after_plan=then)
        case EffortChosen(effort):
            return replace(about, effort=effort)
        case Renamed(name):
            return replace(about, name=name)
        case Tagged(tags):
            return replace(about, tags=tags)
        case Titled(title):
            return replace(about, title=title, titled=True)
