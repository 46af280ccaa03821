"""Makes a screen's one-line notices and the block at the end of a turn. Pure."""

from collections.abc import Iterator

from refold.journal.events.child_events import (
    BackgroundEnded,
    ChildBorn,
    ChildEnded,
    Forked,
    HookRan,
    MailSent,
    PlaceRebuilt,
    TeamsSwitched,
    TerminalEnded,
    TerminalStarted,
    TracingSwitched,
    WorktreeEntered,
    WorktreeLeft,
)
from refold.journal.events.kinds import (
    AnswerRejected,
    Compacted,
    Entry,
    ExternalEditsFound,
    FilesRestored,
    FileUploaded,
    HolderEnded,
    Imported,
    InstructionsFound,
    JournalRepaired,
    MessageEdited,
    ModelAnswered,
    ModelFailed,
    PlanAnswered,
    Rewound,
    Settled,
    Stopped,
    TurnEnded,
)
from refold.journal.events.setting_events import (
    AgentChosen,
    BudgetSet,
    EffortChosen,
    ModeChanged,
    ModelChosen,
    Renamed,
    StepLimitSet,
    Tagged,
)
from refold.journal.state.background import end_text
from refold.journal.state.fold import View
from refold.journal.state.turn import Turn
from refold.views.children_list import child_end_line, child_start_line
from refold.views.cost import budget_text
from refold.views.escape import escape_to_one_line, visible
from refold.views.notices import (
    ESTIMATED_NOTICE,
    compaction_notice,
    external_edits_notice,
    holder_ended_text,
    hook_notice,
    is_redirected,
    place_rebuilt_text,
    terminal_notice,
    unsent_notice,
    warnings,
    worktree_left_text,
)
from refold.views.screen.blocks import NoticeBlock, TurnEndBlock
from refold.views.styled import Line, line
from refold.views.wrap import cut

EVENT_KINDS = frozenset((
    Compacted, ChildBorn, ChildEnded, Rewound, MessageEdited, ModelChosen, EffortChosen, ModeChanged,
    AgentChosen, JournalRepaired, HolderEnded, AnswerRejected, Settled, ExternalEditsFound, InstructionsFound, FilesRestored, FileUploaded, PlanAnswered, Forked,
    Imported, Renamed, Tagged, BudgetSet, StepLimitSet, Stopped, TeamsSwitched, TracingSwitched, MailSent,
    ModelAnswered, ModelFailed, HookRan, BackgroundEnded, WorktreeEntered, WorktreeLeft, PlaceRebuilt, TerminalStarted, TerminalEnded,
))  # fmt: skip
_STATUS_KINDS = (ModeChanged, ModelChosen, EffortChosen)  # a status line shows these, too
_MAX_QUOTE_CELLS = 60


def notice_blocks(
    entry: Entry, window: int, before: View, view: View
) -> Iterator[NoticeBlock]:
    """Yield the notices about an event. `before` and `view` are the views before and after it.

    `window` is the assumed size of the context window if it is unknown.
    """
    begins = ""  # the name of the subagent that starts with this event
    report = ""  # the report of the subagent that ended with it
    match entry.event:
        case Compacted() as compacted:
            notice = compaction_notice(compacted, view, window)
        case ChildBorn() as born:
            notice = child_start_line(born, view.children)
            begins = born.child
        case ChildEnded() as end:
            notice, report = child_end_line(end, view.children, entry.at)
        case BackgroundEnded() as ended:
            notice = _background_ended(ended, view)
        case Stopped() if not view.turn.seq and (text := unsent_notice(view)):
            notice = line(text, "dim")  # no turn is open whose end could show it
        case Rewound(mark):
            notice = _rewind_notice(before, view, mark)
        case ModelAnswered() | ModelFailed():
            notice = None  # only an estimate of its tokens is announced, below
        case _:
            notice = (
                _choice_line(entry) or _session_line(entry) or _team_line(entry)
                or _problem_line(entry) or _file_or_plan_notice(entry)
            )  # fmt: skip
    if notice is not None:
        is_status = isinstance(entry.event, _STATUS_KINDS) and not view.turn.seq
        yield NoticeBlock(
            seq=entry.seq, at=entry.at, line=notice, begins=begins, report=report,
            is_status=is_status,
        )  # fmt: skip
    if view.account.first_estimated == entry.seq:
        yield NoticeBlock(seq=entry.seq, at=entry.at, line=line(ESTIMATED_NOTICE, "warn"))


def turn_end_block(
    entry: Entry, end: TurnEnded, turn: Turn, earlier: float, view: View
) -> TurnEndBlock:
    """Return the block at the end of a turn. `turn` is the state of the turn before this event.

    `earlier` is the turn's duration in an earlier process. It is not included in the duration
    shown.
    """
    return TurnEndBlock(
        seq=entry.seq, at=entry.at, outcome=end.outcome, reason=end.reason,
        seconds=max(0.0, turn.seconds(until=entry.at) - earlier), spent=view.turn.spent, last=view.account.last_usage,
        window=view.conversation.system_prompt.window, model=view.turn.model,
        asked=view.conversation.system_prompt.model, warnings=warnings(view), unheard=unsent_notice(view),
        redirected=is_redirected(view),
    )  # fmt: skip


def _choice_line(entry: Entry) -> Line | None:
    """Return a notice about a new setting of the session, or None for other events."""
    match entry.event:
        case ModelChosen(model, form):
            change = (
                f"conversation is now sent as {form}" if form else f"model is now {model}"
            )
            return line(f"The {escape_to_one_line(change)}.", "dim")
        case EffortChosen(effort):
            return line(f"The effort is now {effort or 'that of the settings'}.", "dim")
        case ModeChanged(mode):
            return line(f"The mode is now {mode}.", "dim")
        case AgentChosen(agent, preset=preset):
            change = f"preset is now {preset}" if preset else f"agent is now {agent}"
            return line(f"The {escape_to_one_line(change)}.", "dim")
        case BudgetSet(budget) if entry.by != "parent":  # not by the parent session
            return line(f"The budget of a turn is now {budget_text(budget)}.", "dim")
        case StepLimitSet(steps):
            if steps:
                return line(f"A turn may now have {steps} model responses.", "dim")
            return line(
                "A turn may now have as many model responses as limits.steps.", "dim"
            )
        case _:
            return None


def _session_line(entry: Entry) -> Line | None:
    """Return a notice about the session's name, tags or place, or None for other events."""
    match entry.event:
        case Renamed(name):
            if not name:
                return line("The session no longer has a name.", "dim")
            return line(f"The session is now called {escape_to_one_line(name)}.", "dim")
        case Tagged(tags):
            shown = " ".join(f"#{escape_to_one_line(tag)}" for tag in tags)
            text = f"Its tags are now {shown}." if tags else "It no longer has tags."
            return line(text, "dim")
        case WorktreeEntered(directory):
            return line(f"The session works in {escape_to_one_line(directory)} now.", "dim")
        case WorktreeLeft():
            return line(worktree_left_text(entry.event), "dim")
        case PlaceRebuilt():
            return line(place_rebuilt_text(entry.event), "warn")
        case TerminalStarted() | TerminalEnded() as event:
            return line(terminal_notice(event), "dim")
        case _:
            return None


def _team_line(entry: Entry) -> Line | None:
    """Return a notice about teams, their mail or recording, or None for other events."""
    match entry.event:
        case TeamsSwitched(on):
            return line(f"Teams are {'on' if on else 'off'} from the next turn on.", "dim")
        case TracingSwitched(on):
            are = "are" if on else "are not"
            return line(f"Model requests {are} recorded from the next turn on.", "dim")
        # Mail to the lead is shown as a message.
        case MailSent(sender, to, text) if to != "lead":
            words = cut(escape_to_one_line(" ".join(text.split())), _MAX_QUOTE_CELLS)
            return line(
                f"Mail from {escape_to_one_line(sender)} to {escape_to_one_line(to)}: {words}",
                "dim",
            )
        case _:
            return None


def _problem_line(entry: Entry) -> Line | None:
    """Return a notice about something that failed, or about a hook; None for other events."""
    match entry.event:
        case JournalRepaired(lost):
            return line(f"The journal was repaired. Lost: {visible(lost)}", "warn")
        case HolderEnded():
            return line(holder_ended_text(entry.event), "warn")
        case AnswerRejected():
            return line("The answer was not accepted: trying again.", "dim")
        case HookRan() as hook_run if text := hook_notice(hook_run):
            return line(text, "dim" if hook_run.outcome == "passed" else "warn")
        case Settled(failed=why) if why:
            text = f"A background model call failed: {visible(why)}"
            return line(text, "warn")
        case _:
            return None


def _found_files_text(event: ExternalEditsFound | InstructionsFound) -> str:
    """Return a sentence about changed files, or about the instructions that were found."""
    if isinstance(event, ExternalEditsFound):
        return external_edits_notice(event.files)
    used = [f"Instructions used: {escape_to_one_line(path)}" for path, _ in event.files]
    return "; ".join((*used, *map(escape_to_one_line, event.notices)))


def _file_or_plan_notice(entry: Entry) -> Line | None:
    """Return a notice about files, messages, plans or copies; None for other events."""
    match entry.event:
        case ExternalEditsFound() | InstructionsFound() as event:
            return line(_found_files_text(event), "dim")
        case FileUploaded(path, size):
            return line(f"Uploaded: {escape_to_one_line(path)} ({size:,} bytes)", "dim")
        case FilesRestored(checkpoint, files=count):
            count_text = "1 file was" if count == 1 else f"{count} files were"
            return line(f"{count_text} restored to event {checkpoint}.", "dim")
        case MessageEdited(message, text):
            verb = "deleted" if text is None else "edited"
            return line(f"Message {message} was {verb}.", "dim")
        case PlanAnswered(_, approved):
            return line(f"The plan was {'approved' if approved else 'rejected'}.", "dim")
        case Imported(source):
            text = (
                f"Imported from a file, where it is session {escape_to_one_line(source)}."
            )
            return line(text, "dim")
        case Forked(source, seq):
            text = (
                f"Forked from session {escape_to_one_line(source)} at event {seq}. "
                "The original is unchanged."
            )
            return line(text, "dim")
        case _:
            return None


def _background_ended(end: BackgroundEnded, view: View) -> Line | None:
    """Return a notice that a command in the background ended, or None if it is unknown."""
    command = view.background.command(end.name)
    if command is None:
        return None
    words = cut(escape_to_one_line(command.started.command), _MAX_QUOTE_CELLS)
    text = f"{end.name} {escape_to_one_line(end_text(end))} · {words}"
    return line(text, "warn" if end.outcome in ("failed", "lost") else "dim")


def _rewind_notice(before: View, view: View, mark: int) -> Line:
    """Return the notice about a rewind, with the last message that remains."""
    if before.mark_at(mark) is None:
        return line(f"The conversation is unchanged: there is no event {mark}.", "dim")
    messages = view.conversation.user_messages
    if not messages:
        return line("The conversation is back before its first message.", "dim")
    words = cut(" ".join(visible(messages[-1].text).split()), _MAX_QUOTE_CELLS)
    return line(f"The conversation is back at event {mark}. Last message: {words}", "dim")
