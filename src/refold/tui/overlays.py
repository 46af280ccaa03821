"""The overlays in place of the input: a question, or a list to choose from. Pure.

This module handles their keys and makes their rows. Questions are asked one after the other. A
question that was answered elsewhere is removed.
"""

import sys
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from refold.tui import composer as inputs
from refold.tui.editing import edit_field, insert_text, type_into
from refold.tui.messages import (
    Answer,
    Asked,
    Command,
    EditInEditor,
    FindMatches,
    Matched,
    Picked,
    RunCommand,
    Selected,
)
from refold.tui.model import Dialog, Model, OpenPicker, Updated
from refold.tui.prose_rows import split_rows
from refold.tui.text_field import TextField, field_of, lay_out
from refold.views.picker import (
    PICKER_KEYS,
    Picker,
    move_selection,
    picker_rows,
    turn_dial,
    with_matches,
    with_query,
)
from refold.views.question_keys import (
    CALM_SECONDS,
    Menu,
    menu_line,
    press_key,
    type_text,
)
from refold.views.styled import Line
from refold.views.wrap import cells, truncate, wrap_rows

_TRANSCRIPT_ROWS = 3  # rows of the transcript that stay visible above a question
# rows of a question besides its choices: a rule, counts and the status
_ROWS_BELOW_BODY = 3
_MIN_MENU_ROWS = 8  # that choices may use on a low screen
_LIST_ROWS = 17  # including the rows below the list
_ROWS_AROUND_LIST = 4  # a rule, the title, the keys and the status
_ROW_BEHIND_LAST = 1_000_000
_LEAVE_KEYS = ("esc", "ctrl+c", "ctrl+d")


def add_question(model: Model, message: Asked) -> Model:
    """Open the question, or let it wait while another overlay is open."""
    if model.overlay is not None:
        return replace(model, waiting=(*model.waiting, message))
    return replace(model, overlay=_open_dialog(message), focus="input")


def withdraw_question(model: Model, number: int) -> Model:
    """Remove a question that was answered elsewhere, open or not."""
    waiting = tuple(question for question in model.waiting if question.number != number)
    model = replace(model, waiting=waiting)
    match model.overlay:
        case Dialog(Asked(number=shown)) | OpenPicker(number=shown) if shown == number:
            return replace(model, overlay=None)
        case _:
            return model


def with_next_question(model: Model) -> Model:
    """Open the question that has waited longest, if no other overlay is open.

    The question counts as asked now, and ignores keys for a moment: a key that the user
    pressed for the former screen must not answer it.
    """
    if model.overlay is not None or not model.waiting:
        return model
    first, *rest = model.waiting
    first = replace(first, at=max(first.at, model.clock))
    return replace(model, overlay=_open_dialog(first), waiting=tuple(rest), focus="input")


def _open_dialog(message: Asked) -> Dialog:
    scroll = _ROW_BEHIND_LAST if message.follows else 0
    return Dialog(message, field_of(message.text), scroll, message.menu)


def press_dialog_key(model: Model, dialog: Dialog, key: str) -> Updated:
    """Press a key at a question of a command: it scrolls, answers, or edits the answer.

    If the question is answered by one of `keys`, keys can only scroll here or leave the
    question.
    """
    asked = dialog.asked
    if key in _PAGE_KEYS:
        page = max(_body(model, dialog).height - 1, 1)
        return scroll_dialog(model, dialog, _PAGE_KEYS[key](page)), ()
    leave_keys = (*_LEAVE_KEYS, "shift+tab") if asked.keys else _LEAVE_KEYS
    if key in leave_keys:
        return _answer(model, Answer(asked.number, key=key))
    if asked.keys:
        return model, ()
    before_cursor = dialog.field.text[: dialog.field.at]
    continues_line = asked.many and before_cursor.endswith("\\")
    if key == "enter" and not continues_line:
        return _answer(model, Answer(asked.number, dialog.field.whole))
    if key in ("alt+enter", "ctrl+enter") and not asked.many:
        return _answer(model, Answer(asked.number, dialog.field.whole, "alt+enter"))
    if key == "ctrl+g" and asked.many:
        return model, (EditInEditor(dialog.field.whole),)
    if key in ("ctrl+j", "alt+enter", "shift+enter") and asked.many:
        field = insert_text(dialog.field, "\n")
    elif key == "enter":  # after a backslash, which the line break replaces
        field = edit_field(dialog.field, "backspace") or dialog.field
        field = insert_text(field, "\n")
    else:
        field = edit_field(dialog.field, key) or dialog.field
    return replace(model, overlay=replace(dialog, field=field)), ()


def type_in_dialog(model: Model, dialog: Dialog, text: str, now: float) -> Updated:
    """Type text at a question of a command: into the answer, or as the key that answers."""
    asked = dialog.asked
    if not asked.keys:
        field = type_into(dialog.field, text).field
        return replace(model, overlay=replace(dialog, field=field)), ()
    if len(text) > 1 or now - model.typed_at < CALM_SECONDS:
        hint = "That key came while you were typing: wait a moment, then press it again."
        return replace(model, hint=hint, typed_at=now), ()
    return _answer(model, Answer(asked.number, text))


def press_menu_key(model: Model, dialog: Dialog, key: str, now: float) -> Updated | None:
    """Press a key at a question that no command asked. Return None if the input should get the
    key.
    """
    menu = dialog.menu or Menu()
    if key in _PAGE_KEYS:
        return press_dialog_key(model, dialog, key)
    pressed = press_key(menu, key, typed=_has_text(model, dialog), calm=is_calm(model, now))
    if pressed.action != "select":
        model = replace(model, typed_at=now)
    number = dialog.asked.number
    dialog = replace(dialog, menu=pressed.menu)
    model = replace(model, overlay=dialog)
    match pressed.action:
        case "leave":
            return _answer(model, Answer(number, key=key))
        case "answer":
            return _answer(model, Answer(number, pressed.value or dialog.field.whole))
        case "edit" if menu.writing:
            field = edit_field(dialog.field, key) or dialog.field
            return replace(model, overlay=replace(dialog, field=field)), ()
        case "edit" | "send":
            return None
        case _:
            return model, ()


def type_at_menu(
    model: Model, dialog: Dialog, text: str, now: float, *, pasted: bool = False
) -> tuple[Updated, str]:
    """Type text at a question that no command asked.

    Return the new state with its commands, and the text that should be typed into the input.
    """
    menu = dialog.menu or Menu()
    may_answer = menu.free_text or not pasted  # a paste gives no choice
    calm = is_calm(model, now) and may_answer
    pressed = type_text(menu, text, typed=_has_text(model, dialog), calm=calm)
    dialog = replace(dialog, menu=pressed.menu)
    model = replace(model, overlay=dialog, typed_at=now)
    match pressed.action:
        case "answer":
            return _answer(model, Answer(dialog.asked.number, pressed.value)), ""
        case "write":
            field = insert_text(dialog.field, pressed.value)
            return (replace(model, overlay=replace(dialog, field=field)), ()), ""
        case "draft":
            return (model, ()), pressed.value
        case _:
            return (model, ()), ""


def is_calm(model: Model, now: float) -> bool:
    """Return whether the question was shown, and no key pressed, for at least `CALM_SECONDS`."""
    asked_at = model.overlay.asked.at if isinstance(model.overlay, Dialog) else now
    return now - max(asked_at, model.typed_at) >= CALM_SECONDS


def _has_text(model: Model, dialog: Dialog) -> bool:
    """Whether there is text that keys would edit: the answer while it is written, or the input."""
    writing = dialog.menu is not None and dialog.menu.writing
    return bool(dialog.field.text if writing else model.composer.field.text)


def scroll_dialog(model: Model, dialog: Dialog, rows: int) -> Model:
    """Scroll the body of a question down by `rows`; up, if negative."""
    body = _body(model, dialog)
    scroll = max(0, min(dialog.scroll + rows, len(body.rows) - body.height))
    return replace(model, overlay=replace(dialog, scroll=scroll))


def _answer(model: Model, answer: Answer) -> Updated:
    return replace(model, overlay=None), (answer,)


def press_picker_key(model: Model, overlay: OpenPicker, key: str) -> Updated:
    """Press a key in an open list. A list that is left is answered with the id ""."""
    picker = overlay.picker
    match key:
        case "enter":
            return _choose(model, overlay)
        case "esc" | "ctrl+c" | "ctrl+d":
            commands = (Picked(overlay.number, id=""),) if overlay.number else ()
            return replace(model, overlay=None), commands
        case "backspace":
            picker = with_query(picker, picker.query[:-1])
        case "ctrl+u":
            picker = with_query(picker, "")
        case "left" | "right":
            picker = turn_dial(picker, -1 if key == "left" else 1)
        case _:
            picker = move_selection(picker, _STEP_KEYS.get(key, 0))
    return update_picker(model, overlay, picker)


def update_picker(model: Model, overlay: OpenPicker, picker: Picker) -> Updated:
    """Replace the list, and report a new query or selection to the command that waits."""
    before = overlay.picker
    commands = list[Command]()
    if overlay.number:  # a command waits; the palette has no number
        if picker.query != before.query:
            commands.append(FindMatches(overlay.number, picker.query))
        selection = picker.selection
        if selection is not None and selection != before.selection:
            commands.append(Selected(overlay.number, selection.id))
    return replace(model, overlay=replace(overlay, picker=picker)), tuple(commands)


def add_matches(model: Model, message: Matched) -> Model:
    """Add the results of a search in hidden text, if the list that asked is still open."""
    match model.overlay:
        case OpenPicker(message.number, picker) as choosing:
            picker = with_matches(picker, message.query, message.ids)
            return replace(model, overlay=replace(choosing, picker=picker))
        case _:
            return model


def _choose(model: Model, overlay: OpenPicker) -> Updated:
    """Choose the selected item.

    In the palette, a command that needs arguments is inserted into the input, and others run.
    """
    picker = overlay.picker
    if picker.selection is None:
        return model, ()
    id_ = picker.selection.id
    dial = picker.dial.value if picker.dial else ""
    model = replace(model, overlay=None)
    if overlay.number:  # a command asked; the palette has no number
        return model, (Picked(overlay.number, id_, dial),)
    if id_.endswith(" "):  # the arguments must still be typed
        return replace(model, composer=inputs.insert(model.composer, id_)), ()
    return replace(model, anchor=None), (RunCommand(id_),)


class _Body(Struct, frozen=True):
    """The scrolled part of a question, of which `height` rows are visible.

    `menu` are the rows of its choices, or () if the prompt is shown instead.
    """

    rows: list[Line]
    height: int
    menu: list[Line]


def _body(model: Model, dialog: Dialog) -> _Body:
    """Return the body of a question, and the rows of its choices.

    If the choices would take more than half of the screen, they are cut to one row each, and
    the body shows them in full.
    """
    width = max(model.width - 2, 2)
    rows = [part for row in dialog.asked.body for part in wrap_rows(row, width)]
    menu = _menu_rows(model, dialog, width)
    if len(menu) > max(model.height // 2, _MIN_MENU_ROWS):
        rows += menu
        menu = [truncate(row, width) for row in split_rows(_menu_line(model, dialog))]
    if model.panel or model.watching is not None:  # the panel or subagent stays visible
        max_height = model.height // 3
    else:
        rows_below = max(len(menu), 1) + _ROWS_BELOW_BODY
        max_height = model.height - _TRANSCRIPT_ROWS - rows_below
    return _Body(rows, min(len(rows), max(max_height, 1)), menu)


def _menu_rows(model: Model, dialog: Dialog, width: int) -> list[Line]:
    """Return the rows of the choices, or [] if the prompt is shown instead."""
    menu = dialog.menu
    if menu is None:
        return []
    typed = _has_text(model, dialog)
    is_message = typed and not menu.writing  # the text is not an answer
    is_answer = typed and menu.writing
    shows_choices = bool(menu.choices) and not is_answer
    asks_to_wait = not typed and not is_calm(model, model.clock)
    if not (shows_choices or is_message or asks_to_wait):
        return []
    return wrap_rows(_menu_line(model, dialog, width), width)


def _menu_line(model: Model, dialog: Dialog, width: int = sys.maxsize) -> Line:
    typed, calm = _has_text(model, dialog), is_calm(model, model.clock)
    return menu_line(dialog.menu or Menu(), width, typed=typed, calm=calm)


def dialog_rows(model: Model, dialog: Dialog) -> tuple[list[Line], tuple[int, int] | None]:
    """Return the rows of a question, and the row and column of its cursor (None if it has
    none).
    """
    asked = dialog.asked
    width = max(model.width - 2, 2)
    body = _body(model, dialog)
    count, height = len(body.rows), body.height
    start = max(0, min(dialog.scroll, count - height))
    rows: list[Line] = [(("warn", "─" * model.width),)]
    rows += _indent(body.rows[start : start + height])
    if count > height:
        note = f"rows {start + 1}–{start + height} of {count} · PgUp PgDn scroll"
        rows.append((("dim", f" {note}"),))
    prompt = wrap_rows(asked.prompt, width)
    *first_rows, last_row = prompt  # the answer is typed after the last row
    if asked.keys:
        rows += _indent(prompt)
    else:
        rows += _indent(body.menu or first_rows)
    if model.hint:
        rows += _indent(wrap_rows((("warn", model.hint),), width))
    if asked.keys or body.menu:
        return rows, None  # the answer is a key, so there is no field
    field_rows, (cursor_row, cursor_column) = _field_rows(dialog.field, last_row, width)
    return [*rows, *field_rows], (len(rows) + cursor_row, cursor_column)


def _field_rows(
    field: TextField, prompt: Line, width: int
) -> tuple[list[Line], tuple[int, int]]:
    """Return the rows of an answer after its prompt, and the row and column of the cursor."""
    rows = list[Line]()
    indent = 1 + sum(cells(text) for _, text in prompt)
    if indent > width // 2:  # too little room is left beside it
        rows.append((("plain", " "), *prompt))
        prompt, indent = (), 1
    layout = lay_out(field, max(width - indent, 2))
    prompt_row_count = len(rows)
    start: Line = (("plain", " "), *prompt)
    for text in layout.rows:
        rows.append((*start, ("plain", text)))
        start = (("plain", " " * indent),)
    return rows, (prompt_row_count + layout.row, indent + layout.cell)


def open_picker_rows(
    model: Model, overlay: OpenPicker
) -> tuple[list[Line], tuple[int, int]]:
    """Return the rows of a list, and the row and column of the cursor."""
    picker = overlay.picker
    width = model.width - 2
    free_rows = model.height - _TRANSCRIPT_ROWS - _ROWS_AROUND_LIST
    height = max(min(free_rows, _LIST_ROWS), 1)
    rows: list[Line] = [(("accent", "─" * model.width),)]
    head = f" {picker.title} "
    rows.append((("strong", head), ("plain", picker.query)))
    rows += _indent(picker_rows(picker, width, height))
    rows.append((("dim", f" {PICKER_KEYS}"),))
    return rows, (1, min(cells(head) + cells(picker.query), model.width - 1))


def _indent(rows: Sequence[Line]) -> list[Line]:
    return [(("plain", " "), *row) for row in rows]


_PAGE_KEYS: Mapping[str, Callable[[int], int]] = {
    "pageup": lambda page: -page,
    "pagedown": lambda page: page,
    "ctrl+up": lambda page: -1,
    "ctrl+down": lambda page: 1,
}
_STEP_KEYS: Mapping[str, int] = {
    "up": -1, "ctrl+p": -1, "down": 1, "ctrl+n": 1, "pageup": -10, "pagedown": 10,
    "home": -1_000_000, "end": 1_000_000,
}  # fmt: skip
