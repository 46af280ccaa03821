"""Handles the keys of panels: opens a panel, moves in it, acts on its selected entry. Pure."""

from msgspec.structs import replace

from refold.client.protocol import StopBackground, StopChild
from refold.tui.messages import PANEL_NAMES, BoardRead, Send, Watch
from refold.tui.model import Model, Updated
from refold.tui.panels import is_empty, panel_entries
from refold.tui.view import divide_screen


def open_panel(model: Model, name: str) -> Model:
    """Open this panel, or close it if it is open.

    The name "panels" opens the next panel that is not empty; after the last one, it closes the
    panel.
    """
    if name == "panels":
        first = PANEL_NAMES.index(model.panel) + 1 if model.panel else 0
        later = (replace(model, panel=later_name) for later_name in PANEL_NAMES[first:])
        panel = next((other.panel for other in later if not is_empty(other)), "")
    elif name == model.panel:
        panel = ""
    else:
        panel = next(item for item in PANEL_NAMES if item == name)  # `name` is any string
    return replace(model, panel=panel, panel_row=0, focus="input")


def with_board(model: Model, board: BoardRead) -> Model:
    """Show the tasks of the board. If the open panel is empty then, focus the input."""
    model = replace(model, board=board)
    return replace(model, focus="input") if is_empty(model) else model


def press_panel_key(model: Model, key: str) -> Updated:
    """Press a key while the panel has the focus. Keys select, open, stop, or leave.

    In the panel of changes, Enter selects the next file, whose diff is then shown.
    """
    layout = divide_screen(model)
    entries = panel_entries(model, layout.panel_width - 2)
    selected_id = entries[model.panel_row].id if model.panel_row < len(entries) else ""
    # the subagent or command that can be shown or stopped, or ""
    target = selected_id if model.panel in ("agents", "background") else ""
    match key:
        case "up" | "down" | "k" | "j":
            step = -1 if key in ("up", "k") else 1
            row = max(0, min(model.panel_row + step, len(entries) - 1))
            return replace(model, panel_row=row), ()
        case "enter" if model.panel == "changes":
            next_row = (model.panel_row + 1) % max(len(entries), 1)
            return replace(model, panel_row=next_row), ()
        case "enter" if target:
            return replace(model, focus="input"), (Watch(target),)
        case "x" if target:
            stop = StopChild if model.panel == "agents" else StopBackground
            return replace(model, hint=f"Stopping {target}."), (Send(stop(target)),)
        case "tab":
            return replace(model, focus="input"), ()
        case "esc":
            return replace(model, panel="", focus="input"), ()
        case _:
            return model, ()
