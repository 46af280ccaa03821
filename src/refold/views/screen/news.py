"""What happened beside the talk, in a line each, and how a turn ended. Pure."""

from collections.abc import Iterator

from refold.journal.below import ChildBorn, ChildEnded, Forked
from refold.journal.events import (
    AgentChosen,
    BudgetSet,
    Compacted,
    EffortChosen,
    Entry,
    FilesFound,
    FilesRestored,
    Imported,
    Mended,
    ModeChanged,
    ModelAnswered,
    ModelChosen,
    ModelFailed,
    PlanAnswered,
    Rejected,
    Renamed,
    Rewound,
    Settled,
    StepsSet,
    Stopped,
    Tagged,
    TurnEnded,
)
from refold.journal.fold import View
from refold.views.budget import in_words
from refold.views.cells import cut
from refold.views.closing import warnings
from refold.views.escape import on_one_line, visible
from refold.views.family import told_of
from refold.views.news import ESTIMATED, changed_elsewhere, not_heard, shortened
from refold.views.screen.blocks import News, TurnOver
from refold.views.styled import Line, line

HEARS = frozenset((
    Compacted, ChildBorn, ChildEnded, Rewound, ModelChosen, EffortChosen, ModeChanged,
    AgentChosen, Mended, Rejected, Settled, FilesFound, FilesRestored, PlanAnswered, Forked,
    Imported, Renamed, Tagged, BudgetSet, StepsSet, Stopped,
    ModelAnswered, ModelFailed,
))  # fmt: skip
_LONGEST = 60  # cells of words that are quoted


def told(entry: Entry, window: int, before: View, view: View) -> Iterator[News]:
    """`window` is what is assumed where that of the model is not known."""
    match entry.event:
        case Compacted() as made:
            found = shortened(made, view, window)
        case ChildBorn() | ChildEnded() as event:
            found = told_of(event, view.family)
        case Stopped() if not view.turn.seq and (waits := not_heard(view)):
            found = line(waits, "dim")  # no end of a turn will tell it
        case Rewound(mark):
            found = _rewound(before, view, mark)
        case ModelAnswered() | ModelFailed():
            found = None
        case _:
            found = (
                _chosen(entry) or _called(entry)
                or _mishap(entry) or _of_files_and_plans(entry)
            )  # fmt: skip
    if found is not None:
        yield News(seq=entry.seq, at=entry.at, line=found)
    if view.account.estimated == entry.seq:
        yield News(seq=entry.seq, at=entry.at, line=line(ESTIMATED, "warn"))


def turn_over(entry: Entry, end: TurnEnded, began: float, view: View) -> TurnOver:
    return TurnOver(
        seq=entry.seq, at=entry.at, outcome=end.outcome, reason=end.reason,
        seconds=max(0.0, entry.at - began), spent=view.turn.spent, last=view.account.last,
        window=view.talk.briefed.window, model=view.turn.model,
        asked=view.talk.briefed.model, warnings=warnings(view), unheard=not_heard(view),
    )  # fmt: skip


def _chosen(entry: Entry) -> Line | None:
    match entry.event:
        case ModelChosen(model):
            return line(f"The model is now {on_one_line(model)}.", "dim")
        case EffortChosen(effort):
            return line(f"The effort is now {effort or 'as it is set'}.", "dim")
        case ModeChanged(mode):
            return line(f"The mode is now {mode}.", "dim")
        case AgentChosen(agent):
            return line(f"From the next turn on works {on_one_line(agent)}.", "dim")
        case BudgetSet(budget) if entry.by != "parent":
            return line(f"One turn may now use up {in_words(budget)}.", "dim")
        case StepsSet(steps):
            many = f"{steps} answers" if steps else "as many answers as is set"
            return line(f"One turn may now have {many}.", "dim")
        case _:
            return None


def _called(entry: Entry) -> Line | None:
    match entry.event:
        case Renamed(name):
            is_now = (
                f"is now called {on_one_line(name)}" if name else "has no name any more"
            )
            return line(f"The session {is_now}.", "dim")
        case Tagged(tags):
            shown = " ".join(f"#{on_one_line(each)}" for each in tags)
            return line(
                f"Its tags are now {shown}." if tags else "It has no tags any more.", "dim"
            )
        case _:
            return None


def _mishap(entry: Entry) -> Line | None:
    match entry.event:
        case Mended(lost):
            return line(f"The journal was mended. Lost: {visible(lost)}", "warn")
        case Rejected():
            said = "The answer has not the shape that was asked for: once more."
            return line(said, "dim")
        case Settled(failed=why) if why:
            said = f"The model that was asked beside the talk failed: {visible(why)}"
            return line(said, "warn")
        case _:
            return None


def _of_files_and_plans(entry: Entry) -> Line | None:
    match entry.event:
        case FilesFound(files):
            return line(changed_elsewhere(files), "dim")
        case FilesRestored(checkpoint, files=count):
            many = "1 file is" if count == 1 else f"{count} files are"
            return line(f"{many} again as at event {checkpoint}.", "dim")
        case PlanAnswered(_, approved):
            return line(f"The plan was {'approved' if approved else 'rejected'}.", "dim")
        case Imported(source):
            said = (
                f"All of that came from a file, where it is session {on_one_line(source)}."
            )
            return line(said, "dim")
        case Forked(source, seq):
            said = (
                f"A copy of session {on_one_line(source)} up to event {seq} goes on here."
            )
            return line(said, "dim")
        case _:
            return None


def _rewound(before: View, view: View, mark: int) -> Line:
    """What was said last of all that is left, so that a person knows where they are."""
    if before.marked(mark) is None:
        return line(f"The talk stays as it is: nothing is known of event {mark}.", "dim")
    said = view.talk.said
    if not said:
        return line("The talk is again as before its first words.", "dim")
    words = cut(" ".join(visible(said[-1].text).split()), _LONGEST)
    return line(f"The talk is again as at event {mark}. Said last: {words}", "dim")
