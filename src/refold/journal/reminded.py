"""What the model was reminded of, and what it may have to be reminded of again.

Facts only: what is said, and when, is the policies' business (`engine.policies`). What was
said once is gone where the talk is told shorter or goes back, and counts no more then;
that a plan was approved the model hears as words.
"""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events import (
    Asked,
    Compacted,
    Ended,
    Entry,
    FilesFound,
    Imported,
    ModeChanged,
    ModelAnswered,
    PlanAnswered,
    Rewound,
    SessionResumed,
    TurnStarted,
)
from refold.values.control import Todos

HEARS = (
    TurnStarted, Asked, ModelAnswered, Ended, ModeChanged, PlanAnswered, Compacted,
    Rewound, FilesFound, Imported, SessionResumed,
)  # fmt: skip

# The policies whose notes count here, by their names.
PLANNING, TODOS, FILES = "planning", "open_todos", "changed_files"
PLACE = "other_place"


class Reminded(Struct, frozen=True):
    planning: int = -1  # turns since it was told of plan mode in full; -1: it was not
    left: bool = False  # told of plan mode, and not that it is over
    todos: int = 0  # answers since the todos were touched, or it was reminded of them
    found: tuple[tuple[str, str], ...] = ()  # files, and what became of them; untold
    moved: bool = False  # it works elsewhere, and was not told so


def apply(reminded: Reminded, entry: Entry) -> Reminded:
    match entry.event:
        case Asked(because=()) | Ended(control=None):
            pass  # as nearly all of them
        case TurnStarted() if reminded.planning >= 0:
            return replace(reminded, planning=reminded.planning + 1)
        case ModelAnswered():
            return replace(reminded, todos=reminded.todos + 1)
        case Asked(because=because):
            return _told(reminded, because)
        case Ended(control=Todos()):
            return replace(reminded, todos=0)
        case ModeChanged(mode) if reminded.planning >= 0:
            return replace(reminded, left=mode != "plan")
        case (
            PlanAnswered(approved=True)
            | Rewound()
            | Imported()
            | Compacted(kind="full" | "trim")
        ):
            # Told shorter, the newest messages may still say that plan mode is on.
            left = reminded.left and isinstance(entry.event, Compacted)
            return replace(reminded, planning=-1, left=left)
        case SessionResumed() | FilesFound():
            return _untold(reminded, entry.event)
        case _:
            pass
    return reminded


def _untold(reminded: Reminded, event: SessionResumed | FilesFound) -> Reminded:
    if isinstance(event, SessionResumed):
        return replace(reminded, moved=True) if event.directory else reminded
    found = {**dict(reminded.found), **dict(event.files)}
    return replace(reminded, found=tuple(found.items()))


def _told(reminded: Reminded, because: tuple[str, ...]) -> Reminded:
    if PLANNING in because:
        new = -1 if reminded.left else max(0, reminded.planning)
        reminded = replace(reminded, planning=new, left=False)
    if TODOS in because:
        reminded = replace(reminded, todos=0)
    if PLACE in because:
        reminded = replace(reminded, moved=False)
    return replace(reminded, found=()) if FILES in because else reminded
