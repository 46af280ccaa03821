"""Documents of live news: pieces of a response, and progress. Part of `documents`. Pure.

A document of an event repeats everything in them that matters, completely.
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
    """A piece of a text that streams. On a socket, `offset` characters came before it.

    `message` is the number of the event of the model call, the same for all pieces of one
    response. After a reconnect a piece may come again, as a part of a longer one.
    """

    message: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    text: str

    @property
    def piece(self) -> Piece:
        message = 0 if self.message is UNSET else self.message
        return Piece(message, 0 if self.offset is UNSET else self.offset, self.text)


class TextDelta(TextPiece, frozen=True, kw_only=True, tag="text_delta"):
    """A piece of a response."""


class ThinkingDelta(TextPiece, frozen=True, kw_only=True, tag="thinking_delta"):
    """A piece of its thinking."""


class CallBegun(_Live, frozen=True, kw_only=True, tag="call_coming"):
    """The model has begun to write a call of this tool."""

    name: str


class ToolProgress(TextPiece, frozen=True, kw_only=True, tag="tool_progress"):
    """A piece of what a running call prints."""

    call_id: str


class Retry(_Live, frozen=True, kw_only=True, tag="retry"):
    """The request is sent again after `seconds`.

    That is attempt `attempt` of `attempts`; 0: they are not counted.
    """

    seconds: float
    reason: str
    attempt: int = 0
    attempts: int = 0


class WithinChild(_Live, frozen=True, kw_only=True, tag="within"):
    """A live document, `live`, of the subagent with the address `node`, such as child-1/child-2."""

    node: str
    live: TextCame | ThinkingCame | CallComing | Progress | Waiting


class ChildMoved(_Live, frozen=True, kw_only=True, tag="child_moved"):
    """Progress of a subagent, or of a model that its code calls; `label` says what it does now."""

    node: str
    agent: str
    title: str
    steps: int
    tokens: int
    cost: float | None  # US dollars; null: a price is not known
    label: str


class PortsChanged(_Live, frozen=True, kw_only=True, tag="ports"):
    """Ports of a workspace elsewhere that began to listen after the session connected."""

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
