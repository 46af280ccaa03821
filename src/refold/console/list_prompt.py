"""Lets the user pick an item from a list.

Typing filters the list. If the terminal cannot move the cursor, the user types the number of an
item. `views.picker` decides what is shown and what a key does.
"""

import anyio
from msgspec.structs import replace

from refold.console.printer import Printer
from refold.console.reader import DialogReader, Key, ListReader
from refold.views.escape import escape_to_one_line
from refold.views.picker import (
    OnMove,
    Picker,
    PickerItem,
    Search,
    rows_with_numbers,
    with_matches,
    with_query,
    with_selection,
)
from refold.views.styled import line

MAX_LIST_NUMBERS = 20  # in a numbered list
_NUMBER_PROMPT = "number, or words to search for; Enter to leave: "


async def pick(
    printer: Printer,
    reader: DialogReader,
    picker: Picker,
    search: Search | None = None,
    on_move: OnMove | None = None,
) -> Picker | None:
    """Let the user pick an item.

    Return the list with the item selected; None if the user leaves. `search` finds further
    items for the typed text, and is called in a thread. `on_move` is called with each newly
    selected item, if the list is drawn.
    """
    if not isinstance(reader, ListReader):
        return await _pick_by_number(printer, reader, picker, search)
    answer = await reader.pick(picker, search, on_move)
    return answer if answer and answer.selection else None


async def _pick_by_number(
    printer: Printer, reader: DialogReader, picker: Picker, search: Search | None
) -> Picker | None:
    """Ask for the number of an item, or for words that narrow the list.

    Return None if the answer is empty or a key.
    """
    shown = picker.choices[:MAX_LIST_NUMBERS]
    while True:
        for row in rows_with_numbers(shown, printer.free_columns):
            printer.print_line(row)
        answer = await reader.read_line(line(_NUMBER_PROMPT, "strong"))
        if isinstance(answer, Key) or not answer.strip():
            return None
        words = answer.strip()
        number = int(words) if words.isascii() and words.isdecimal() else 0
        if 1 <= number <= len(shown):
            return with_selection(picker, shown[number - 1].id)
        matches = await _find_items(picker, words, search)
        if len(matches) == 1:
            return with_selection(picker, matches[0].id)
        if matches:
            shown = matches[:MAX_LIST_NUMBERS]
        else:
            printer.print_text(f"Nothing matches {escape_to_one_line(words)!r}.", "dim")


async def _find_items(
    picker: Picker, text: str, search: Search | None
) -> tuple[PickerItem, ...]:
    """Return the items that match `text`, also by hidden text if there is a `search`."""
    narrowed = with_query(replace(picker, query=""), text)
    if search is None:
        return narrowed.items
    ids = await anyio.to_thread.run_sync(search, text)
    return with_matches(narrowed, text, ids).items
