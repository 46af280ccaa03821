"""refold: a coding agent whose session state is computed from its journal.

Everything that a program needs is exported here; anything else may change. A name is imported
when it is first used, so that `refold --version` and a small script load only what they use.
"""

from importlib import import_module

from refold._version import __version__ as __version__

TYPE_CHECKING = False  # type checkers assume True; this avoids the import of typing

if TYPE_CHECKING:
    from refold.agents.profile import Profile
    from refold.client.agent import Agent
    from refold.client.questions import Question
    from refold.client.result import Result
    from refold.client.session import Session
    from refold.errors import (
        BadInput,
        JournalError,
        ProviderError,
        RefoldError,
        ToolFailed,
    )
    from refold.journal.events import kinds as events
    from refold.journal.events.kinds import Entry, Frame
    from refold.tools.contract import Context, Reply, Tool, tool
    from refold.values.control import Final, Todo
    from refold.values.display import Checklist, Diff, Note, Output
    from refold.values.live import Progress, TextCame, ThinkingCame
    from refold.values.tools import Effect
    from refold.values.usage import Budget, Usage

_MODULES = {
    "Agent": "client.agent", "Session": "client.session",
    "Result": "client.result", "Question": "client.questions",
    "Profile": "agents.profile", "Context": "tools.contract",
    "tool": "tools.contract", "Tool": "tools.contract", "Reply": "tools.contract",
    "Effect": "values.tools", "Usage": "values.usage", "Final": "values.control",
    "Checklist": "values.display", "Todo": "values.control", "Budget": "values.usage",
    "Diff": "values.display", "Note": "values.display", "Output": "values.display",
    "TextCame": "values.live", "ThinkingCame": "values.live", "Progress": "values.live",
    "RefoldError": "errors", "BadInput": "errors", "ProviderError": "errors",
    "JournalError": "errors", "ToolFailed": "errors",
    "Frame": "journal.events.kinds", "Entry": "journal.events.kinds",
}  # fmt: skip

__all__ = [
    "Agent", "BadInput", "Budget", "Checklist", "Context", "Diff", "Effect", "Entry", "Final", "Frame", "JournalError",
    "Note", "Output", "Profile", "Progress", "ProviderError", "Question", "RefoldError", "Reply",
    "Result", "Session", "TextCame", "ThinkingCame", "Todo", "Tool", "ToolFailed", "Usage",
    "events", "tool",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "events":  # a module with one class for each kind of event
        return import_module("refold.journal.events.kinds")
    if name not in _MODULES:
        raise AttributeError(f"refold has no {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"refold.{_MODULES[name]}"), name)
