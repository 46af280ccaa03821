"""Updates the state after a key, typed text or a paste. Pure.

The topmost part of the screen gets the key or text: a question or a list (`overlays`), the
search, the focused transcript (`navigation`) or panel, or else the input (`composer`).
`update` handles all other messages.
"""

import math
from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

from refold.client.protocol import Interrupt, MoveToBackground
from refold.tui import composer as inputs
from refold.tui.editing import insert_text
from refold.tui.keys import DESCRIBED_KEYS, is_showing_keys, toggle_keys
from refold.tui.messages import (
    Answer,
    Command,
    Complete,
    CycleMode,
    EditInEditor,
    EditQueued,
    Key,
    LoadPalette,
    Paste,
    PasteImage,
    Quit,
    Remember,
    Repaint,
    RunCommand,
    Send,
    Submit,
    Suspend,
    Typed,
)
from refold.tui.model import Dialog, Model, OpenPicker, Overlay, TextSearch, Updated
from refold.tui.navigation import (
    move_selection,
    press_search_key,
    press_transcript_key,
    scroll_transcript,
    search,
    shell_key,
)
from refold.tui.overlays import (
    press_dialog_key,
    press_menu_key,
    press_picker_key,
    type_at_menu,
    type_in_dialog,
    update_picker,
)
from refold.tui.panel_keys import open_panel, press_panel_key
from refold.tui.panels import PANEL_TITLES
from refold.tui.view import divide_screen
from refold.views.picker import with_query
from refold.views.question_keys import Menu
from refold.views.screen.blocks import CONTINUED_BY_ENTER

TWICE_SECONDS = 2.0  # within which a second Ctrl+C or Esc has another meaning


def press_key(model: Model, message: Key) -> Updated:
    """Return the state after a key, and the commands that it causes."""
    model, key, now = replace(model, hint=""), message.name, message.at
    if model.overlay is not None and not _is_for_all(model.overlay, key):
        return _press_overlay_key(model, model.overlay, key, now)
    if (command := shell_key(model, key)) is not None:
        return model, (command,)
    if (action := DESCRIBED_KEYS.get(key)) is not None:
        return _run_action(model, action, now)
    if model.watching is not None and key == "esc":
        return replace(model, watching=None), ()
    match model.focus:
        case "transcript":
            return press_transcript_key(model, key)
        case "panel":
            return press_panel_key(model, key)
        case "input":
            return _press_input_key(model, key, now)


def _is_for_all(overlay: Overlay, key: str) -> bool:
    """Return whether the key has its usual meaning even while this overlay is open."""
    action = DESCRIBED_KEYS.get(key, "")
    if action in ("suspend", "redraw"):
        return True
    return isinstance(overlay, Dialog) and action in _QUESTION_KEYS


def _press_overlay_key(model: Model, overlay: Overlay, key: str, now: float) -> Updated:
    """Press a key at the open question, list or search."""
    match overlay:
        case Dialog():
            return _press_question_key(model, overlay, key, now)
        case OpenPicker():
            return press_picker_key(replace(model, typed_at=now), overlay, key)
        case TextSearch():
            return press_search_key(replace(model, typed_at=now), overlay, key)


def _press_question_key(model: Model, dialog: Dialog, key: str, now: float) -> Updated:
    """Press a key at a question. Keys for panels and the watched subagent still work."""
    if model.focus == "panel" and key not in ("ctrl+c", "ctrl+d"):
        return press_panel_key(model, key)
    amends = dialog.menu is not None and dialog.menu.amends
    if key == "tab" and divide_screen(model).panel_height and not amends:
        return replace(model, focus="panel", panel_row=0), ()
    if key == "esc" and model.watching is not None:
        return replace(model, watching=None), ()
    if dialog.menu is None:
        return press_dialog_key(model, dialog, key)
    updated = press_menu_key(model, dialog, key, now)
    return _press_input_key(model, key, now) if updated is None else updated


def type_text(model: Model, message: Typed) -> Updated:
    """Return the state after typed text, and the commands that it causes."""
    model, text, now = replace(model, hint=""), message.text, message.at
    match model.overlay:
        case Dialog() as dialog:
            return _type_at_question(model, dialog, text, now)
        case OpenPicker() as choosing:
            model = replace(model, typed_at=now)
            picker = with_query(choosing.picker, choosing.picker.query + text)
            return update_picker(model, choosing, picker)
        case TextSearch() as finding:
            words = insert_text(finding.field, text).text
            return search(replace(model, typed_at=now), words)
        case None:
            pass
    match model.focus:
        case "transcript":
            return press_transcript_key(model, text)
        case "panel":
            return press_panel_key(replace(model, typed_at=now), text)
        case "input" if text == "?" and not model.composer.field.text:
            return toggle_keys(model), ()
        case "input" if text == "v" and inputs.expects_vi_command(model.composer):
            return model, (EditInEditor(model.composer.field.whole),)
        case "input":
            watching = None if is_showing_keys(model) else model.watching
            model = replace(model, typed_at=now, watching=watching)
            return _compose(model, inputs.insert(model.composer, text))


def _type_at_question(model: Model, dialog: Dialog, text: str, now: float) -> Updated:
    """Type at a question. Text that its menu does not take is added to the input."""
    if model.focus == "panel":
        return press_panel_key(replace(model, typed_at=now), text)
    if dialog.menu is None:
        return type_in_dialog(model, dialog, text, now)
    updated, rest = type_at_menu(model, dialog, text, now)
    if not rest:
        return updated
    model, _ = updated
    return _compose(model, inputs.insert(model.composer, rest))


def paste(model: Model, message: Paste) -> Updated:
    """Return the state after a paste, and the commands that it causes."""
    match model.overlay:
        case Dialog() as dialog if dialog.menu is not None:
            model = replace(model, hint="")
            updated, rest = type_at_menu(
                model, dialog, message.text, message.at, pasted=True
            )
            if not rest:
                return updated
            model, _ = updated
            return _compose(model, inputs.with_paste(model.composer, rest))
        case _:
            return _paste_text(replace(model, hint="", typed_at=message.at), message.text)


def _paste_text(model: Model, text: str) -> Updated:
    """Paste into the open field, or else into the input. Other overlays ignore the text."""
    match model.overlay:
        case Dialog(asked) as dialog if not asked.keys:
            text = text if asked.many else " ".join(text.split())
            field = insert_text(dialog.field, text)
            return replace(model, overlay=replace(dialog, field=field)), ()
        case TextSearch() as finding:
            return search(model, insert_text(finding.field, " ".join(text.split())).text)
        case None if not text:  # the way in which some terminals paste an image
            return model, (PasteImage(),)
        case None:
            focused = replace(model, focus="input")
            return _compose(focused, inputs.with_paste(model.composer, text))
        case _:
            return model, ()


def _compose(model: Model, composer: inputs.Composer) -> Updated:
    """Replace the input, and request completions if it contains a name that can be completed."""
    model = replace(model, composer=composer)
    before = composer.before
    has_name = "@" in before or before.startswith(("/", "!"))
    if has_name and composer.search is None:
        return model, (Complete(before),)
    return model, ()


def _run_action(model: Model, action: str, now: float) -> Updated:
    """Perform an action whose key has the same meaning on the whole screen."""
    match action:
        case "above" | "below":
            return move_selection(model, -1 if action == "above" else 1), ()
        case "find":
            return replace(model, overlay=TextSearch()), ()
        case "interrupt":
            return _press_ctrl_c(model, now)
        case "whole":
            whole = not model.transcript.whole
            transcript = replace(model.transcript, whole=whole, flipped=frozenset[int]())
            return replace(model, transcript=transcript), ()
        case _ if action in _LOOKUP_COMMANDS:
            return model, (_LOOKUP_COMMANDS[action],)
        case _ if action in PANEL_TITLES or action == "panels":
            return open_panel(model, action), ()
        case _:
            return scroll_transcript(model, action)


def _press_ctrl_c(model: Model, now: float) -> Updated:
    """Stop the turn, or clear the input, or leave.

    The input is cleared if no turn can be stopped. If the input is empty, too, a second press
    leaves.
    """
    if _can_stop(model, now):
        return _stop_turn(model)
    is_second_press = now - model.interrupted_at < TWICE_SECONDS
    model = replace(model, interrupted_at=now)
    if model.composer.field.text:
        composer = inputs.remember_input(model.composer, model.composer.field.whole)
        cleared = inputs.clear_field(composer)
        model = replace(model, composer=cleared, interrupted_at=-math.inf)
        return replace(model, hint="Cleared. ↑ restores it."), ()
    if is_second_press:
        return model, (Quit(),)
    return replace(model, hint="Press Ctrl+C again to leave, or Ctrl+D."), ()


def _can_stop(model: Model, now: float) -> bool:
    """Return whether a turn runs and was not stopped, or will begin by a message just sent."""
    turn = model.screen.view.turn
    if turn.seq:
        return not turn.stopped
    return now - model.sent_at < TWICE_SECONDS


def _stop_turn(model: Model) -> Updated:
    """Stop the turn now, or as soon as it begins. The input does not change."""
    is_running = bool(model.screen.view.turn.seq)
    model = replace(model, hint="Stopping the turn.", stops_next=not is_running)
    return model, ((Send(Interrupt()),) if is_running else ())


def _press_input_key(model: Model, key: str, now: float) -> Updated:
    """Press a key in the input. Return the new state, and the commands that the key causes."""
    composer = model.composer
    model = replace(model, typed_at=now)
    commands = _empty_input_commands(model, key)
    new_composer = None if commands else inputs.press_key(composer, key)
    if new_composer is not None:
        # After Enter and Esc, which close the completions, none are requested.
        if key in ("enter", "esc") or inputs.is_same_place(new_composer, composer):
            return replace(model, composer=new_composer), ()
        return _compose(model, new_composer)
    has_turn = bool(model.screen.view.turn.seq)
    match key:
        case "enter":
            return _submit(model, "now")
        case "alt+enter" if not has_turn:
            return _compose(model, inputs.insert(composer, "\n"))
        case "ctrl+enter" | "alt+enter":
            return _submit(model, "next")
        case "tab" if divide_screen(model).panel_height:
            return replace(model, focus="panel", panel_row=0), ()
        case "esc":
            return _press_escape(model, now)
        case _:
            return model, commands or _lookup_commands(key, composer)


def _empty_input_commands(model: Model, key: str) -> tuple[Command, ...]:
    """Return the commands of keys that have a meaning only if the input is empty.

    ↑ withdraws the newest queued message to edit it; Ctrl+B moves the running command to the
    background.
    """
    composer, view = model.composer, model.screen.view
    is_at_history_entry = composer.at >= 0
    if composer.field.text or is_at_history_entry:
        return ()
    if key == "ctrl+b" and view.turn.seq:
        return (Send(MoveToBackground()),)
    if key != "up" or not view.message_queue:
        return ()
    newest = view.message_queue[-1]
    return (EditQueued(newest.seq, newest.said.typed or newest.said.text),)


def _lookup_commands(key: str, composer: inputs.Composer) -> tuple[Command, ...]:
    """Return the command of a key that the input itself does not use; () for other keys."""
    match key:
        case "tab":
            return (Complete(composer.before),)
        case "ctrl+v":
            return (PasteImage(),)
        case "ctrl+g":
            return (EditInEditor(composer.field.whole),)
        case "ctrl+d" if not composer.field.text:
            return (Quit(),)
        case _:
            return ()


def _press_escape(model: Model, now: float) -> Updated:
    """Stop the turn, or show the end of the transcript, or close the panel.

    Only the first of these that is possible is done. If none is possible and the input is
    empty, a second Esc runs /rewind.
    """
    if _can_stop(model, now):
        return _stop_turn(model)
    if model.anchor is not None:
        return replace(model, anchor=None), ()
    if model.panel:
        return replace(model, panel=""), ()
    if model.composer.field.text:
        return model, ()
    if now - model.escaped_at < TWICE_SECONDS:
        return replace(model, escaped_at=-math.inf), (RunCommand("/rewind"),)
    return replace(model, escaped_at=now, hint="Esc again: rewind."), ()


def _submit(model: Model, when: Literal["now", "next"]) -> Updated:
    """Send the input as a message or command; if it is empty, continue a turn that has stopped."""
    text = model.composer.field.whole
    turn = model.screen.view.turn
    if not text.strip():
        is_stopped = turn.outcome in CONTINUED_BY_ENTER and not turn.seq
        return model, ((RunCommand("/continue"),) if is_stopped else ())
    composer = inputs.remember_input(model.composer, text)
    is_command = text.startswith(("/", "!", "#"))
    begins_turn = not is_command and not turn.seq
    model = replace(
        model, composer=inputs.clear_field(composer), anchor=None, stops_next=False,
        sent_at=-math.inf if is_command else model.clock,
        sent_text=text if begins_turn else model.sent_text,
    )  # fmt: skip
    commands = (Remember(text), Submit(text, when))
    match model.overlay:
        case Dialog(asked, menu=Menu(send_leaves=True)):
            leave = Answer(asked.number, key="esc")
            return replace(model, overlay=None), (*commands, leave)
        case _:
            return model, commands


_LOOKUP_COMMANDS: Mapping[str, Command] = {
    "palette": LoadPalette(), "mode": CycleMode(), "suspend": Suspend(), "redraw": Repaint(),
}  # fmt: skip
_QUESTION_KEYS = frozenset(
    {"scroll_up", "scroll_down", "top", "end", "whole", "panels", *PANEL_TITLES}
)
