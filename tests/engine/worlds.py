"""Replaces fields of a world, and renders a conversation as a few lines of text."""

from typing import Any

from msgspec.structs import replace

from refold.engine.world import World
from refold.journal.state.fold import View
from refold.values.messages import Image, Part, Text, Thinking, ToolCall, ToolResult

_PARTS = ("model", "prompt", "lineage")


def world_with(world: World, **options: Any) -> World:
    """Return `world` with these fields, of the world, its model, its prompt or its lineage."""
    for part in _PARTS:
        value = getattr(world, part)
        own = {
            name: options.pop(name) for name in value.__struct_fields__ if name in options
        }
        if own:
            world = replace(world, **{part: replace(value, **own)})
    return replace(world, **options)


_MARKS = {"user": "›", "assistant": "‹", "tool": "·"}


def render_conversation(view: View) -> str:
    """Render each part of a message as a line: › received, ‹ answered, · result."""
    messages = (spoken.message for spoken in view.conversation.messages)
    return "\n".join(f"{_MARKS[m.role]} {_words(p)}" for m in messages for p in m.parts)


def _words(part: Part) -> str:
    match part:
        case Text(text):
            return text
        case Thinking(text):
            return f"({text})"
        case ToolCall(_, name, arguments):
            return f"{name} {bytes(arguments).decode()}"
        case Image(_, kind, name):
            return f"[image {name or kind}]"
        case ToolResult(_, text, failed):
            return f"failed: {text}" if failed else text
