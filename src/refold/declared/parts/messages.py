"""The conversation of a generated program, as values that no API prescribes, and its system prompt."""

import datetime
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refold.declared.parts.settings import SYSTEM_PROMPT


class BackendError(Exception):
    """There is no response. The text says why, for the user."""


@dataclass
class Call:
    """A tool call of the model. `mistake` says why it cannot be made, if it cannot."""

    id: str
    name: str
    arguments: dict[str, Any]
    mistake: str = ""


@dataclass
class CallResult:
    """What a call has returned, or why it failed."""

    call: Call
    text: str
    failed: bool = False


@dataclass
class Message:
    """One message. Its role is "user", "assistant", "tool" (with results), or "note"
    (in place of messages that are left out).
    """

    role: str
    text: str = ""
    calls: list[Call] = field(default_factory=list[Call])
    results: list[CallResult] = field(default_factory=list[CallResult])


@dataclass
class Response:
    """A response: its message, the part of it for the user, and the tokens it took."""

    message: Message
    shown: str
    tokens_in: int = 0
    tokens_out: int = 0


def system_prompt() -> str:
    """The instructions, and facts that the model cannot know, such as the date."""
    today = datetime.date.today().isoformat()
    return f"{SYSTEM_PROMPT}\n\nYou work in: {Path.cwd()}\nToday: {today}"
