"""Live news for the watchers of a session.

It is not recorded: an event with the whole content follows.
"""

from collections.abc import Hashable
from typing import TypeAlias

from msgspec import Struct


class TextCame(Struct, frozen=True, tag="text_delta"):
    """A piece of the text of a model's response."""

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
    """A wait for the model, with the reason.

    The model is called again in `seconds`, unless that is 0. `attempt` is the number of that
    call, of at most `attempts`; 0 means that calls are not counted.
    """

    seconds: float
    reason: str
    attempt: int = 0
    attempts: int = 0


class ChildMoved(Struct, frozen=True, tag="child_moved"):
    """The progress of a subagent: its responses, tokens and cost so far, and its present
    activity.

    `node` is its address below the watched session: "child-1", "child-1/child-2". The cost,
    in US dollars, is None if a price is unknown.
    """

    node: str
    agent: str
    title: str
    steps: int
    tokens: int
    cost: float | None
    label: str


class PortsChanged(Struct, frozen=True, tag="ports"):
    """The ports of a workspace on another machine that opened after the session connected."""

    ports: tuple[int, ...]


OwnNews: TypeAlias = TextCame | ThinkingCame | CallComing | Progress | Waiting


class SubagentDelta(Struct, frozen=True, tag="within"):
    """Live news of the subagent whose address is `node`."""

    node: str
    live: OwnNews


Live: TypeAlias = OwnNews | ChildMoved | SubagentDelta | PortsChanged


class Piece(Struct, frozen=True):
    """A piece of a text that is streamed: `offset` characters of the text come before it.

    The same characters may come again in a later, longer piece. `message` is the number of
    the model call's event: offsets count the characters of one message.
    """

    message: int
    offset: int
    text: str

    @property
    def end(self) -> int:
        """The number of characters of the text up to the end of this piece."""
        return self.offset + len(self.text)

    def after(self, length: int) -> str:
        """Return the part of this piece after the first `length` characters of the text."""
        return self.text[max(length - self.offset, 0) :]


def stream_key(live: Live) -> Hashable:
    """Return a key that is equal for news of the same text or of the same state.

    Return None if the news neither continues a text nor replaces a state.
    """
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
    """Return the news in the form in which the parent of the subagent `name` publishes it."""
    match live:
        case SubagentDelta(node, news):
            return SubagentDelta(f"{name}/{node}", news)
        case ChildMoved(node, agent, title, steps, tokens, cost, label):
            address = f"{name}/{node}" if node else name
            return ChildMoved(address, agent, title, steps, tokens, cost, label)
        case PortsChanged():
            return live  # it is about the workspace
        case _:
            return SubagentDelta(name, live)
