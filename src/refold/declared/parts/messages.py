"""The conversation of a generated program, in types that fit every API."""

import datetime
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refold.declared.parts.settings import SYSTEM_PROMPT


class BackendError(Exception):
    """Raised if there is no response. The text explains the reason to the user."""


@dataclass
class Call:
    """A tool call of the model. `mistake` says why the call is invalid, or is ""."""

    id: str
    name: str
    arguments: dict[str, Any]
    mistake: str = ""


@dataclass
class CallResult:
    """The result of a call, or the reason why it failed."""

    call: Call
    text: str
    failed: bool = False


@dataclass
class Message:
    """A message with the role "user", "assistant", "tool" (it has results) or "note".

    A note stands for messages that are not sent.
    """

    role: str
    text: str = ""
    calls: list[Call] = field(default_factory=list[Call])
    results: list[CallResult] = field(default_factory=list[CallResult])


@dataclass
class Response:
    """A model's response: its message, the text for the user, and the tokens used."""

    message: Message
    shown: str
    tokens_in: int = 0
    tokens_out: int = 0


def system_prompt() -> str:
    """Return the instructions for the model, with the working directory and the date."""
    today = datetime.date.today().isoformat()
    return f"{SYSTEM_PROMPT}\n\nYou work in: {Path.cwd()}\nToday: {today}"
