"""News for whoever is watching right now. Never recorded; losing it loses nothing.

Whatever of this matters is told again, whole, by an event.
"""

from typing import TypeAlias

from msgspec import Struct


class TextCame(Struct, frozen=True, tag="text_delta"):
    """A piece of the answer under way."""

    text: str


class ThinkingCame(Struct, frozen=True, tag="thinking_delta"):
    """A piece of what the model thinks aloud."""

    text: str


class CallComing(Struct, frozen=True, tag="call_coming"):
    """The model has begun to write a call of this tool."""

    name: str


class Progress(Struct, frozen=True, tag="tool_progress"):
    """A piece of what a running call prints."""

    call_id: str
    text: str


class Waiting(Struct, frozen=True, tag="retry"):
    """Nothing comes yet, and why; it is asked again in `seconds`, if that is not 0."""

    seconds: float
    reason: str


class ChildMoved(Struct, frozen=True, tag="child_moved"):
    """How far a child is: its answers, tokens and cost so far, and what it does now.

    `node` is its address below whoever is watched: "child-1", "child-1/child-2". The cost,
    in US dollars, is None where a price is not known.
    """

    node: str
    agent: str
    title: str
    steps: int
    tokens: int
    cost: float | None
    label: str


Piece: TypeAlias = TextCame | ThinkingCame | CallComing | Progress | Waiting


class Within(Struct, frozen=True, tag="within"):
    """A piece of news from the child `node`."""

    node: str
    live: Piece


Live: TypeAlias = Piece | ChildMoved | Within


def from_child(name: str, live: Live) -> Live:
    """The same news, as the parent of the child `name` tells it."""
    match live:
        case Within(node, piece):
            return Within(f"{name}/{node}", piece)
        case ChildMoved(node, agent, title, steps, tokens, cost, label):
            here = f"{name}/{node}" if node else name
            return ChildMoved(here, agent, title, steps, tokens, cost, label)
        case _:
            return Within(name, live)
