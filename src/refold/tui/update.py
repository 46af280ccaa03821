"""What becomes of the state when something happens, and what is to be done about it. Pure.

Keys go to the uppermost thing: a question or a list (`overlays`), the search, the transcript
(`navigation`) or the panel that has the focus, and else the input (`composer`).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec.structs import replace

from refold.client.protocol import Interrupt, MoveToBackground, StopBackground, StopChild
from refold.tui import composer as inputs
from refold.tui.editing import inserted
from refold.tui.keys import KEYS, keys_rows
from refold.tui.messages import (
    PANELS,
    Answer,
    Asked,
    AskedToPick,
    BoardRead,
    Command,
    Complete,
    CycleMode,
    DraftLeft,
    Edited,
    EditOutside,
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
from refold.tui.navigation import find, finding_key, mouse, scroll, select, transcript_key
from refold.tui.overlays import (
    asked,
    choosing_key,
    dialog_key,
    dialog_letters,
    matched,
    menu_key,
    menu_text,
    narrowed,
    with_next_question,
    withdrawn,
)
from refold.tui.panels import TITLES, panel_entries
from refold.tui.session_news import (
    draft_left,
    heard,
    loaded,
    printed_by,
    watched,
    with_facts,
)
from refold.tui.text_field import field_of
from refold.tui.transcript import (
    CommandRows,
    grown,
    with_sizes,
)
from refold.tui.view import areas
from refold.views.picker import with_query
from refold.views.question_keys import CALM_SECONDS, Menu
from refold.views.screen.blocks import CONTINUED_BY_ENTER
from refold.views.styled import Line

TWICE = 2.0  # seconds in which a second Ctrl+C or Esc means more


def update(model: Model, message: Message) -> Updated:
    model = replace(model, clock=max(model.clock, getattr(message, "at", 0.0)))
    new, commands = _ON[type(message)](model, message)
    new = with_next_question(new)
    if _awaits_calm(new) and _awaits_calm(new) != _awaits_calm(model):
        commands = (*commands, WakeAfter(CALM_SECONDS))
    if _followed(new) != _followed(model):
        _, panel = _followed(new)
        commands = (*commands, Follow(panel))
    if model.watching and not new.watching:
        commands = (*commands, Watch(""))
    return new, commands


def _awaits_calm(model: Model) -> tuple[int, float] | None:
    """The question whose keys depend on the time, and when the last one was pressed."""
    if not isinstance(model.overlay, Dialog) or model.overlay.menu is None:
        return None
    return model.overlay.asked.number, model.typed_at


def _followed(model: Model) -> tuple[str, PanelName]:
    """The panel that is read anew while it is open, and the session that it is about."""
    if model.panel not in ("tasks", "background"):
        return "", ""
    return model.facts.session, model.panel


def _told(change: Callable[[Model, Any], Model]) -> Callable[[Model, Any], Updated]:
    """For a message after which there is nothing to do."""
    return lambda model, message: (change(model, message), ())


def _printed(model: Model, rows: tuple[Line, ...], *, begins: bool = False) -> Model:
    return replace(model, transcript=grown(model.transcript, (CommandRows(rows, begins),)))


def _offered(model: Model, found: Offered) -> Model:
    composer = inputs.offered(model.composer, found.before, found.offers)
    return replace(model, composer=composer)


def _with_history(model: Model, found: Remembered) -> Model:
    return replace(model, composer=replace(model.composer, history=found.inputs))


def _put_text(model: Model, text: str) -> Model:
    if isinstance(model.overlay, Dialog) and not model.overlay.asked.keys:
        return replace(model, overlay=replace(model.overlay, field=field_of(text)))
    return replace(model, composer=inputs.with_text(model.composer, text))


def _with_image(model: Model, found: ImagePasted) -> Model:
    composer = inputs.with_paste(model.composer, f"{found.label} ")
    return replace(model, composer=composer)


def _with_queued(model: Model, found: Unqueued) -> Model:
    typed = model.composer.field.whole  # meanwhile
    text = f"{found.text}\n{typed}" if typed else found.text
    return replace(model, composer=inputs.with_text(model.composer, text))


def _key(model: Model, message: Key) -> Updated:
    model, key, at = replace(model, hint=""), message.name, message.at
    if model.overlay is not None and not _passes(model.overlay, key):
        return _overlay_key(model, model.overlay, key, at)
    if (action := KEYS.get(key)) is not None:
        return _action(model, action, at)
    if model.watching is not None and key == "esc":
        return replace(model, watching=None), ()
    match model.focus:
        case "transcript":
            return transcript_key(model, key)
        case "panel":
            return _panel_key(model, key)
        case "input":
            return _input_key(model, key, at)


def _passes(overlay: Overlay, key: str) -> bool:
    """Does the key mean the same while this is in place of the input?"""
    action = KEYS.get(key, "")
    if action in ("suspend", "redraw"):
        return True
    return isinstance(overlay, Dialog) and action in _BESIDE_QUESTION


def _overlay_key(model: Model, overlay: Overlay, key: str, at: float) -> Updated:
    match overlay:
        case Dialog():
            return _beside_question(model, overlay, key, at)
        case OpenPicker():
            return choosing_key(replace(model, typed_at=at), overlay, key)
        case TextSearch():
            return finding_key(replace(model, typed_at=at), overlay, key)


def _beside_question(model: Model, dialog: Dialog, key: str, at: float) -> Updated:
    """While a question is put, panels can be used, and a subagent be watched."""
    if model.focus == "panel" and key not in ("ctrl+c", "ctrl+d"):
        return _panel_key(model, key)
    if key == "tab" and areas(model).panel_height:
        return replace(model, focus="panel", panel_row=0), ()
    if key == "esc" and model.watching is not None:
        return replace(model, watching=None), ()
    if dialog.menu is None:
        return dialog_key(model, dialog, key)
    answered = menu_key(model, dialog, key, at)
    return _input_key(model, key, at) if answered is None else answered


def _typed(model: Model, message: Typed) -> Updated:
    model, text, at = replace(model, hint=""), message.text, message.at
    match model.overlay:
        case Dialog() as dialog:
            return _typed_at_question(model, dialog, text, at)
        case OpenPicker() as choosing:
            model = replace(model, typed_at=at)
            picker = with_query(choosing.picker, choosing.picker.query + text)
            return narrowed(model, choosing, picker)
        case TextSearch() as finding:
            return find(replace(model, typed_at=at), inserted(finding.field, text).text)
        case None:
            pass
    match model.focus:
        case "transcript":
            return transcript_key(model, text)
        case "panel":
            return _panel_key(replace(model, typed_at=at), text)
        case "input" if text == "?" and not model.composer.field.text:
            return _printed(model, keys_rows(model.width), begins=True), ()
        case "input" if text == "v" and inputs.takes_commands(model.composer):
            return model, (EditOutside(model.composer.field.whole),)
        case "input":
            model = replace(model, typed_at=at)
            return _composed(model, inputs.typed(model.composer, text))


def _typed_at_question(model: Model, dialog: Dialog, text: str, at: float) -> Updated:
    if model.focus == "panel":
        return _panel_key(replace(model, typed_at=at), text)
    if dialog.menu is None:
        return dialog_letters(model, dialog, text, at)
    (model, done), rest = menu_text(model, dialog, text, at)
    return _composed(model, inputs.typed(model.composer, rest)) if rest else (model, done)


def _paste(model: Model, message: Paste) -> Updated:
    match model.overlay:
        case Dialog() as dialog if dialog.menu is not None:
            pasted = menu_text(
                replace(model, hint=""), dialog, message.text, message.at, pasted=True
            )
            (model, done), rest = pasted
            composer = inputs.with_paste(model.composer, rest)
            return _composed(model, composer) if rest else (model, done)
        case _:
            return _pasted(replace(model, hint="", typed_at=message.at), message.text)


def _pasted(model: Model, text: str) -> Updated:
    match model.overlay:
        case Dialog(asked) as dialog if not asked.keys:
            text = text if asked.many else " ".join(text.split())
            field = inserted(dialog.field, text)
            return replace(model, overlay=replace(dialog, field=field)), ()
        case TextSearch() as finding:
            return find(model, inserted(finding.field, " ".join(text.split())).text)
        case None if not text:  # how some terminals paste an image
            return model, (PasteImage(),)
        case None:
            focused = replace(model, focus="input")
            return _composed(focused, inputs.with_paste(model.composer, text))
        case _:
            return model, ()


def _composed(model: Model, composer: inputs.Composer) -> Updated:
    """The input has changed: completions are looked for anew."""
    model = replace(model, composer=composer)
    before = composer.before
    wants = composer.search is None and ("@" in before or before[:1] in ("/", "!"))
    return model, (Complete(before),) if wants else ()


def _action(model: Model, action: str, at: float) -> Updated:
    """A key that means the same whatever has the focus."""
    match action:
        case "above" | "below":
            return select(model, -1 if action == "above" else 1), ()
        case "find":
            return replace(model, overlay=TextSearch()), ()
        case "interrupt":
            return _ctrl_c(model, at)
        case "whole":
            whole = not model.transcript.whole
            shown_ = replace(model.transcript, whole=whole, flipped=frozenset[int]())
            return replace(model, transcript=shown_), ()
        case _ if action in _WANTED:
            return model, (_WANTED[action],)
        case _ if action in TITLES or action == "panels":
            return _with_panel(model, action), ()
        case _:
            return scroll(model, action)


def _ctrl_c(model: Model, at: float) -> Updated:
    """Ctrl+C: empty the input, stop the turn, or, pressed twice, leave."""
    twice = at - model.interrupted_at < TWICE
    model = replace(model, interrupted_at=at)
    if model.composer.field.text:
        kept = inputs.remembered(model.composer, model.composer.field.whole)
        model = replace(model, composer=inputs.emptied(kept), interrupted_at=-math.inf)
        return replace(model, hint="Cleared. ↑ restores it."), ()
    if model.screen.view.turn.seq and not (twice and model.screen.view.turn.stopped):
        hint = "Stopping the turn. Ctrl+C again leaves."
        return replace(model, hint=hint), (Send(Interrupt()),)
    if twice:
        return model, (Quit(),)
    return replace(model, hint="Press Ctrl+C again to leave, or Ctrl+D."), ()


def _input_key(model: Model, key: str, at: float) -> Updated:
    composer = model.composer
    model = replace(model, typed_at=at)
    early = _with_empty_input(model, key)
    if not early and (taken := inputs.pressed(composer, key)) is not None:
        if key in ("enter", "esc") or inputs.is_same_place(taken, composer):
            return replace(model, composer=taken), ()
        return _composed(model, taken)
    match key:
        case "enter":
            return _submit(model, "now")
        case "ctrl+enter" | "alt+enter" if model.screen.view.turn.seq or key[0] == "c":
            return _submit(model, "next")
        case "alt+enter":
            return _composed(model, inputs.typed(composer, "\n"))
        case "tab" if model.panel:
            return replace(model, focus="panel", panel_row=0), ()
        case "esc":
            return _escape(model, at)
        case _:
            return model, early or _wanted_by(key, composer)


def _with_empty_input(model: Model, key: str) -> tuple[Command, ...]:
    """↑: the newest message that waits comes back, to be changed. Ctrl+B: the running command
    goes on in the background.
    """
    composer, view = model.composer, model.screen.view
    if composer.field.text or composer.at >= 0:
        return ()
    if key == "ctrl+b" and view.turn.seq:
        return (Send(MoveToBackground()),)
    if key != "up" or not view.message_queue:
        return ()
    newest = view.message_queue[-1]
    return (EditQueued(newest.seq, newest.said.typed or newest.said.text),)


def _wanted_by(key: str, composer: inputs.Composer) -> tuple[Command, ...]:
    match key:
        case "tab":
            return (Complete(composer.before),)
        case "ctrl+v":
            return (PasteImage(),)
        case "ctrl+g":
            return (EditOutside(composer.field.whole),)
        case "ctrl+d" if not composer.field.text:
            return (Quit(),)
        case _:
            return ()


def _escape(model: Model, at: float) -> Updated:
    """Esc: stop the turn; with nothing to stop, twice opens the rewind list."""
    if model.screen.view.turn.seq:
        return replace(model, hint="Stopping the turn."), (Send(Interrupt()),)
    if model.anchor is not None:
        return replace(model, anchor=None), ()
    if model.panel:
        return replace(model, panel=""), ()
    if at - model.escaped_at < TWICE and not model.composer.field.text:
        return replace(model, escaped_at=-math.inf), (RunCommand("/rewind"),)
    return replace(model, escaped_at=at, hint="Esc again: rewind."), ()


def _submit(model: Model, when: Literal["now", "next"]) -> Updated:
    text = model.composer.field.whole
    if not text.strip():
        stopped = model.screen.view.turn.outcome in CONTINUED_BY_ENTER
        if stopped and not model.screen.view.turn.seq:
            return model, (RunCommand("/continue"),)
        return model, ()
    kept = inputs.remembered(model.composer, text)
    model = replace(model, composer=inputs.emptied(kept), anchor=None)
    sent = (Remember(text), Submit(text, when))
    match model.overlay:
        case Dialog(asked, menu=Menu(send_leaves=True)):
            return replace(model, overlay=None), (*sent, Answer(asked.number, key="esc"))
        case _:
            return model, sent


def _with_panel(model: Model, name: str) -> Model:
    """Open this panel, or close it if it is open; `panels` is the next one."""
    if name == "panels":
        at = PANELS.index(model.panel) + 1 if model.panel else 0
        panel = PANELS[at] if at < len(PANELS) else ""
    else:
        panel = next((each for each in PANELS if each == name != model.panel), "")
    return replace(model, panel=panel, panel_row=0, focus="input")


def _panel_key(model: Model, key: str) -> Updated:
    at = areas(model)
    entries = panel_entries(model, at.panel_room - 2)
    entry = entries[model.panel_row] if model.panel_row < len(entries) else None
    match key:
        case "up" | "down" | "k" | "j":
            step = -1 if key in ("up", "k") else 1
            row = max(0, min(model.panel_row + step, len(entries) - 1))
            return replace(model, panel_row=row), ()
        case "enter" if model.panel == "changes":
            return replace(
                model, panel_row=(model.panel_row + 1) % max(len(entries), 1)
            ), ()
        case "enter" if entry and entry.id and model.panel in ("agents", "background"):
            return replace(model, focus="input"), (Watch(entry.id),)
        case "x" if entry and entry.id and model.panel in ("agents", "background"):
            stop = StopChild if model.panel == "agents" else StopBackground
            hint = f"Stopping {entry.id}."
            return replace(model, hint=hint), (Send(stop(entry.id)),)
        case "tab":
            return replace(model, focus="input"), ()
        case "esc":
            return replace(model, panel="", focus="input"), ()
        case _:
            return model, ()


_WANTED: Mapping[str, Command] = {
    "palette": LoadPalette(), "mode": CycleMode(), "suspend": Suspend(), "redraw": Repaint(),
}  # fmt: skip
_BESIDE_QUESTION = frozenset(
    {"scroll_up", "scroll_down", "top", "end", "whole", "panels", *TITLES}
)
_ON: Mapping[type, Callable[[Model, Any], Updated]] = {
    Key: _key,
    Typed: _typed,
    Paste: _paste,
    Mouse: mouse,
    News: heard,
    Loaded: loaded,
    Resized: _told(lambda model, m: replace(model, width=m.width, height=m.height)),
    Tick: _told(lambda model, m: replace(model, now=m.now)),
    FactsChanged: _told(with_facts),
    DraftLeft: _told(draft_left),
    RowsPrinted: _told(lambda model, m: _printed(model, m.rows, begins=m.begins)),
    Asked: _told(asked),
    AskedToPick: _told(
        lambda model, m: replace(model, overlay=OpenPicker(m.number, m.picker))
    ),
    Withdrawn: _told(lambda model, m: withdrawn(model, m.number)),
    Matched: _told(matched),
    Offered: _told(_offered),
    PaletteLoaded: _told(
        lambda model, m: replace(model, overlay=model.overlay or OpenPicker(0, m.picker))
    ),
    TranscriptLoaded: _told(watched),
    OutputLoaded: _told(printed_by),
    BoardRead: _told(lambda model, m: replace(model, board=m)),
    OutputsRead: _told(
        lambda model, m: replace(model, printed=m.lines, now=m.now or model.now)
    ),
    Edited: _told(lambda model, m: _put_text(model, m.text)),
    ImagePasted: _told(_with_image),
    ImagesMeasured: _told(
        lambda model, m: replace(model, transcript=with_sizes(model.transcript, m.sizes))
    ),
    Unqueued: _told(_with_queued),
    Remembered: _told(_with_history),
    Woken: _told(lambda model, m: model),
    ViKeys: _told(
        lambda model, m: replace(model, composer=inputs.with_vi_keys(model.composer, m.on))
    ),
}
