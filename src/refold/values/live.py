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


Live: TypeAlias = TextCame | ThinkingCame | CallComing | Progress | Waiting
