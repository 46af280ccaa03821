"""The system prompt of a generated program."""

import datetime
from pathlib import Path

from refold.declared.parts.settings import SYSTEM_PROMPT


def system_prompt() -> str:
    """The instructions, and what the model cannot know by itself."""
    today = datetime.date.today().isoformat()
    return f"{SYSTEM_PROMPT}\n\nYou work in: {Path.cwd()}\nToday: {today}"
