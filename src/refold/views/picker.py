"""A list to pick from, which typing narrows: its state, what keys do to it, its rows. Pure.

The terminal reads the keys and draws; `console.list_prompt` uses it to ask.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.views.styled import Line

Search: TypeAlias = Callable[[str], frozenset[str]]  # the ids of further choices
OnMove: TypeAlias = Callable[["Picker"], None]
PICKER_KEYS = "Enter chooses · Esc leaves · type to narrow"
_MAX_ROWS = 12  # however high the screen
_MIN_LIST_ROWS = 5  # of the list, beside a preview


class PickerItem(Struct, frozen=True):
    """A choice. `row` draws it for a width; `found_by` are words that a query may match.

    `preview` returns the rows below the list while it is selected. `groups` are the values
    of the dial at which it is in the list; none: it is in it at each.
    """

    id: str
    row: Callable[[int], Line]
    found_by: str
    preview: Callable[[int], Sequence[Line]] | None = None
    groups: tuple[str, ...] = ()


class CompletionItem(Struct, frozen=True):
    """A completion: `text` replaces the last `instead_of` characters before the cursor.

    `shown` is its text in the list, if that differs.
    """

    text: str
    instead_of: int
    about: str = ""
    shown: str = ""


class Stepper(Struct, frozen=True):
    """A value that the left and right keys change, such as the effort."""

    label: str
    values: tuple[str, ...]
    at: int = 0

    @property
    def value(self) -> str:
        return self.values[self.at]


class Picker(Struct, frozen=True):
    """`matches`: ids that a search found for `query`; `sample`: rows below the list."""

    title: str
    choices: tuple[PickerItem, ...]
    query: str = ""
    at: int = 0
    matches: frozenset[str] = frozenset()
    sample: tuple[Line, ...] = ()
    dial: Stepper | None = None

    @property
    def items(self) -> tuple[PickerItem, ...]:
        """The items that contain each word of the query, then those found by a search."""
        words, dial = self.query.casefold().split(), self.dial
        choices = tuple(
            c for c in self.choices if not c.groups or (dial and dial.value in c.groups)
        )
        if not words:
            return choices
        named = [item for item in choices if _matches_words(item, words)]
        ids = {item.id for item in named}
        hits = (c for c in choices if c.id in self.matches and c.id not in ids)
        return (*named, *hits)

    @property
    def selection(self) -> PickerItem | None:
        shown = self.items
        return shown[min(self.at, len(shown) - 1)] if shown else None


def with_selection(picking: Picker, id_: str, dial: str = "") -> Picker:
    """Select this choice, if it exists, with the dial at this value, if it has that."""
    all_ = replace(picking, query="")
    if all_.dial is not None and dial in all_.dial.values:
        dial_index = all_.dial.values.index(dial)
        all_ = replace(all_, dial=replace(all_.dial, at=dial_index))
    ids = [item.id for item in all_.items]
    return replace(all_, at=ids.index(id_)) if id_ in ids else picking


def with_query(picking: Picker, text: str) -> Picker:
    """Change the query and select the first result."""
    if text == picking.query:
        return picking
    return replace(picking, query=text, at=0, matches=frozenset())


def with_matches(picking: Picker, text: str, ids: frozenset[str]) -> Picker:
    """Add the results of a search for `text`, unless the query has changed."""
    if text != picking.query:
        return picking
    before = picking.selection
    result = replace(picking, matches=ids)
    shown = result.items
    return replace(result, at=shown.index(before) if before in shown else 0)


def move_selection(picking: Picker, steps: int) -> Picker:
    """Move the selection by `steps`, within the list."""
    last = len(picking.items) - 1
    return replace(picking, at=max(0, min(picking.at + steps, last)))


def turn_dial(picking: Picker, steps: int) -> Picker:
    """Turn the dial by `steps`, within its values."""
    dial = picking.dial
    if dial is None:
        return picking
    index = max(0, min(dial.at + steps, len(dial.values) - 1))
    return replace(picking, dial=replace(dial, at=index))


def picker_rows(picking: Picker, width: int, height: int) -> list[Line]:
    """The visible part of the list, the count, the dial, the preview, the sample."""
    shown, chosen = picking.items, picking.selection
    preview = chosen.preview(width) if chosen and chosen.preview else ()
    if len(preview) + _MIN_LIST_ROWS > height:
        preview = ()
    count = max(min(height - len(preview), _MAX_ROWS), 1)
    selected = min(picking.at, len(shown) - 1)
    first = max(0, min(selected - count // 2, len(shown) - count))
    rows = [
        _row(item, width, selected=first + n == selected)
        for n, item in enumerate(shown[first : first + count])
    ]
    if not shown:
        rows.append((("dim", "  nothing fits"),))
    elif len(shown) > count:
        rows.append((("dim", f"  {selected + 1} of {len(shown)}"),))
    if picking.dial:
        rows.append(_dial(picking.dial))
    return [*rows, *preview, *picking.sample]


def rows_with_numbers(choices: Sequence[PickerItem], width: int) -> list[Line]:
    """The list with numbers, for a terminal without cursor control."""
    column_width = len(str(len(choices)))
    return [
        (("plain", f"{n:>{column_width}}  "), *item.row(width - column_width - 2))
        for n, item in enumerate(choices, start=1)
    ]


def _matches_words(choice: PickerItem, words: Sequence[str]) -> bool:
    text = choice.found_by.casefold()
    return all(word in text for word in words)


def _row(choice: PickerItem, width: int, *, selected: bool) -> Line:
    mark = ("accent", "› ") if selected else ("plain", "  ")
    row = choice.row(width - 2)
    return (mark, *((("strong", text) for _, text in row) if selected else row))


def _dial(dial: Stepper) -> Line:
    before = "← " if dial.at else "  "
    after = " →" if dial.at < len(dial.values) - 1 else ""
    return (
        ("dim", f"  {dial.label}: {before}"), ("strong", dial.value), ("dim", after),
    )  # fmt: skip
