"""Defines the documents of live news: pieces of a response, and progress. Pure.

They are a part of the JSON stream. Everything important in them comes again, in full, in the
document of a later event.
"""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from refold.values.live import CallComing, Piece, Progress, TextCame, ThinkingCame, Waiting

After: TypeAlias = Annotated[
    int, Meta(ge=0, description="the number of the event that it follows")
]


class _Live(Struct, frozen=True, kw_only=True, tag_field="type"):
    after: After
    conversation: str | UnsetType = UNSET  # on a socket


class TextPiece(_Live, frozen=True, kw_only=True):
    """A piece of streamed text.

    On a socket, `offset` is the number of characters before the piece. `message` is the
    number of the event of the model call, the same for all pieces of one response. After a
    reconnect, a piece may be repeated as a part of a longer piece.
    """

    message: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    text: str

    @property
    def piece(self) -> Piece:
        """The document as a `Piece`, with 0 for a missing `message` or `offset`."""
        message = 0 if self.message is UNSET else self.message
        offset = 0 if self.offset is UNSET else self.offset
        return Piece(message, offset, self.text)


class TextDelta(TextPiece, frozen=True, kw_only=True, tag="text_delta"):
    """A piece of a response."""


class ThinkingDelta(TextPiece, frozen=True, kw_only=True, tag="thinking_delta"):
    """A piece of the model's thinking."""


class CallBegun(_Live, frozen=True, kw_only=True, tag="call_coming"):
    """The model has begun to write a call of this tool."""

    name: str


class ToolProgress(TextPiece, frozen=True, kw_only=True, tag="tool_progress"):
    """A piece of what a running call prints."""

    call_id: str


class Retry(_Live, frozen=True, kw_only=True, tag="retry"):
    """The request is sent again after `seconds`.

    `attempt` is the number of this attempt, and `attempts` the maximum. If attempts are not
    counted or not limited, the number is 0.
    """

    seconds: float
    reason: str
    attempt: int = 0
    attempts: int = 0


class WithinChild(_Live, frozen=True, kw_only=True, tag="within"):
    """Live news, `live`, of the subagent with the address `node`, such as child-1/child-2."""

    node: str
    live: TextCame | ThinkingCame | CallComing | Progress | Waiting


class ChildMoved(_Live, frozen=True, kw_only=True, tag="child_moved"):
    """The progress of a subagent, or of a model call that code makes.

    `label` says what it does at present.
    """

    node: str
    agent: str
    title: str
    steps: int
    tokens: int
    cost: float | None  # US dollars; null: a price is not known
    label: str


class PortsChanged(_Live, frozen=True, kw_only=True, tag="ports"):
    """The open ports of a workspace on another machine have changed.

    `ports` are all ports on which its programs listen and did not listen yet when the
    session connected.
    """

    ports: Sequence[int]


LiveDocument: TypeAlias = (
    TextDelta
    | ThinkingDelta
    | CallBegun
    | ToolProgress
    | Retry
    | WithinChild
    | ChildMoved
    | PortsChanged
)
