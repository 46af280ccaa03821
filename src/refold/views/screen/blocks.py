"""The blocks of a screen, as data: messages, calls, notices. Lines for some of them. Pure.

The lines made in this module are the same on every screen and in every export. For all other
blocks, the screen decides how they look.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from refold.journal.events.kinds import Ended
from refold.values.control import Control, PlanReady
from refold.values.display import Diff, Shown
from refold.values.growing import Growing
from refold.values.messages import Image, ToolCall
from refold.values.modes import Outcome
from refold.values.usage import Spent, Usage
from refold.views.call_summary import USUAL_FOLD, ResultFold, result_lines
from refold.views.escape import escape_to_one_line, visible
from refold.views.number_format import outcome_line, turn_line
from refold.views.styled import Line, line
from refold.views.wrap import fold_lines, wrap_words

_MAX_MESSAGE_ROWS = 40  # longer messages are folded to `_FOLDED_MESSAGE_ROWS`
_FOLDED_MESSAGE_ROWS = 12

Stage: TypeAlias = Literal[
    "called", "asked", "running", "done", "failed", "refused", "stopped", "unknown"
]


class MessageBlock(Struct, frozen=True, kw_only=True, tag="heard"):
    """A message from the user or from the parent session, or the report of a subagent."""

    seq: int
    at: float
    words: str
    sender: str = "person"
    later: bool = False  # delivered after the current turn
    key: str = ""  # the client key of the message
    images: tuple[Image, ...] = ()
    typed: str | None = None  # the part that the person wrote; None: all

    @property
    def user_text(self) -> str:
        """Return the part of the message that the user wrote, without a template or piped text."""
        return self.typed or self.words


class AnswerBlock(Struct, frozen=True, kw_only=True, tag="words"):
    """Text of a response. `partial` says that the response was cut off."""

    seq: int  # of the answer
    at: float
    text: str
    model: str = ""
    partial: bool = False


class DroppedBlock(Struct, frozen=True, kw_only=True, tag="dropped"):
    """Text of a failed response that is not used. The model is called again."""

    seq: int
    at: float
    text: str  # "" if there was no text
    reason: str

    @property
    def mark(self) -> str:
        """Return the sentence that is shown below the text."""
        return f"dropped, the model is asked again: {self.reason}"


class ThinkingBlock(Struct, frozen=True, kw_only=True, tag="thought"):
    seq: int
    at: float
    text: str


class CallBlock(Struct, frozen=True, kw_only=True, tag="called"):
    """A tool call, from the model's request to its result."""

    seq: int  # the event number of the response with the call
    at: float
    call: ToolCall
    stage: Stage = "called"
    reason: str = ""  # why the user is asked, or why the rules denied it
    answered: str = ""  # the person's answer: "yes", "no", "no: words"
    changes: tuple[Diff, ...] = ()  # the changes to files that the question showed
    began: float = 0.0  # 0: not yet
    ended: float = 0.0
    tail: str = ""  # the end of its output, while it runs
    text: str = ""  # its result as the model saw it
    shown: tuple[Shown, ...] = ()
    whole: str = ""  # the blob with the whole result, if `text` was cut
    images: tuple[Image, ...] = ()
    control: Control | None = None
    within: str = ""  # the call whose code made this one; "": the model made it

    @property
    def open(self) -> bool:
        return self.stage in ("called", "asked", "running")


class NoticeBlock(Struct, frozen=True, kw_only=True, tag="news"):
    """A one-line notice about an event outside of the conversation.

    `begins` is the name of a subagent that starts at this point, or "". `report` is the report
    of a subagent that has ended, or "". With `is_status`, a screen that always shows its status
    can omit the notice.
    """

    seq: int
    at: float
    line: Line
    begins: str = ""
    report: str = ""
    is_status: bool = False


class TurnEndBlock(Struct, frozen=True, kw_only=True, tag="turn_over"):
    """The end of a turn: its outcome, duration, usage and warnings."""

    seq: int
    at: float
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    spent: Spent = Spent()
    last: Usage = Usage()  # the usage of the newest response, which shows the context usage
    window: int = 0
    model: str = ""  # the model that responded
    asked: str = ""  # the model that was called
    warnings: tuple[str, ...] = ()  # warnings for the person, whatever the answer claims
    unheard: str = ""  # the notice on unsent messages
    # The next turn answers a message that was sent after the interrupt.
    redirected: bool = False


class StreamingBlock(Struct, frozen=True, kw_only=True, tag="coming"):
    """A part of the response that is arriving. It is replaced when the response is complete."""

    kind: Literal["words", "thought", "call"]
    text: Growing  # for a call, only the name of the tool


Open: TypeAlias = MessageBlock | CallBlock
Block: TypeAlias = (
    MessageBlock | AnswerBlock | DroppedBlock | ThinkingBlock | CallBlock | NoticeBlock | TurnEndBlock
)  # fmt: skip


def result_rows(
    block: CallBlock, width: int, directory: str, fold: ResultFold = USUAL_FOLD
) -> list[Line]:
    """Return the rows of a call's result; [] while the call has not ended."""
    match block.stage:
        case "called" | "asked" | "running":
            return []
        case outcome:
            end = Ended(block.call.id, outcome, block.text, block.shown)
            # `reason` is why the rules refused the call, or why a person was asked about it.
            denied = "" if block.answered else block.reason
            known_diffs = block.changes if block.answered else ()
            return result_lines(end, width, directory, denied, fold, known_diffs)


def message_rows(
    block: MessageBlock, width: int, hint: str = "", *, whole: bool = False
) -> list[Line]:
    """Return the rows of a user's message.

    Unless `whole` is true, the middle of a long message is replaced by a row with `hint`.
    """
    rows = [
        row
        for part in visible(block.user_text.strip("\n")).split("\n")
        for row in wrap_words(part, width - 2, "person")
    ]
    if whole or len(rows) <= _MAX_MESSAGE_ROWS:
        return rows
    return fold_lines(rows, _FOLDED_MESSAGE_ROWS, hint)


def is_plan(block: CallBlock) -> bool:
    """Whether the call presented a plan, which is always shown in full."""
    return isinstance(block.control, PlanReady)


# After these outcomes, Enter on an empty line continues the turn.
CONTINUED_BY_ENTER = ("step_limit", "budget", "failed")


def turn_rows(block: TurnEndBlock, *, usage: bool = True) -> list[Line]:
    """Return rows about the end of a turn: its outcome, warnings, usage, and unsent messages."""
    rows = list[Line]()
    if outcome := outcome_line(block.outcome, block.reason):
        rows.append(outcome)
    rows += [line(warning, "warn") for warning in block.warnings]
    if block.model and block.asked not in ("", block.model):
        rows.append(line(f"answered by {escape_to_one_line(block.model)}", "dim"))
    if usage:
        rows.append(turn_line(block.spent, block.last, block.window, block.seconds))
    if block.unheard:
        rows.append(line(block.unheard, "dim"))
    return rows


def interactive_turn_rows(block: TurnEndBlock, *, usage: bool = True) -> list[Line]:
    """Return the rows of `turn_rows`, and a hint on what the user can do."""
    rows = turn_rows(block, usage=usage)
    if block.outcome == "failed" and not block.unheard:
        rows.append(line("Enter tries again", "dim"))
    if block.outcome == "interrupted" and not (block.unheard or block.redirected):
        rows.append(line("Type what to do instead.", "dim"))
    return rows
