"""A session's conversation in a few lines of text, for tests that compare it whole."""

from refold.journal.state.fold import View
from refold.values.messages import Image, Part, Text, Thinking, ToolCall, ToolResult

_MARKS = {"user": "›", "assistant": "‹", "tool": "·"}


def talked(view: View) -> str:
    """One part of a message a line: › heard, ‹ answered, · result."""
    said = (spoken.message for spoken in view.conversation.messages)
    return "\n".join(f"{_MARKS[m.role]} {_words(p)}" for m in said for p in m.parts)


def _words(part: Part) -> str:
    match part:
        case Text(text):
            return text
        case Thinking(text):
            return f"({text})"
        case ToolCall(_, name, arguments):
            return f"{name} {bytes(arguments).decode()}"
        case Image(_, kind, name):
            return f"[picture {name or kind}]"
        case ToolResult(_, text, failed):
            return f"failed: {text}" if failed else text
