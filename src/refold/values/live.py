"""Live deltas for watchers. Never recorded: an event with the whole content follows."""

from collections.abc import Hashable
from typing import TypeAlias

from msgspec import Struct


class TextCame(Struct, frozen=True, tag="text_delta"):
    """A piece of the response."""

    text: str


class ThinkingCame(Struct, frozen=True, tag="thinking_delta"):
    """A piece of the model's thinking."""

    text: str


class CallComing(Struct, frozen=True, tag="call_coming"):
    """The model has begun to write a call of this tool."""

    name: str


class Progress(Struct, frozen=True, tag="tool_progress"):
    """A piece of a running call's output."""

    call_id: str
    text: str


class Waiting(Struct, frozen=True, tag="retry"):
    """A wait for the model, and why; it is called again in `seconds`, if not 0.

    That is attempt `attempt` of `attempts`; 0: they are not counted.
    """

    seconds: float
    reason: str
    attempt: int = 0
    attempts: int = 0


class ChildMoved(Struct, frozen=True, tag="child_moved"):
    """The progress of a subagent: responses, tokens, cost, and what it does now.

    `node` is its address below the watched session: "child-1", "child-1/child-2". The cost,
    in US dollars, is None if a price is not known.
    """

    node: str
    agent: str
    title: str
    steps: int
    tokens: int
    cost: float | None
    label: str


class PortsChanged(Struct, frozen=True, tag="ports"):
    """These ports of a workspace elsewhere began to listen after the session connected."""

    ports: tuple[int, ...]


OwnNews: TypeAlias = TextCame | ThinkingCame | CallComing | Progress | Waiting


class SubagentDelta(Struct, frozen=True, tag="within"):
    """A delta of the subagent `node`."""

    node: str
    live: OwnNews


Live: TypeAlias = OwnNews | ChildMoved | SubagentDelta | PortsChanged


class Piece(Struct, frozen=True):
    """A part of a text that is streamed: `offset` characters of the text come before it.

    A part may come again within a longer one. `message` is the event of the model call: the
    offsets of another message are those of another text.
    """

    message: int
    offset: int
    text: str

    @property
    def end(self) -> int:
        """The number of characters of the text up to the end of this piece."""
        return self.offset + len(self.text)

    def after(self, length: int) -> str:
        """The part of it after the first `length` characters of the text."""
        return self.text[max(length - self.offset, 0) :]


def stream_key(live: Live) -> Hashable:
    """The text that this is a part of, or what it is the newest news of; None if neither."""
    match live:
        case TextCame() | ThinkingCame() | PortsChanged():
            return type(live)
        case Progress(call_id):
            return Progress, call_id
        case ChildMoved(node):
            return ChildMoved, node
        case _:
            return None


def as_child_news(name: str, live: Live) -> Live:
    """The same delta as the parent of the subagent `name` publishes it."""
    match live:
        case SubagentDelta(node, news):
            return SubagentDelta(f"{name}/{node}", news)
        case ChildMoved(node, agent, title, steps, tokens, cost, label):
            address = f"{name}/{node}" if node else name
            return ChildMoved(address, agent, title, steps, tokens, cost, label)
        case PortsChanged():
            return live  # of the workspace
        case _:
            return SubagentDelta(name, live)
