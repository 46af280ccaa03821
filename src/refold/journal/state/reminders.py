"""Which reminders the model has got, and what happened since.

`engine/policies/reminders.py` decides when to remind. A reminder counts as not given
after a rewind or a compaction, which remove it from the conversation.
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
    ModeChanged,
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
from refold.values.control import Todos

EVENT_KINDS = (
    TurnStarted, ModelAsked, ModelAnswered, Ended, ModeChanged, PlanAnswered, Compacted,
    Rewound, ExternalEditsFound, InstructionsFound, Imported, SessionResumed, WorktreeEntered, WorktreeLeft, PlaceRebuilt,
)  # fmt: skip

# The names of the policies whose notes count here.
PLANNING_POLICY, TODOS_POLICY, FILES_POLICY = "planning", "open_todos", "changed_files"
PLACE_POLICY, REBUILT_POLICY = "other_place", "place_rebuilt"
NESTED_POLICY = "nested_instructions"


class NestedInstructions(Struct, frozen=True):
    """Instructions in a subdirectory: the real path, and the text with its imports.

    `found` is the seq of the event that added them, `told` that of the request that has
    them, or 0.
    """

    path: str
    text: str
    found: int
    told: int = 0


class Reminders(Struct, frozen=True):
    # Turns since plan mode was explained in full, or -1.
    turns_since_plan_mode: int = -1
    left_plan_mode: bool = False  # plan mode was explained, its end not yet
    # Responses since the todos changed or the model was reminded of them.
    answers_since_todos: int = 0
    # Files that other programs changed, and how; the model does not know yet.
    external_edits: tuple[tuple[str, str], ...] = ()
    moved: bool = False  # the directory changed; the model does not know yet
    instructions: tuple[NestedInstructions, ...] = ()
    rebuilt: PlaceRebuilt | None = None  # the model does not know yet


def apply(reminders: Reminders, entry: Entry) -> Reminders:
    reminders = _with_instructions(reminders, entry)
    match entry.event:
        case ModelAsked(policies=()) | Ended(control=None):
            pass  # the most frequent case
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
            # After a compaction the kept messages may still say that plan mode is on.
            left = reminders.left_plan_mode and isinstance(entry.event, Compacted)
            return replace(reminders, turns_since_plan_mode=-1, left_plan_mode=left)
        case (
            SessionResumed() | WorktreeEntered() | WorktreeLeft() | ExternalEditsFound()
            | PlaceRebuilt()
        ):  # fmt: skip
            return _with_news(reminders, entry.event)
        case _:
            pass
    return reminders


def _with_instructions(reminders: Reminders, entry: Entry) -> Reminders:
    known = reminders.instructions
    match entry.event:
        case InstructionsFound(files):
            news = tuple(NestedInstructions(path, text, entry.seq) for path, text in files)
            paths = {nested.path for nested in news}
            known = (*(nested for nested in known if nested.path not in paths), *news)
        case ModelAsked(policies=policies) if NESTED_POLICY in policies:
            known = tuple(replace(e, told=e.told or entry.seq) for e in known)
        case Compacted(kind="full" | "trim"):  # the summary does not repeat them verbatim
            known = tuple(replace(nested, told=0) for nested in known)
        case Rewound(seq):
            left = (nested for nested in known if nested.found < seq)
            known = tuple(replace(e, told=e.told if e.told < seq else 0) for e in left)
        case Imported():  # the files were on another machine
            known = ()
        case _:
            return reminders
    return replace(reminders, instructions=known)


def _with_news(
    reminders: Reminders,
    event: SessionResumed
    | WorktreeEntered
    | WorktreeLeft
    | ExternalEditsFound
    | PlaceRebuilt,
) -> Reminders:
    if isinstance(event, PlaceRebuilt):
        return replace(reminders, rebuilt=event)
    if not isinstance(event, ExternalEditsFound):
        return replace(reminders, moved=True) if event.directory else reminders
    edits = {**dict(reminders.external_edits), **dict(event.files)}
    return replace(reminders, external_edits=tuple(edits.items()))


def _after_reminders(reminders: Reminders, policies: tuple[str, ...]) -> Reminders:
    if PLANNING_POLICY in policies:
        new = -1 if reminders.left_plan_mode else max(0, reminders.turns_since_plan_mode)
        reminders = replace(reminders, turns_since_plan_mode=new, left_plan_mode=False)
    if TODOS_POLICY in policies:
        reminders = replace(reminders, answers_since_todos=0)
    if REBUILT_POLICY in policies:
        reminders = replace(reminders, rebuilt=None)
    if PLACE_POLICY in policies:
        reminders = replace(reminders, moved=False)
    return replace(reminders, external_edits=()) if FILES_POLICY in policies else reminders
