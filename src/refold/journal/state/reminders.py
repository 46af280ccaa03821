"""What the model was reminded of, and what it may have to be reminded of again.

Facts only: what is said, and when, is the policies' business (`engine.policies`). What was
said once is gone where the talk is told shorter or goes back, and counts no more then;
that a plan was approved the model hears as words.
"""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    Compacted,
    Ended,
    Entry,
    ExternalEditsFound,
    Imported,
    ModeChanged,
    ModelAnswered,
    ModelAsked,
    PlanAnswered,
    Rewound,
    SessionResumed,
    TurnStarted,
)
from refold.values.control import Todos

HEARS = (
    TurnStarted, ModelAsked, ModelAnswered, Ended, ModeChanged, PlanAnswered, Compacted,
    Rewound, ExternalEditsFound, Imported, SessionResumed,
)  # fmt: skip

# The policies whose notes count here, by their names.
PLANNING, TODOS, FILES = "planning", "open_todos", "changed_files"
PLACE = "other_place"


class Reminders(Struct, frozen=True):
    turns_since_plan_mode: int = (
        -1
    )  # turns since it was told of plan mode in full; -1: it was not
    left_plan_mode: bool = False  # told of plan mode, and not that it is over
    answers_since_todos: int = (
        0  # answers since the todos were touched, or it was reminded of them
    )
    external_edits: tuple[
        tuple[str, str], ...
    ] = ()  # files, and what became of them; untold
    moved: bool = False  # it works elsewhere, and was not told so


def apply(reminded: Reminders, entry: Entry) -> Reminders:
    match entry.event:
        case ModelAsked(policies=()) | Ended(control=None):
            pass  # as nearly all of them
        case TurnStarted() if reminded.turns_since_plan_mode >= 0:
            return replace(
                reminded, turns_since_plan_mode=reminded.turns_since_plan_mode + 1
            )
        case ModelAnswered():
            return replace(reminded, answers_since_todos=reminded.answers_since_todos + 1)
        case ModelAsked(policies=because):
            return _told(reminded, because)
        case Ended(control=Todos()):
            return replace(reminded, answers_since_todos=0)
        case ModeChanged(mode) if reminded.turns_since_plan_mode >= 0:
            return replace(reminded, left_plan_mode=mode != "plan")
        case (
            PlanAnswered(approved=True)
            | Rewound()
            | Imported()
            | Compacted(kind="full" | "trim")
        ):
            # Told shorter, the newest messages may still say that plan mode is on.
            left = reminded.left_plan_mode and isinstance(entry.event, Compacted)
            return replace(reminded, turns_since_plan_mode=-1, left_plan_mode=left)
        case SessionResumed() | ExternalEditsFound():
            return _untold(reminded, entry.event)
        case _:
            pass
    return reminded


def _untold(reminded: Reminders, event: SessionResumed | ExternalEditsFound) -> Reminders:
    if isinstance(event, SessionResumed):
        return replace(reminded, moved=True) if event.directory else reminded
    found = {**dict(reminded.external_edits), **dict(event.files)}
    return replace(reminded, external_edits=tuple(found.items()))


def _told(reminded: Reminders, because: tuple[str, ...]) -> Reminders:
    if PLANNING in because:
        new = -1 if reminded.left_plan_mode else max(0, reminded.turns_since_plan_mode)
        reminded = replace(reminded, turns_since_plan_mode=new, left_plan_mode=False)
    if TODOS in because:
        reminded = replace(reminded, answers_since_todos=0)
    if PLACE in because:
        reminded = replace(reminded, moved=False)
    return replace(reminded, external_edits=()) if FILES in because else reminded
