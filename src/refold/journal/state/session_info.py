"""The properties of a session: directory, name, title, chosen model and agent, origin."""

import re
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    Entry,
    Forked,
    Imported,
    JournalRepaired,
    MemoryExtracted,
    ModelAnswered,
    Said,
    SessionResumed,
    SessionStarted,
    WorktreeEntered,
    WorktreeLeft,
)
from refold.journal.events.setting_events import (
    AgentChosen,
    EffortChosen,
    ModelChosen,
    Renamed,
    Tagged,
    Titled,
)
from refold.journal.state.conversation import REQUEST_SENDERS
from refold.values.modes import Effort, Format

EVENT_KINDS = (
    SessionStarted, SessionResumed, JournalRepaired, ModelChosen, EffortChosen, Said, AgentChosen,
    MemoryExtracted, ModelAnswered, Forked, Imported, Renamed, Tagged,
    Titled, WorktreeEntered, WorktreeLeft,
)  # fmt: skip
MAX_TITLE_CHARS = 60
_NAMED_FILES = re.compile(r'(?:@(?:"[^"]*"|\S+) )+')


class SessionDirectories(Struct, frozen=True):
    """The working directory of a session and its further `roots`, as real paths."""

    directory: str = ""
    roots: tuple[str, ...] = ()


class EnteredWorktree(Struct, frozen=True):
    """The git worktree in which a session works, and the directory that it left."""

    tree: str
    branch: str
    base: str
    left: str


class SessionInfo(Struct, frozen=True):
    directory: str = ""
    version: str = ""
    id: str = ""
    roots: tuple[str, ...] = ()  # more directories of its workspace
    model: str = ""  # chosen by the user, as provider/model; "": as in the settings
    effort: Effort = ""  # chosen by the user; "": as in the settings
    agent: str = ""  # chosen by the user; "": as in the settings
    preset: str = ""  # the prompt of the agent main; "": as in the settings
    format: Format | Literal[""] = ""  # sent to the model; "": as in the settings
    after_plan: str = ""  # the agent that carries out plans; "": the same
    memory_up_to: int = 0  # the event up to which notes were made
    title: str = ""  # written by a model, or the beginning of the first message
    titled: bool = False  # a model wrote the title
    name: str = ""  # given by the user
    tags: tuple[str, ...] = ()
    started_at: float = 0.0
    version_before: str = ""  # the version that wrote it before, if different
    imported: int = 0  # the seq of the event up to which it was imported
    # The source session, and the last event that was copied from it.
    forked: tuple[str, int] = ("", 0)
    repaired: tuple[int, str] = (0, "")  # the seq of the last repair, and what was lost
    worktree: EnteredWorktree | None = None  # None: it works in its own directory
    schedule: int = 0  # the number of its schedule, or 0
    no_memory: bool = False  # no notes are made of what follows
    # Pairs of a model and a tool that the model does not get.
    refused_tools: tuple[tuple[str, str], ...] = ()

    @property
    def own_directory(self) -> str:
        """The directory whose settings and rules apply, also in a worktree."""
        return self.worktree.left if self.worktree else self.directory


def apply(info: SessionInfo, entry: Entry) -> SessionInfo:
    """Return what is known of the session after this entry."""
    match entry.event:
        case SessionStarted() as started:
            return SessionInfo(
                directory=started.directory,
                version=started.version,
                id=started.id,
                started_at=entry.at,
                roots=started.roots,
                schedule=started.schedule,
                no_memory=started.no_memory,
            )
        case SessionResumed() | WorktreeEntered() | WorktreeLeft():
            return _after_move(info, entry.event)
        case ModelAnswered(model=model, refused_tools=names) if names:
            pairs = (*info.refused_tools, *((model, name) for name in names))
            return replace(info, refused_tools=tuple(dict.fromkeys(pairs)))
        case JournalRepaired() | MemoryExtracted():
            return _after_upkeep(info, entry.event, entry.seq)
        case Forked() | Imported():
            return _after_copy(info, entry.event, entry.seq)
        case (
            ModelChosen() | AgentChosen() | EffortChosen() | Renamed() | Tagged() | Titled()
        ):
            return _with_choice(info, entry.event)
        case Said(words, sender, typed=typed) if (
            not info.title and sender in REQUEST_SENDERS
        ):
            return replace(info, title=_first_words(typed or words))
        case _:
            return info


def _first_words(text: str) -> str:
    """Return the beginning of a message, without the files that are named at its start."""
    line = " ".join(text.split())
    if files := _NAMED_FILES.match(line):
        line = line[files.end() :]
    return line[:MAX_TITLE_CHARS]


def _after_upkeep(
    info: SessionInfo, event: JournalRepaired | MemoryExtracted, seq: int
) -> SessionInfo:
    """Return the info after the journal was repaired, or notes for the memory were made."""
    match event:
        case JournalRepaired(lost):
            return replace(info, repaired=(seq, lost))
        case MemoryExtracted(end_seq):
            return replace(info, memory_up_to=end_seq)


def _after_copy(info: SessionInfo, event: Forked | Imported, seq: int) -> SessionInfo:
    """Return the properties of a fork or an imported session, from those of its source."""
    # The name stays with the source, so that it is unique. Only an import can have the id of
    # its source.
    name = info.name if event.id == event.source else ""
    # Notes of the copied part are made in the source session.
    memory_up_to = max(info.memory_up_to, seq)
    copied = replace(info, id=event.id, name=name, memory_up_to=memory_up_to)
    if isinstance(event, Forked):
        return replace(copied, forked=(event.source, event.seq))
    # The user of this home has not chosen a model or an agent yet.
    unchosen = ("model", "effort", "agent", "after_plan", "preset", "format")
    defaults: Any = {**dict.fromkeys(unchosen, ""), "roots": (), "worktree": None}
    return replace(copied, imported=seq, directory=event.directory, **defaults)


def _after_move(
    info: SessionInfo, event: SessionResumed | WorktreeEntered | WorktreeLeft
) -> SessionInfo:
    """Return the properties after the session's directory may have changed."""
    if isinstance(event, SessionResumed):
        return _after_resume(info, event)
    if isinstance(event, WorktreeLeft):
        return replace(info, directory=event.directory, worktree=None)
    entered = EnteredWorktree(event.tree, event.branch, event.base, info.own_directory)
    return replace(info, directory=event.directory, worktree=entered)


def _after_resume(info: SessionInfo, event: SessionResumed) -> SessionInfo:
    """Return the info after the session was opened again, perhaps elsewhere."""
    return replace(
        info,
        version=event.version,
        version_before=info.version if info.version != event.version else "",
        directory=event.directory or info.directory,
        worktree=None if event.directory else info.worktree,
        roots=info.roots if event.roots is None else event.roots,
        no_memory=event.no_memory,
    )


def _with_choice(
    info: SessionInfo,
    event: ModelChosen | AgentChosen | EffortChosen | Renamed | Tagged | Titled,
) -> SessionInfo:
    """Return the info with what the user or a model chose."""
    match event:
        case ModelChosen(model, form):
            return replace(info, model=model, format=form or info.format)
        case AgentChosen(agent, then, preset):
            preset = preset or info.preset
            return replace(info, agent=agent, after_plan=then, preset=preset)
        case EffortChosen(effort):
            return replace(info, effort=effort)
        case Renamed(name):
            return replace(info, name=name)
        case Tagged(tags):
            return replace(info, tags=tags)
        case Titled(title):
            return replace(info, title=title, titled=True)
