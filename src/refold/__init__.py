"""refold: an agent whose session is a fold of its journal.

Everything a program needs stands here by name; what is not here may change.
Names are loaded when they are first used, so that `refold --version` and a
small script pay only for what they use.
"""

from importlib import import_module

__version__ = "0.1.0"

TYPE_CHECKING = False  # as checkers read it, without the import of typing

if TYPE_CHECKING:
    from refold.errors import (
        BadInput,
        JournalError,
        ProviderError,
        RefoldError,
        ToolFailed,
    )
    from refold.journal import events
    from refold.journal.events import Entry
    from refold.journal.frame import Frame
    from refold.library.agent import Agent
    from refold.library.answering import Question
    from refold.library.conversation import Result, Session
    from refold.tools.contract import Reply, Tool, tool
    from refold.values.budget import Budget
    from refold.values.control import Final
    from refold.values.live import Progress, TextCame, ThinkingCame
    from refold.values.shown import Checklist, Diff, Note, Output
    from refold.values.todos import Todo
    from refold.values.tools import Effect
    from refold.values.usage import Usage

_WHERE = {
    "Agent": "library.agent", "Session": "library.conversation",
    "Result": "library.conversation", "Question": "library.answering",
    "tool": "tools.contract", "Tool": "tools.contract", "Reply": "tools.contract",
    "Effect": "values.tools", "Usage": "values.usage", "Final": "values.control",
    "Checklist": "values.shown", "Todo": "values.todos", "Budget": "values.budget",
    "Diff": "values.shown", "Note": "values.shown", "Output": "values.shown",
    "TextCame": "values.live", "ThinkingCame": "values.live", "Progress": "values.live",
    "RefoldError": "errors", "BadInput": "errors", "ProviderError": "errors",
    "JournalError": "errors", "ToolFailed": "errors",
    "Frame": "journal.frame", "Entry": "journal.events",
}  # fmt: skip

__all__ = [
    "Agent", "BadInput", "Budget", "Checklist", "Diff", "Effect", "Entry", "Final", "Frame", "JournalError",
    "Note", "Output", "Progress", "ProviderError", "Question", "RefoldError", "Reply",
    "Result", "Session", "TextCame", "ThinkingCame", "Todo", "Tool", "ToolFailed", "Usage",
    "events", "tool",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "events":  # a module: one class for each thing that can happen
        return import_module("refold.journal.events")
    if name not in _WHERE:
        raise AttributeError(f"refold has no {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"refold.{_WHERE[name]}"), name)
