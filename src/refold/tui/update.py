"""Updates the state by a message, and returns the commands that it causes. Pure.

A key goes to the topmost part of the screen: a question or a list (`overlays`), the search,
the focused transcript (`navigation`) or panel, otherwise the input (`composer`).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec.structs import replace

from refold.client.protocol import Interrupt, MoveToBackground
from refold.tui import composer as inputs
from refold.tui.editing import insert_text
from refold.tui.keys import DESCRIBED_KEYS, is_showing_keys, toggle_keys
from refold.tui.messages import (
    Answer,
    Asked,
    AskedToPick,
    BoardRead,
    Command,
    Complete,
    Copied,
    CycleMode,
    DraftLeft,
    Edited,
    EditInEditor,
    EditQueued,
    FactsChanged,
    Follow,
    ImagePasted,
    ImagesMeasured,
    Key,
    Loaded,
    LoadPalette,
    Matched,
    Message,
    Mouse,
    News,
    Offered,
    OutputLoaded,
    OutputsRead,
    PaletteLoaded,
    PanelName,
    Paste,
    PasteImage,
    Quit,
    Remember,
    Remembered,
    Repaint,
    Resized,
    RowsPrinted,
    RunCommand,
    Send,
    ShellEnded,
    ShellShown,
    Submit,
    Suspend,
    Tick,
    TranscriptLoaded,
    Typed,
    Unqueued,
    ViKeys,
    WakeAfter,
    Watch,
    Withdrawn,
    Woken,
)
from refold.tui.model import (
    Dialog,
    Model,
    OpenPicker,
    Overlay,
    TextSearch,
    Updated,
)
from refold.tui.navigation import (
    move_selection,
    press_search_key,
    press_transcript_key,
    scroll_transcript,
    search,
    shell_key,
    use_mouse,
)
from refold.tui.overlays import (
    add_matches,
    add_question,
    press_dialog_key,
    press_menu_key,
    press_picker_key,
    type_at_menu,
    type_in_dialog,
    update_picker,
    with_next_question,
    withdraw_question,
)
from refold.tui.panel_keys import open_panel, press_panel_key, with_board
from refold.tui.panels import PANEL_TITLES
from refold.tui.session_news import (
    add_loaded,
    add_news,
    add_output,
    show_watched,
    store_draft,
    with_facts,
    with_shell_output,
)
from refold.tui.text_field import field_of
from refold.tui.transcript import CommandRows, with_items, with_sizes
from refold.tui.view import divide_screen
from refold.views.picker import with_query
from refold.views.question_keys import CALM_SECONDS, Menu
from refold.views.screen.blocks import CONTINUED_BY_ENTER
from refold.views.styled import Line

TWICE_SECONDS = 2.0  # in which a second Ctrl+C or Esc means more


def update(model: Model, message: Message) -> Updated:
    model = replace(model, clock=max(model.clock, getattr(message, "at", 0.0)))
    new, commands = _HANDLERS[type(message)](model, message)
    new = with_next_question(new)
    if _question_timing(new) and _question_timing(new) != _question_timing(model):
        commands = (*commands, WakeAfter(CALM_SECONDS))
    if _panel_to_follow(new) != _panel_to_follow(model):
        _, panel = _panel_to_follow(new)
        commands = (*commands, Follow(panel))
    if model.watching and model.watching.node and not (new.watching and new.watching.node):
        commands = (*commands, Watch(""))
    if new.screen.view.turn.seq and not model.screen.view.turn.seq:
        stop: tuple[Command, ...] = (Send(Interrupt()),) if new.stops_next else ()
        return replace(new, sent_at=-math.inf, stops_next=False), (*commands, *stop)
    return new, commands


def _question_timing(model: Model) -> tuple[int, float] | None:
    """Return the question whose keys depend on the time, and the time of the last key."""
    if not isinstance(model.overlay, Dialog) or model.overlay.menu is None:
        return None
    return model.overlay.asked.number, model.typed_at


def _panel_to_follow(model: Model) -> tuple[str, PanelName]:
    """Return the session and the panel to read again while it is open, or two ""."""
    if model.panel not in ("tasks", "background"):
        return "", ""
    return model.facts.session, model.panel


def _pure(change: Callable[[Model, Any], Model]) -> Callable[[Model, Any], Updated]:
    """Wrap the handler of a message that causes no command."""
    return lambda model, message: (change(model, message), ())


def _add_rows(model: Model, rows: tuple[Line, ...], *, begins: bool = False) -> Model:
    transcript = with_items(model.transcript, (CommandRows(rows, begins),))
    return replace(model, transcript=transcript)


def _with_offers(model: Model, message: Offered) -> Model:
    composer = inputs.with_offers(model.composer, message.before, message.offers)
    return replace(model, composer=composer)


def _with_history(model: Model, message: Remembered) -> Model:
    return replace(model, composer=replace(model.composer, history=message.inputs))


def _put_text(model: Model, text: str) -> Model:
    if isinstance(model.overlay, Dialog) and not model.overlay.asked.keys:
        return replace(model, overlay=replace(model.overlay, field=field_of(text)))
    return replace(model, composer=inputs.with_text(model.composer, text))


def _with_image(model: Model, message: ImagePasted) -> Model:
    composer = inputs.with_paste(model.composer, f"{message.label} ")
    return replace(model, composer=composer)


def _with_queued(model: Model, message: Unqueued) -> Model:
    typed = model.composer.field.whole  # what was typed since
    text = f"{message.text}\n{typed}" if typed else message.text
    return replace(model, composer=inputs.with_text(model.composer, text))


def _press_key(model: Model, message: Key) -> Updated:
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
    """Return True if the key means the same while this is in place of the input."""
    action = DESCRIBED_KEYS.get(key, "")
    if action in ("suspend", "redraw"):
        return True
    return isinstance(overlay, Dialog) and action in _QUESTION_KEYS


def _press_overlay_key(model: Model, overlay: Overlay, key: str, now: float) -> Updated:
    match overlay:
        case Dialog():
            return _press_question_key(model, overlay, key, now)
        case OpenPicker():
            return press_picker_key(replace(model, typed_at=now), overlay, key)
        case TextSearch():
            return press_search_key(replace(model, typed_at=now), overlay, key)


def _press_question_key(model: Model, dialog: Dialog, key: str, now: float) -> Updated:
    """Press a key at a question; panels and a watched subagent stay usable."""
    if model.focus == "panel" and key not in ("ctrl+c", "ctrl+d"):
        return press_panel_key(model, key)
    amends = dialog.menu is not None and dialog.menu.amends
    if key == "tab" and divide_screen(model).panel_height and not amends:
        return replace(model, focus="panel", panel_row=0), ()
    if key == "esc" and model.watching is not None:
        return replace(model, watching=None), ()
    if dialog.menu is None:
        return press_dialog_key(model, dialog, key)
    answered = press_menu_key(model, dialog, key, now)
    return _press_input_key(model, key, now) if answered is None else answered


def _type_text(model: Model, message: Typed) -> Updated:
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
    if model.focus == "panel":
        return press_panel_key(replace(model, typed_at=now), text)
    if dialog.menu is None:
        return type_in_dialog(model, dialog, text, now)
    (model, orders), rest = type_at_menu(model, dialog, text, now)
    return _compose(model, inputs.insert(model.composer, rest)) if rest else (model, orders)


def _paste(model: Model, message: Paste) -> Updated:
    match model.overlay:
        case Dialog() as dialog if dialog.menu is not None:
            pasted = type_at_menu(
                replace(model, hint=""), dialog, message.text, message.at, pasted=True
            )
            (model, commands), rest = pasted
            composer = inputs.with_paste(model.composer, rest)
            return _compose(model, composer) if rest else (model, commands)
        case _:
            return _paste_text(replace(model, hint="", typed_at=message.at), message.text)


def _paste_text(model: Model, text: str) -> Updated:
    match model.overlay:
        case Dialog(asked) as dialog if not asked.keys:
            text = text if asked.many else " ".join(text.split())
            field = insert_text(dialog.field, text)
            return replace(model, overlay=replace(dialog, field=field)), ()
        case TextSearch() as finding:
            return search(model, insert_text(finding.field, " ".join(text.split())).text)
        case None if not text:  # how some terminals paste an image
            return model, (PasteImage(),)
        case None:
            focused = replace(model, focus="input")
            return _compose(focused, inputs.with_paste(model.composer, text))
        case _:
            return model, ()


def _compose(model: Model, composer: inputs.Composer) -> Updated:
    """Set the input, and request completions for it."""
    model = replace(model, composer=composer)
    before = composer.before
    wants = composer.search is None and ("@" in before or before[:1] in ("/", "!"))
    return model, (Complete(before),) if wants else ()


def _run_action(model: Model, action: str, now: float) -> Updated:
    """Run the action of a key that does not depend on the focus."""
    match action:
        case "above" | "below":
            return move_selection(model, -1 if action == "above" else 1), ()
        case "find":
            return replace(model, overlay=TextSearch()), ()
        case "interrupt":
            return _press_ctrl_c(model, now)
        case "whole":
            whole = not model.transcript.whole
            shown_ = replace(model.transcript, whole=whole, flipped=frozenset[int]())
            return replace(model, transcript=shown_), ()
        case _ if action in _LOOKUP_COMMANDS:
            return model, (_LOOKUP_COMMANDS[action],)
        case _ if action in PANEL_TITLES or action == "panels":
            return open_panel(model, action), ()
        case _:
            return scroll_transcript(model, action)


def _press_ctrl_c(model: Model, now: float) -> Updated:
    """Ctrl+C: stop the turn; with nothing to stop, empty the input, or, twice, leave."""
    if _can_stop(model, now):
        return _stop_turn(model)
    twice = now - model.interrupted_at < TWICE_SECONDS
    model = replace(model, interrupted_at=now)
    if model.composer.field.text:
        composer = inputs.remember_input(model.composer, model.composer.field.whole)
        cleared = inputs.clear_field(composer)
        model = replace(model, composer=cleared, interrupted_at=-math.inf)
        return replace(model, hint="Cleared. ↑ restores it."), ()
    if twice:
        return model, (Quit(),)
    return replace(model, hint="Press Ctrl+C again to leave, or Ctrl+D."), ()


def _can_stop(model: Model, now: float) -> bool:
    """Return True if a turn runs and is not stopped, or a sent message is about to begin one."""
    turn = model.screen.view.turn
    return not turn.stopped if turn.seq else now - model.sent_at < TWICE_SECONDS


def _stop_turn(model: Model) -> Updated:
    """Stop the turn now, or as soon as it begins. The input does not change."""
    runs = bool(model.screen.view.turn.seq)
    model = replace(model, hint="Stopping the turn.", stops_next=not runs)
    return model, (Send(Interrupt()),) if runs else ()


def _press_input_key(model: Model, key: str, now: float) -> Updated:
    composer = model.composer
    model = replace(model, typed_at=now)
    early = _empty_input_commands(model, key)
    if not early and (taken := inputs.press_key(composer, key)) is not None:
        if key in ("enter", "esc") or inputs.is_same_place(taken, composer):
            return replace(model, composer=taken), ()
        return _compose(model, taken)
    match key:
        case "enter":
            return _submit(model, "now")
        case "ctrl+enter" | "alt+enter" if model.screen.view.turn.seq or key[0] == "c":
            return _submit(model, "next")
        case "alt+enter":
            return _compose(model, inputs.insert(composer, "\n"))
        case "tab" if divide_screen(model).panel_height:
            return replace(model, focus="panel", panel_row=0), ()
        case "esc":
            return _press_escape(model, now)
        case _:
            return model, early or _lookup_commands(key, composer)


def _empty_input_commands(model: Model, key: str) -> tuple[Command, ...]:
    """↑ takes back a queued message, Ctrl+B moves a command to the background."""
    composer, view = model.composer, model.screen.view
    if composer.field.text or composer.at >= 0:
        return ()
    if key == "ctrl+b" and view.turn.seq:
        return (Send(MoveToBackground()),)
    if key != "up" or not view.message_queue:
        return ()
    newest = view.message_queue[-1]
    return (EditQueued(newest.seq, newest.said.typed or newest.said.text),)


def _lookup_commands(key: str, composer: inputs.Composer) -> tuple[Command, ...]:
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
    """Esc: stop the turn; with nothing to stop, twice opens the rewind list."""
    if _can_stop(model, now):
        return _stop_turn(model)
    if model.anchor is not None:
        return replace(model, anchor=None), ()
    if model.panel:
        return replace(model, panel=""), ()
    if now - model.escaped_at < TWICE_SECONDS and not model.composer.field.text:
        return replace(model, escaped_at=-math.inf), (RunCommand("/rewind"),)
    return replace(model, escaped_at=now, hint="Esc again: rewind."), ()


def _submit(model: Model, when: Literal["now", "next"]) -> Updated:
    text = model.composer.field.whole
    if not text.strip():
        stopped = model.screen.view.turn.outcome in CONTINUED_BY_ENTER
        if stopped and not model.screen.view.turn.seq:
            return model, (RunCommand("/continue"),)
        return model, ()
    composer = inputs.remember_input(model.composer, text)
    is_command = text.startswith(("/", "!", "#"))
    model = replace(
        model, composer=inputs.clear_field(composer), anchor=None, stops_next=False,
        sent_at=-math.inf if is_command else model.clock,
        sent_text=model.sent_text if is_command or model.screen.view.turn.seq else text,
    )  # fmt: skip
    orders = (Remember(text), Submit(text, when))
    match model.overlay:
        case Dialog(asked, menu=Menu(send_leaves=True)):
            return replace(model, overlay=None), (*orders, Answer(asked.number, key="esc"))
        case _:
            return model, orders


_LOOKUP_COMMANDS: Mapping[str, Command] = {
    "palette": LoadPalette(), "mode": CycleMode(), "suspend": Suspend(), "redraw": Repaint(),
}  # fmt: skip
_QUESTION_KEYS = frozenset(
    {"scroll_up", "scroll_down", "top", "end", "whole", "panels", *PANEL_TITLES}
)
_HANDLERS: Mapping[type, Callable[[Model, Any], Updated]] = {
    Key: _press_key,
    Typed: _type_text,
    Paste: _paste,
    Mouse: use_mouse,
    News: add_news,
    Loaded: add_loaded,
    Resized: _pure(lambda model, m: replace(model, width=m.width, height=m.height)),
    Tick: _pure(lambda model, m: replace(model, now=m.now)),
    FactsChanged: _pure(with_facts),
    DraftLeft: _pure(store_draft),
    RowsPrinted: _pure(lambda model, m: _add_rows(model, m.rows, begins=m.begins)),
    Asked: _pure(add_question),
    AskedToPick: _pure(
        lambda model, m: replace(model, overlay=OpenPicker(m.number, m.picker))
    ),
    Withdrawn: _pure(lambda model, m: withdraw_question(model, m.number)),
    Matched: _pure(add_matches),
    Offered: _pure(_with_offers),
    PaletteLoaded: _pure(
        lambda model, m: replace(model, overlay=model.overlay or OpenPicker(0, m.picker))
    ),
    TranscriptLoaded: _pure(show_watched),
    OutputLoaded: _pure(add_output),
    BoardRead: _pure(with_board),
    OutputsRead: _pure(
        lambda model, m: replace(model, printed=m.lines, now=m.now or model.now)
    ),
    Edited: _pure(lambda model, m: _put_text(model, m.text)),
    ImagePasted: _pure(_with_image),
    ImagesMeasured: _pure(
        lambda model, m: replace(model, transcript=with_sizes(model.transcript, m.sizes))
    ),
    ShellShown: _pure(with_shell_output),
    ShellEnded: _pure(with_shell_output),
    Copied: _pure(lambda model, m: replace(model, hint=m.hint)),
    Unqueued: _pure(_with_queued),
    Remembered: _pure(_with_history),
    Woken: _pure(lambda model, m: model),
    ViKeys: _pure(
        lambda model, m: replace(model, composer=inputs.with_vi_keys(model.composer, m.on))
    ),
}
