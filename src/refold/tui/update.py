"""Updates the state by a message, and returns the commands that follow. Pure.

`key_presses` handles what the user types, `navigation` the mouse, and `session_news` what the
session reports. The table in this module names the handler of each message.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from refold.client.protocol import Interrupt
from refold.tui import composer as inputs
from refold.tui.key_presses import paste, press_key, type_text
from refold.tui.messages import (
    Asked,
    AskedToPick,
    BoardRead,
    Command,
    Copied,
    DraftLeft,
    Edited,
    FactsChanged,
    Follow,
    ImagePasted,
    ImagesMeasured,
    Key,
    Loaded,
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
    Remembered,
    Resized,
    RowsPrinted,
    Send,
    ShellEnded,
    ShellShown,
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
from refold.tui.model import Dialog, Model, OpenPicker, Updated
from refold.tui.navigation import use_mouse
from refold.tui.overlays import (
    add_matches,
    add_question,
    with_next_question,
    withdraw_question,
)
from refold.tui.panel_keys import with_board
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
from refold.views.question_keys import CALM_SECONDS
from refold.views.styled import Line


def update(model: Model, message: Message) -> Updated:
    """Return the state after a message, and the commands to perform.

    The handler of the message changes the state. Commands that follow from a change of the
    state, whatever caused it, are added here.
    """
    model = replace(model, clock=max(model.clock, getattr(message, "at", 0.0)))
    new, commands = _HANDLERS[type(message)](model, message)
    new = with_next_question(new)
    further_commands = list[Command]()
    timing = _question_timing(new)
    if timing is not None and timing != _question_timing(model):
        # The keys of the question act only after a pause.
        further_commands.append(WakeAfter(CALM_SECONDS))
    if _panel_to_follow(new) != _panel_to_follow(model):
        _, panel = _panel_to_follow(new)
        further_commands.append(Follow(panel))
    # The list of keys is watched like a subagent, but has no name.
    was_watching = model.watching is not None and model.watching.node != ""
    is_watching = new.watching is not None and new.watching.node != ""
    if was_watching and not is_watching:
        further_commands.append(Watch(""))
    turn_began = new.screen.view.turn.seq and not model.screen.view.turn.seq
    if turn_began:
        if new.stops_next:
            further_commands.append(Send(Interrupt()))
        new = replace(new, sent_at=-math.inf, stops_next=False)
    return new, (*commands, *further_commands)


def _question_timing(model: Model) -> tuple[int, float] | None:
    """Return the number of the open question, and the time of the last key.

    Return None if no question is open, or if its keys do not depend on the time.
    """
    if not isinstance(model.overlay, Dialog) or model.overlay.menu is None:
        return None
    return model.overlay.asked.number, model.typed_at


def _panel_to_follow(model: Model) -> tuple[str, PanelName]:
    """Return the session and its open panel, if the panel must be read repeatedly.

    Otherwise return "" and "".
    """
    if model.panel not in ("tasks", "background"):
        return "", ""
    return model.facts.session, model.panel


def _pure(change: Callable[[Model, Any], Model]) -> Callable[[Model, Any], Updated]:
    """Return a message handler that changes the state by `change` and causes no command."""
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
    """Replace the text of the open question's field, or else of the input."""
    if isinstance(model.overlay, Dialog) and not model.overlay.asked.keys:
        return replace(model, overlay=replace(model.overlay, field=field_of(text)))
    return replace(model, composer=inputs.with_text(model.composer, text))


def _with_image(model: Model, message: ImagePasted) -> Model:
    composer = inputs.with_paste(model.composer, f"{message.label} ")
    return replace(model, composer=composer)


def _with_queued(model: Model, message: Unqueued) -> Model:
    """Put the withdrawn message into the input, before text that was typed since."""
    typed = model.composer.field.whole
    text = f"{message.text}\n{typed}" if typed else message.text
    return replace(model, composer=inputs.with_text(model.composer, text))


_HANDLERS: Mapping[type, Callable[[Model, Any], Updated]] = {
    Key: press_key,
    Typed: type_text,
    Paste: paste,
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
