"""The keys that mean the same on the whole screen, and the list of keys that `?` shows. Pure."""

from collections.abc import Mapping

from msgspec.structs import replace

from refold.tui.model import Model, WatchedNode
from refold.tui.transcript import Anchor, CommandRows, Transcript, with_items
from refold.views.styled import Line
from refold.views.wrap import truncate

DESCRIBED_KEYS: Mapping[str, str] = {
    "pageup": "page_up",
    "pagedown": "page_down",
    "shift+up": "scroll_up",
    "shift+down": "scroll_down",
    "ctrl+home": "top",
    "ctrl+end": "end",
    "ctrl+o": "whole",
    "ctrl+p": "palette",
    "ctrl+s": "find",
    "shift+tab": "mode",
    "ctrl+l": "redraw",
    "ctrl+z": "suspend",
    "ctrl+up": "above",
    "ctrl+down": "below",
    "ctrl+c": "interrupt",
    "ctrl+t": "todos",
    "f2": "panels",
    "f3": "agents",
    "f4": "changes",
    "f5": "cost",
    "f6": "plan",
    "f7": "tasks",
    "f8": "background",
}

_KEY_LIST: tuple[tuple[str, str], ...] = (
    ("Enter", "send; while it works: for the next step"),
    ("Alt+Enter", "a new line; while it works: send after this turn"),
    ("Ctrl+J", "a new line; Shift+Enter too, where the terminal tells it from Enter"),
    ("↑", "earlier inputs; while it works: edit the message that waits"),
    ("Esc", "stop the turn; twice with nothing to stop: rewind"),
    ("Ctrl+C", "stop the turn, else empty the input, or twice: leave"),
    ("Shift+Tab", "the next permission mode"),
    ("Ctrl+P", "everything: commands, sessions, models, agents, files"),
    ("/ @ ! #", "a command, a file, a shell command, a note"),
    ("PgUp PgDn", "scroll; Shift+↑↓ by row; Ctrl+Home, Ctrl+End"),
    ("Ctrl+↑ Ctrl+↓", "select a block: Enter opens it, y copies it, c its code"),
    ("Ctrl+O", "open or fold all blocks"),
    ("Ctrl+S", "search in the transcript"),
    ("Ctrl+R", "search in earlier inputs"),
    ("Ctrl+G", "write the input in your editor"),
    ("Ctrl+V", "the image that is on the clipboard"),
    ("Ctrl+B", "with nothing typed: move the running command to the background"),
    ("Ctrl+T", "the todo list"),
    ("F2", "the next panel; Tab: keys go to the panel"),
    ("F3 F4 F5 F6", "subagents, changed files, context and cost, the plan"),
    ("F7 F8", "the task board, background commands"),
    ("Ctrl+L", "redraw the screen"),
    ("Ctrl+Z", "suspend"),
)


def toggle_keys(model: Model) -> Model:
    """Show the list of keys in place of the transcript, or close it."""
    if is_showing_keys(model):
        return replace(model, watching=None)
    rows = CommandRows(_key_list_rows(model.width))
    keys = WatchedNode("", "Keys", with_items(Transcript(), (rows,)), Anchor(0))
    return replace(model, watching=keys)


def is_showing_keys(model: Model) -> bool:
    """Return whether the keys are listed. The list is a watched node without an address."""
    return model.watching is not None and not model.watching.node


def _key_list_rows(width: int) -> tuple[Line, ...]:
    column_width = max(len(name) for name, _ in _KEY_LIST)
    return tuple(
        truncate((("accent", f"  {name:<{column_width}}  "), ("plain", meaning)), width)
        for name, meaning in _KEY_LIST
    )
