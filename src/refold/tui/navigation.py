"""Moves in the transcript: scrolls, selects and copies blocks; handles mouse and search. Pure."""

from msgspec.structs import replace

from refold.tui.editing import edit_field
from refold.tui.messages import Copy, Mouse, ShellKey
from refold.tui.model import Dialog, Model, TextSearch, Updated
from refold.tui.overlays import scroll_dialog
from refold.tui.text_field import field_of
from refold.tui.transcript import (
    Anchor,
    Transcript,
    code_block,
    find_item,
    item_text,
    scroll_anchor,
    visible_rows,
)
from refold.tui.view import Areas, divide_screen
from refold.views.screen.blocks import CallBlock, MessageBlock, TurnEndBlock
from refold.views.styled import plain_text

_WHEEL_ROWS = 3  # per step of the wheel


def scroll_transcript(model: Model, action: str) -> Updated:
    """Scroll the transcript that is shown. After "end" it follows new output again."""
    if action == "top":
        return _with_anchor(model, Anchor(0)), ()
    if action == "end":
        return _with_anchor(model, anchor=None), ()
    layout = divide_screen(model)
    page = max(layout.height - 2, 1)  # two rows stay visible
    row_step = {
        "scroll_up": -1, "scroll_down": 1, "page_up": -page, "page_down": page,
    }.get(action, 0)  # fmt: skip
    return _scroll_rows(model, layout, row_step), ()


def _scroll_rows(model: Model, layout: Areas, row_step: int) -> Model:
    """Scroll the transcript that is shown down by `row_step` rows; up, if negative."""
    pane = model.watching or model
    anchor = scroll_anchor(
        pane.transcript, pane.anchor, row_step, layout.text_width, layout.height
    )
    return _with_anchor(model, anchor)


def _with_anchor(model: Model, anchor: Anchor | None) -> Model:
    """Return the state with another scroll position of the transcript that is shown."""
    if model.watching is not None:
        return replace(model, watching=replace(model.watching, anchor=anchor))
    return replace(model, anchor=anchor)


def move_selection(model: Model, step: int) -> Model:
    """Select the next item in the direction of `step`, and scroll to it.

    If the transcript has no focus yet, select its lowest visible item.
    """
    count = len(model.transcript)
    if not count:
        return model
    layout, transcript = divide_screen(model), model.transcript
    if model.focus == "transcript":
        end = count if step > 0 else -1
        candidates = range(model.selected + step, end, step)
    else:
        _, items = visible_rows(transcript, model.anchor, layout.text_width, layout.height)
        lowest = items[-1] if items else count - 1
        candidates = range(lowest, -1, -1)
    for index in candidates:
        if _is_selectable(transcript, index, layout.text_width):
            return _show_item(replace(model, focus="transcript", selected=index), index)
    return model


def _is_selectable(transcript: Transcript, index: int, width: int) -> bool:
    """Return whether the user may want to open or copy the item. The end of a turn is skipped."""
    is_end = isinstance(transcript.item(index), TurnEndBlock)
    return not is_end and bool(transcript.rows(index, width))


def _show_item(model: Model, item: int) -> Model:
    """Return the state, scrolled to the item if the item is not visible."""
    layout = divide_screen(model)
    _, items = visible_rows(
        model.transcript, model.anchor, layout.text_width, layout.height
    )
    return model if item in items else replace(model, anchor=Anchor(item))


def press_transcript_key(model: Model, key: str) -> Updated:
    """Press a key while the transcript has the focus. An unknown key shows a hint."""
    match key:
        case "up" | "k":
            return move_selection(model, step=-1), ()
        case "down" | "j":
            return move_selection(model, step=1), ()
        case "enter" | " ":
            return _toggle_whole(model, model.selected), ()
        case "y" | "c":
            return _copy_selected(model, code=key == "c")
        case "esc" | "tab" | "i":
            return replace(model, focus="input", selected=-1, anchor=None), ()
        case _:
            hint = "↑↓ select · Enter opens · y copies · c copies its code · Esc: input"
            return replace(model, hint=hint), ()


def _toggle_whole(model: Model, item: int) -> Model:
    """Open the item, or fold it if it is open."""
    transcript = model.transcript
    return replace(
        model, transcript=replace(transcript, flipped=transcript.flipped ^ {item})
    )


def _copy_selected(model: Model, *, code: bool) -> Updated:
    """Copy the text of the selected item, or with `code` only its last code block."""
    if not 0 <= model.selected < len(model.transcript):
        return model, ()
    text = item_text(model.transcript.item(model.selected), model.transcript.label)
    text = code_block(text) if code else text
    if not text:
        return replace(model, hint="There is no code in this block."), ()
    return model, (Copy(text),)


def shell_key(model: Model, key: str) -> ShellKey | None:
    """Return the command of a key for the running `!command`; None for other keys.

    Return None also if no command runs, the input has text, or the focus is elsewhere.
    """
    if not model.transcript.shell:
        return None
    if model.composer.field.text or model.focus != "input":
        return None
    match key:
        case "esc" | "ctrl+c":
            return ShellKey("interrupt")
        case "enter":
            return ShellKey("attach")
        case _:
            return None


def use_mouse(model: Model, event: Mouse) -> Updated:
    """Scroll by the wheel. By a press, open or close an item, or focus the panel."""
    if event.kind != "press":
        row_step = -_WHEEL_ROWS if event.kind == "wheel_up" else _WHEEL_ROWS
        if isinstance(model.overlay, Dialog):
            return scroll_dialog(model, model.overlay, row_step), ()
        return _scroll_rows(model, divide_screen(model), row_step), ()
    layout = divide_screen(model)
    if model.overlay is not None or model.watching or event.row >= layout.height:
        return model, ()
    if event.column >= layout.mark + layout.text_width:  # beside the transcript
        if model.panel:
            model = replace(model, focus="panel")
        return model, ()
    _, items = visible_rows(
        model.transcript, model.anchor, layout.text_width, layout.height
    )
    if event.row >= len(items):  # below the transcript
        return model, ()
    item = items[event.row]
    if _can_be_opened(model.transcript.item(item)):
        return _toggle_whole(model, item), ()
    return model, ()


def _can_be_opened(item: object) -> bool:
    """Return whether an item shows more when it is opened."""
    return isinstance(item, CallBlock) or (
        isinstance(item, MessageBlock) and bool(item.images)
    )


def press_search_key(model: Model, finding: TextSearch, key: str) -> Updated:
    """Press a key in a search: Enter and ↑ search upwards, Shift+Tab and ↓ downwards."""
    match key:
        case "esc" | "ctrl+c":
            return replace(model, overlay=None), ()
        case "enter" | "up":
            return search(model, finding.field.text, step=-1, start=finding.at - 1)
        case "shift+tab" | "down":
            return search(model, finding.field.text, step=1, start=finding.at + 1)
        case _:
            field = edit_field(finding.field, key)
            return (model, ()) if field is None else search(model, field.text)


def search(model: Model, text: str, step: int = -1, start: int | None = None) -> Updated:
    """Search the transcript for `text`, and scroll to the item that is found.

    The search begins at the index `start`, or else at the newest item. It goes down, or up if
    `step` is negative.
    """
    newest = len(model.transcript) - 1
    first = newest if start is None else start
    item = None
    if text and 0 <= first <= newest:
        item = find_item(model.transcript, text, first, step)
    if item is not None:
        overlay = TextSearch(field_of(text), item, missed=False)
        return _show_match(replace(model, overlay=overlay), item, text), ()
    current = -1
    is_continued = start is not None  # otherwise the search is new
    if is_continued and isinstance(model.overlay, TextSearch):
        current = model.overlay.at  # the item that was found before
    missed = text != ""
    return replace(model, overlay=TextSearch(field_of(text), current, missed=missed)), ()


def _show_match(model: Model, item: int, words: str) -> Model:
    """Scroll to the last row of the item with these words. If necessary, open the item first.

    If a row with these words is visible already, do not scroll.
    """
    layout = divide_screen(model)
    query = words.casefold()
    transcript = model.transcript
    match_row = _last_matching_row(transcript, item, layout.text_width, query)
    if match_row is None:
        transcript = replace(transcript, flipped=transcript.flipped ^ {item})
        match_row = _last_matching_row(transcript, item, layout.text_width, query)
        if match_row is None:  # the words are not on one row
            return _show_item(model, item)
        model = replace(model, transcript=transcript)
    rows, items = visible_rows(transcript, model.anchor, layout.text_width, layout.height)
    for row, row_item in zip(rows, items, strict=True):
        if row_item == item and query in plain_text([row]).casefold():
            return model
    top_row = max(match_row - layout.height // 2, 0)  # the match is in the middle
    return replace(model, anchor=Anchor(item, top_row))


def _last_matching_row(
    transcript: Transcript, item: int, width: int, text: str
) -> int | None:
    """Return the index of the last row that contains all of `text`, or None."""
    rows = transcript.rows(item, width)
    for number in reversed(range(len(rows))):
        if text in plain_text([rows[number]]).casefold():
            return number
    return None
