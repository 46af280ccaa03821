"""Decides what to do next, from the view alone. Pure.

The loop has no memory of its own: it calls `decide`, performs that one action, records the
result, and calls `decide` again. So a session can stop after any event and continue from
there.

A feature that changes what happens next is a `Policy` in the list, not a branch in the
loop. Each policy proposes an action, a note for the next model call, or nothing. The action
of the highest rank is chosen; between actions of one rank the first in the list
(`app.policies`) wins. All notes are used.
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from refold.journal.events.kinds import Outcome
from refold.journal.state.fold import View
from refold.values.control import CompactionKind
from refold.values.modes import HookEvent


class RunCalls(Struct, frozen=True):
    """Continue every open call from its current stage, except calls that wait for the user."""


class SettleCalls(Struct, frozen=True):
    """End these calls without executing them."""

    ids: tuple[str, ...]
    reason: str


class Reject(Struct, frozen=True):
    """Reject the response that would end the turn; the notes say why."""

    notes: tuple[str, ...]


class EndTurn(Struct, frozen=True):
    outcome: Outcome
    reason: str = ""


class CompactConversation(Struct, frozen=True):
    """Compact the conversation: prune old tool results, or replace old messages by a summary."""

    kind: CompactionKind
    reason: str
    focus: str = ""
    # The user or the model requested it, even if the window is not full.
    wanted: bool = False


# The reason of a compaction that the user requested.
ASKED_FOR = "it was asked for"


class Wait(Struct, frozen=True):
    """Wait for a new event, because subagents are running."""


class RequestBudget(Struct, frozen=True):
    """Request a larger grant for the budget of this session."""


class RunHook(Struct, frozen=True):
    """Run the first hook of this event that has not been run yet.

    `about` is the number of the event that the hook concerns; the matcher of a hook is compared
    with `names`.
    """

    on: HookEvent
    about: int
    names: tuple[str, ...] = ()


class Deliver(Struct, frozen=True):
    """Deliver these messages to the model."""

    messages: tuple[int, ...]


class AskModel(Struct, frozen=True):
    """Call the model with these notes. `because` names the policies that added notes."""

    notes: tuple[str, ...] = ()
    tools: bool = True
    because: tuple[str, ...] = ()


class Note(Struct, frozen=True):
    """A note for the next model call. It is not an action."""

    text: str = ""
    tools: bool = True


Action: TypeAlias = (
    RunCalls | SettleCalls | Reject | Wait | EndTurn | CompactConversation | Deliver | RequestBudget | RunHook | AskModel
)  # fmt: skip


class Policy(Protocol):
    """Proposes what to do next. Pure. The events of a chosen proposal name the policy."""

    @property
    def __name__(self) -> str: ...
    def __call__(self, view: View, /) -> Action | Note | None: ...


class ChosenAction(Struct, frozen=True):
    """An action, and the policy that proposed it."""

    action: Action
    by: str


# Ranks. Calls are run or settled before a turn ends; messages do not postpone its end.
_ACTION_RANK: dict[type[Action], int] = {
    RunCalls: 0, SettleCalls: 0, Reject: 1, Wait: 2, RunHook: 3, EndTurn: 4, CompactConversation: 5,
    Deliver: 6, RequestBudget: 7, AskModel: 8,
}  # fmt: skip


def decide(view: View, policies: Sequence[Policy]) -> ChosenAction | None:
    """Return the next action; None if no turn is running, or if the turn waits for the user."""
    if not view.turn.seq:
        return None
    actions: list[ChosenAction] = []
    notes: list[tuple[str, Note]] = []
    for policy in policies:
        match policy(view):
            case None:
                pass
            case Note() as note:
                notes.append((policy.__name__, note))
            case action:
                actions.append(ChosenAction(action, policy.__name__))
                if _ACTION_RANK[type(action)] == 0:
                    break  # no later action has a higher rank
    if not actions:
        return None
    best = min(actions, key=lambda choice: _ACTION_RANK[type(choice.action)])
    if not isinstance(best.action, AskModel):
        return best
    return ChosenAction(_with_notes(notes, view), best.by)


def _with_notes(notes: Sequence[tuple[str, Note]], view: View) -> AskModel:
    """Return the model call with these notes. Each note comes with the name of its policy.

    Tools are off if a note forbids tools.
    """
    tools = all(note.tools for _, note in notes)
    if view.turn.open_request is not None:  # a repeated request keeps its notes
        return AskModel(tools=tools and view.turn.open_request.tools)
    with_text = [(name, note.text) for name, note in notes if note.text]
    return AskModel(
        notes=tuple(text for _, text in with_text),
        tools=tools,
        because=tuple(name for name, _ in with_text),
    )
