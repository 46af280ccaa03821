"""The blocks of a screen: messages, calls and notices as data, and lines for some. Pure.

The lines here look alike on every screen and in every export; otherwise the screen decides how a
block looks.
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

_MAX_MESSAGE_ROWS = 40  # of a message that is not folded
_FOLDED_MESSAGE_ROWS = 12

Stage: TypeAlias = Literal[
    "called", "asked", "running", "done", "failed", "refused", "stopped", "unknown"
]


class MessageBlock(Struct, frozen=True, kw_only=True, tag="heard"):
    """A message that arrived: from the user, the parent, or the report of a subagent."""

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
        """The part of a message that the user wrote, without template or piped text."""
        return self.typed or self.words


class AnswerBlock(Struct, frozen=True, kw_only=True, tag="words"):
    """Text of a response. `partial`: it was cut off."""

    seq: int  # of the answer
    at: float
    text: str
    model: str = ""
    partial: bool = False


class DroppedBlock(Struct, frozen=True, kw_only=True, tag="dropped"):
    """The received part of a failed response, which was dropped; the call is repeated."""

    seq: int
    at: float
    text: str  # "" if there was no text
    reason: str

    @property
    def mark(self) -> str:
        """The sentence below the text."""
        return f"dropped, the model is asked again: {self.reason}"


class ThinkingBlock(Struct, frozen=True, kw_only=True, tag="thought"):
    seq: int
    at: float
    text: str


class CallBlock(Struct, frozen=True, kw_only=True, tag="called"):
    """A tool call, from the model's request to its result."""

    seq: int  # of the answer that holds it
    at: float
    call: ToolCall
    stage: Stage = "called"
    reason: str = ""  # for asking the user, or for the denial by rules
    answered: str = ""  # the person's answer: "yes", "no", "no: words"
    changes: tuple[Diff, ...] = ()  # the changes to files that the question showed
    began: float = 0.0  # 0: not yet
    ended: float = 0.0
    tail: str = ""  # the end of its output while it runs
    text: str = ""  # its result as the model saw it
    shown: tuple[Shown, ...] = ()
    whole: str = ""  # the blob with the whole result, if `text` was cut
    images: tuple[Image, ...] = ()
    control: Control | None = None
    within: str = ""  # the call whose code made this one; "": the model's own

    @property
    def open(self) -> bool:
        return self.stage in ("called", "asked", "running")


class NoticeBlock(Struct, frozen=True, kw_only=True, tag="news"):
    """A notice: something that happened outside of the conversation, in a line.

    `begins` names a subagent that starts here. `report` is that of a subagent that has
    ended. `is_status`: a screen that always shows its status need not show this.
    """

    seq: int
    at: float
    line: Line
    begins: str = ""
    report: str = ""
    is_status: bool = False


class TurnEndBlock(Struct, frozen=True, kw_only=True, tag="turn_over"):
    seq: int
    at: float
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    spent: Spent = Spent()
    last: Usage = Usage()  # of the newest response: the context usage
    window: int = 0
    model: str = ""  # that answered
    asked: str = ""  # the model that was called
    warnings: tuple[str, ...] = ()  # for the person, whatever the answer claims
    unheard: str = ""  # the notice on unsent messages
    redirected: bool = False  # a message that was sent after the interrupt comes next


class StreamingBlock(Struct, frozen=True, kw_only=True, tag="coming"):
    """A part of the response in progress. Its final blocks replace it."""

    kind: Literal["words", "thought", "call"]
    text: Growing  # for a call, only the name of the tool


Open: TypeAlias = MessageBlock | CallBlock
Block: TypeAlias = (
    MessageBlock | AnswerBlock | DroppedBlock | ThinkingBlock | CallBlock | NoticeBlock | TurnEndBlock
)  # fmt: skip


def result_rows(
    block: CallBlock, width: int, directory: str, fold: ResultFold = USUAL_FOLD
) -> list[Line]:
    """The result of a call; nothing while it is open."""
    match block.stage:
        case "called" | "asked" | "running":
            return []
        case outcome:
            end = Ended(block.call.id, outcome, block.text, block.shown)
            # The reason of the rules; after an answer it is that of the question.
            denied = "" if block.answered else block.reason
            known_diffs = block.changes if block.answered else ()
            return result_lines(end, width, directory, denied, fold, known_diffs)


def message_rows(
    block: MessageBlock, width: int, hint: str = "", *, whole: bool = False
) -> list[Line]:
    """The user's message; the middle of a long one is left out unless it is `whole`."""
    rows = [
        row
        for part in visible(block.user_text.strip("\n")).split("\n")
        for row in wrap_words(part, width - 2, "person")
    ]
    if whole or len(rows) <= _MAX_MESSAGE_ROWS:
        return rows
    return fold_lines(rows, _FOLDED_MESSAGE_ROWS, hint)


def is_plan(block: CallBlock) -> bool:
    """Whether the call made a plan, which is shown whole at once."""
    return isinstance(block.control, PlanReady)


# Enter on an empty line continues after these.
CONTINUED_BY_ENTER = ("step_limit", "budget", "failed")


def turn_rows(block: TurnEndBlock, *, usage: bool = True) -> list[Line]:
    """How the turn ended, with warnings and usage."""
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
    """As `turn_rows`, with hints for a person at the keyboard."""
    rows = turn_rows(block, usage=usage)
    if block.outcome == "failed" and not block.unheard:
        rows.append(line("Enter tries again", "dim"))
    if block.outcome == "interrupted" and not (block.unheard or block.redirected):
        rows.append(line("Type what to do instead.", "dim"))
    return rows
