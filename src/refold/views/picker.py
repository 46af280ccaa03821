"""A list from which the user chooses, narrowed by typing: its state and its rows. Pure.

The terminal reads the keys and draws the rows; `console.list_prompt` asks with it.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.views.styled import Line

Search: TypeAlias = Callable[[str], frozenset[str]]  # returns the ids of further choices
OnMove: TypeAlias = Callable[["Picker"], None]
PICKER_KEYS = "Enter chooses · Esc leaves · type to narrow"
_MAX_ROWS = 12  # even on a higher screen
_MIN_LIST_ROWS = 5  # of the list, beside a preview


class PickerItem(Struct, frozen=True):
    """An item of the list. `row` draws it for a width. A query matches words in `found_by`.

    `preview` returns rows that are shown below the list while the item is selected. `groups`
    are the values of the dial (`Stepper`) with which the item is listed. An item without
    groups is always listed.
    """

    id: str
    row: Callable[[int], Line]
    found_by: str
    preview: Callable[[int], Sequence[Line]] | None = None
    groups: tuple[str, ...] = ()


class CompletionItem(Struct, frozen=True):
    """A completion. `text` replaces the `instead_of` characters before the cursor.

    `shown` is the text in the list, if it differs from `text`.
    """

    text: str
    instead_of: int
    about: str = ""
    shown: str = ""


class Stepper(Struct, frozen=True):
    """The dial of a list: a value, such as the effort, that the left and right keys change."""

    label: str
    values: tuple[str, ...]
    at: int = 0

    @property
    def value(self) -> str:
        return self.values[self.at]


class Picker(Struct, frozen=True):
    """A list, and what is selected in it.

    `at` is the index of the selected item among `items`. `matches` are the ids of items that a
    search found for `query`. `sample` are rows that are always shown below the list.
    """

    title: str
    choices: tuple[PickerItem, ...]
    query: str = ""
    at: int = 0
    matches: frozenset[str] = frozenset()
    sample: tuple[Line, ...] = ()
    dial: Stepper | None = None

    @property
    def items(self) -> tuple[PickerItem, ...]:
        """The listed items: those that contain all words of the query, then those that a search
        found.

        Items of groups are listed only if the dial is at one of their groups.
        """
        group = self.dial.value if self.dial else None
        choices = tuple(
            choice for choice in self.choices if not choice.groups or group in choice.groups
        )
        words = self.query.casefold().split()
        if not words:
            return choices
        matching = [item for item in choices if _matches_words(item, words)]
        matching_ids = {item.id for item in matching}
        found_ids = self.matches - matching_ids
        return (*matching, *(item for item in choices if item.id in found_ids))

    @property
    def selection(self) -> PickerItem | None:
        shown = self.items
        return shown[min(self.at, len(shown) - 1)] if shown else None


def with_selection(picking: Picker, id_: str, dial: str = "") -> Picker:
    """Return the list with the item `id_` selected, the dial at `dial`, and no query.

    If no item has the id, return the list unchanged. If the dial has no value `dial`, it is not
    moved.
    """
    unfiltered = replace(picking, query="")
    if unfiltered.dial is not None and dial in unfiltered.dial.values:
        dial_index = unfiltered.dial.values.index(dial)
        unfiltered = replace(unfiltered, dial=replace(unfiltered.dial, at=dial_index))
    ids = [item.id for item in unfiltered.items]
    return replace(unfiltered, at=ids.index(id_)) if id_ in ids else picking


def with_query(picking: Picker, text: str) -> Picker:
    """Return the list with another query, and its first result selected."""
    if text == picking.query:
        return picking
    return replace(picking, query=text, at=0, matches=frozenset())


def with_matches(picking: Picker, text: str, ids: frozenset[str]) -> Picker:
    """Return the list with the results `ids` of a search for `text`.

    If the query is no longer `text`, return the list unchanged. The selection stays on its item
    if that is still shown, and moves to the first item otherwise.
    """
    if text != picking.query:
        return picking
    selected = picking.selection
    result = replace(picking, matches=ids)
    shown = result.items
    index = shown.index(selected) if selected in shown else 0
    return replace(result, at=index)


def move_selection(picking: Picker, steps: int) -> Picker:
    """Return the list with the selection moved down by `steps` (up, if negative)."""
    last = len(picking.items) - 1
    return replace(picking, at=max(0, min(picking.at + steps, last)))


def turn_dial(picking: Picker, steps: int) -> Picker:
    """Return the list with the dial moved by `steps`. It stops at its first and last value."""
    dial = picking.dial
    if dial is None:
        return picking
    index = max(0, min(dial.at + steps, len(dial.values) - 1))
    return replace(picking, dial=replace(dial, at=index))


def picker_rows(picking: Picker, width: int, height: int) -> list[Line]:
    """Return the visible rows of the list, then its count, its dial, the preview and the
    sample.

    The preview is left out if it leaves too few rows for the list.
    """
    items, selection = picking.items, picking.selection
    preview = selection.preview(width) if selection and selection.preview else ()
    if len(preview) + _MIN_LIST_ROWS > height:
        preview = ()
    max_rows = max(min(height - len(preview), _MAX_ROWS), 1)
    selected = min(picking.at, len(items) - 1)
    # The selected row is in the middle, except near the ends of the list.
    first = max(0, min(selected - max_rows // 2, len(items) - max_rows))
    rows = [
        _row(item, width, selected=index == selected)
        for index, item in enumerate(items[first : first + max_rows], first)
    ]
    if not items:
        rows.append((("dim", "  nothing fits"),))
    elif len(items) > max_rows:
        rows.append((("dim", f"  {selected + 1} of {len(items)}"),))
    if picking.dial:
        rows.append(_dial(picking.dial))
    return [*rows, *preview, *picking.sample]


def rows_with_numbers(choices: Sequence[PickerItem], width: int) -> list[Line]:
    """Return the items with numbers, for a terminal without cursor control."""
    column_width = len(str(len(choices)))
    return [
        (("plain", f"{n:>{column_width}}  "), *item.row(width - column_width - 2))
        for n, item in enumerate(choices, start=1)
    ]


def _matches_words(choice: PickerItem, words: Sequence[str]) -> bool:
    text = choice.found_by.casefold()
    return all(word in text for word in words)


def _row(choice: PickerItem, width: int, *, selected: bool) -> Line:
    """Return the row of an item, with a mark if it is selected."""
    row = choice.row(width - 2)
    if selected:
        return (("accent", "› "), *(("strong", text) for _, text in row))
    return (("plain", "  "), *row)


def _dial(dial: Stepper) -> Line:
    """Return the row of a stepper, with an arrow on each side that has more values."""
    before = "← " if dial.at else "  "
    after = " →" if dial.at < len(dial.values) - 1 else ""
    return (
        ("dim", f"  {dial.label}: {before}"), ("strong", dial.value), ("dim", after),
    )  # fmt: skip
