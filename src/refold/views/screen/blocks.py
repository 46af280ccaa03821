"""What a screen is made of: each thing that was said or done, as data.

No colours, no widths, no widget: how a block looks is the business of who draws it.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from refold.values.control import Control
from refold.values.display import Shown
from refold.values.growing import Growing
from refold.values.messages import Image, ToolCall
from refold.values.modes import Outcome
from refold.values.usage import Spent, Usage
from refold.views.styled import Line

Stage: TypeAlias = Literal[
    "called", "asked", "running", "done", "failed", "refused", "stopped", "unknown"
]


class Heard(Struct, frozen=True, kw_only=True, tag="heard"):
    """Words that came in: a person's, a parent's, or the report of a child."""

    seq: int
    at: float
    words: str
    sender: str = "person"
    later: bool = False  # they were put off until the turn under way is over
    key: str = ""  # the client key that they came with
    pictures: tuple[Image, ...] = ()
    typed: str | None = None  # what the person wrote of them; None: all

    @property
    def said(self) -> str:
        """What a person is shown: not what a template or a pipe brought."""
        return self.typed or self.words


class Words(Struct, frozen=True, kw_only=True, tag="words"):
    """What the model said. `partial`: it was cut off."""

    seq: int  # of the answer
    at: float
    text: str
    model: str = ""
    partial: bool = False


class Thought(Struct, frozen=True, kw_only=True, tag="thought"):
    seq: int
    at: float
    text: str


class Called(Struct, frozen=True, kw_only=True, tag="called"):
    """A call, from when the model made it to what came of it."""

    seq: int  # of the answer that holds it
    at: float
    call: ToolCall
    stage: Stage = "called"
    reason: str = ""  # why it is asked about, or was denied by the rules
    answered: str = ""  # what a person said to it: "yes", "no", "no: words"
    began: float = 0.0  # 0: not yet
    ended: float = 0.0
    tail: str = ""  # the last of what it prints while it runs
    text: str = ""  # what the model saw of its result
    shown: tuple[Shown, ...] = ()
    whole: str = ""  # the blob with all of it, where the model's text was cut
    pictures: tuple[Image, ...] = ()
    control: Control | None = None
    within: str = ""  # the call whose code made this one; "": the model's own

    @property
    def open(self) -> bool:
        return self.stage in ("called", "asked", "running")


class News(Struct, frozen=True, kw_only=True, tag="news"):
    """Something that happened beside the talk, in a line."""

    seq: int
    at: float
    line: Line


class TurnOver(Struct, frozen=True, kw_only=True, tag="turn_over"):
    seq: int
    at: float
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    spent: Spent = Spent()
    last: Usage = Usage()  # of the newest answer: how full the window is
    window: int = 0
    model: str = ""  # who answered
    asked: str = ""  # whom it was meant for
    warnings: tuple[str, ...] = ()  # what a person should know, whatever the answer claims
    unheard: str = ""  # words that nobody has heard, and what can be done about it


class Coming(Struct, frozen=True, kw_only=True, tag="coming"):
    """A part of the answer under way. Once that is whole, its blocks stand instead."""

    kind: Literal["words", "thought", "call"]
    text: Growing  # of a call only the name of the tool


Open: TypeAlias = Heard | Called
Block: TypeAlias = Heard | Words | Thought | Called | News | TurnOver
