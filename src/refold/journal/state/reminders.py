"""Which reminders the model has got, and what has happened since.

`engine/policies/reminders.py` decides when to remind. After a rewind or a compaction, which
remove reminders from the conversation, those count as not given.
"""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    Compacted,
    Ended,
    Entry,
    ExternalEditsFound,
    Imported,
    InstructionsFound,
    ModelAnswered,
    ModelAsked,
    PlaceRebuilt,
    PlanAnswered,
    Rewound,
    SessionResumed,
    TurnStarted,
    WorktreeEntered,
    WorktreeLeft,
)
from refold.journal.events.setting_events import ModeChanged
from refold.values.control import Todos

EVENT_KINDS = (
    TurnStarted, ModelAsked, ModelAnswered, Ended, ModeChanged, PlanAnswered, Compacted,
    Rewound, ExternalEditsFound, InstructionsFound, Imported, SessionResumed, WorktreeEntered, WorktreeLeft, PlaceRebuilt,
)  # fmt: skip

# The names of the policies whose notes change this state.
PLANNING_POLICY, TODOS_POLICY, FILES_POLICY = "planning", "open_todos", "changed_files"
PLACE_POLICY, REBUILT_POLICY = "other_place", "place_rebuilt"
NESTED_POLICY = "nested_instructions"
_PLAN_MODE_UNKNOWN = -1  # the number of turns if the model does not know of plan mode


class NestedInstructions(Struct, frozen=True):
    """Instructions in a subdirectory: the real path, and the text with its imports.

    `found` is the seq of the event that added them, `request_seq` the seq of the request with
    them, or 0.
    """

    path: str
    text: str
    found: int
    request_seq: int = 0


class Reminders(Struct, frozen=True):
    # The number of turns since plan mode was explained in full; -1: the model does not know it.
    turns_since_plan_mode: int = _PLAN_MODE_UNKNOWN
    left_plan_mode: bool = False  # plan mode was explained, but not yet that it ended
    # The number of responses since the todos changed or the model was reminded of them.
    answers_since_todos: int = 0
    # Files that other programs changed, and how. The model does not know of them yet.
    external_edits: tuple[tuple[str, str], ...] = ()
    moved: bool = False  # the directory changed, and the model does not know yet
    instructions: tuple[NestedInstructions, ...] = ()
    rebuilt: PlaceRebuilt | None = None  # a change that the model does not know of yet


def apply(reminders: Reminders, entry: Entry) -> Reminders:
    """Return the reminders after this entry. An event of another kind changes nothing."""
    reminders = _with_instructions(reminders, entry)
    match entry.event:
        case ModelAsked(policies=()) | Ended(control=None):
            pass  # the most frequent case comes first
        case TurnStarted() if reminders.turns_since_plan_mode >= 0:
            return replace(
                reminders, turns_since_plan_mode=reminders.turns_since_plan_mode + 1
            )
        case ModelAnswered():
            return replace(reminders, answers_since_todos=reminders.answers_since_todos + 1)
        case ModelAsked(policies=policies):
            return _after_reminders(reminders, policies)
        case Ended(control=Todos()):
            return replace(reminders, answers_since_todos=0)
        case ModeChanged(mode) if reminders.turns_since_plan_mode >= 0:
            return replace(reminders, left_plan_mode=mode != "plan")
        case (
            PlanAnswered(approved=True)
            | Rewound()
            | Imported()
            | Compacted(kind="full" | "trim")
        ):
            # After a compaction, the remaining messages may still say that plan mode is on.
            left = reminders.left_plan_mode and isinstance(entry.event, Compacted)
            return replace(
                reminders, turns_since_plan_mode=_PLAN_MODE_UNKNOWN, left_plan_mode=left
            )
        case (
            SessionResumed() | WorktreeEntered() | WorktreeLeft() | ExternalEditsFound()
            | PlaceRebuilt()
        ):  # fmt: skip
            return _with_unreported_change(reminders, entry.event)
        case _:
            pass
    return reminders


def _with_instructions(reminders: Reminders, entry: Entry) -> Reminders:
    """Return the reminders with the state of nested instructions after this entry."""
    known = reminders.instructions
    match entry.event:
        case InstructionsFound(files):
            new = [NestedInstructions(path, text, entry.seq) for path, text in files]
            new_paths = {nested.path for nested in new}
            others = [nested for nested in known if nested.path not in new_paths]
            known = (*others, *new)
        case ModelAsked(policies=policies) if NESTED_POLICY in policies:
            known = tuple(
                nested if nested.request_seq else replace(nested, request_seq=entry.seq)
                for nested in known
            )
        case Compacted(kind="full" | "trim"):  # the summary does not repeat them verbatim
            known = tuple(replace(nested, request_seq=0) for nested in known)
        case Rewound(seq):
            remaining = (nested for nested in known if nested.found < seq)
            known = tuple(
                nested if nested.request_seq < seq else replace(nested, request_seq=0)
                for nested in remaining
            )
        case Imported():  # the files are on another machine
            known = ()
        case _:
            return reminders
    return replace(reminders, instructions=known)


def _with_unreported_change(
    reminders: Reminders,
    event: SessionResumed
    | WorktreeEntered
    | WorktreeLeft
    | ExternalEditsFound
    | PlaceRebuilt,
) -> Reminders:
    """Return the state with a change that the model must be reminded of."""
    if isinstance(event, PlaceRebuilt):
        return replace(reminders, rebuilt=event)
    if isinstance(event, ExternalEditsFound):
        edits = {**dict(reminders.external_edits), **dict(event.files)}
        return replace(reminders, external_edits=tuple(edits.items()))
    if not event.directory:  # the session was resumed where it was left
        return reminders
    return replace(reminders, moved=True)


def _after_reminders(reminders: Reminders, policies: tuple[str, ...]) -> Reminders:
    """Return the state after a request with the reminders of these policies."""
    if PLANNING_POLICY in policies:
        if reminders.left_plan_mode:  # the request said that plan mode has ended
            turns = _PLAN_MODE_UNKNOWN
        else:  # the request explained plan mode
            turns = max(0, reminders.turns_since_plan_mode)
        reminders = replace(reminders, turns_since_plan_mode=turns, left_plan_mode=False)
    if TODOS_POLICY in policies:
        reminders = replace(reminders, answers_since_todos=0)
    if REBUILT_POLICY in policies:
        reminders = replace(reminders, rebuilt=None)
    if PLACE_POLICY in policies:
        reminders = replace(reminders, moved=False)
    if FILES_POLICY in policies:
        reminders = replace(reminders, external_edits=())
    return reminders
