"""Words that all documents have in common: who spoke, what became of a call, what it was given. Pure."""

from collections.abc import Iterator, Mapping

import msgspec

from refold.values.messages import ToolCall
from refold.values.shown import Output
from refold.views.counts import duration
from refold.views.screen.blocks import Called, Stage

_STAGES: Mapping[Stage, str] = {
    "called": "not begun",
    "asked": "waits for a person",
    "running": "not ended",
    "done": "done",
    "failed": "failed",
    "refused": "refused",
    "stopped": "stopped",
    "unknown": "end not known",
}
_MOMENT = 0.1  # seconds
_WHO: Mapping[str, str] = {
    "person": "Person",
    "parent": "The agent above",
    "shell": "Shell",
}


def who(sender: str) -> str:
    """Whose words these are."""
    return _WHO.get(sender, sender)


def came_to(block: Called) -> str:
    """What became of a call. That a command failed is known by its exit code alone."""
    for part in block.shown:
        if block.stage == "done" and isinstance(part, Output) and part.code != 0:
            return "ended early" if part.code is None else f"exit code {part.code}"
    return _STAGES[block.stage]


def took(block: Called) -> str:
    """How long it was at work, where that is worth a word."""
    if not (block.began and block.ended) or block.ended - block.began < _MOMENT:
        return ""
    return duration(block.ended - block.began)


def given(call: ToolCall) -> Iterator[tuple[str, str, bool]]:
    """Each argument: its name, its value, and whether that is text and not JSON."""
    try:
        found = msgspec.json.decode(call.arguments, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        yield "arguments", bytes(call.arguments).decode(errors="replace"), True
        return
    for name, value in found.items():
        if isinstance(value, str):
            yield name, value, True
        else:
            yield name, msgspec.json.format(msgspec.json.encode(value)).decode(), False
