"""A text field: its text and cursor as a value, and what each editing key makes of it. Pure.

Long pastes are folded: each is one private character in `text`, and `whole` puts the pasted
text back. Movement is by graphemes, so that no letter with marks and no emoji is split.
What Enter, history and completion do is decided in `composer`.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from refold.views.escape import visible
from refold.views.wrap import letters

_PASTE = 0xF0000  # the first private character that stands for a paste
_PASTES = 256
_LONG = 400  # characters from which a paste is folded
_MANY = 6  # lines from which it is
_UNDO = 100  # edits that can be undone
_RUNS = re.compile(
    f"[\n\t{chr(_PASTE)}-{chr(_PASTE + _PASTES - 1)}]|[^\n\t{chr(_PASTE)}-{chr(_PASTE + _PASTES - 1)}]+"
)


class TextField(Struct, frozen=True):
    """`at` is the cursor, as an index into `text`; `killed` is the text that was cut last."""

    text: str = ""
    at: int = 0
    killed: str = ""
    pastes: tuple[str, ...] = ()
    before: tuple[tuple[str, int], ...] = ()  # earlier texts, for undo

    @property
    def whole(self) -> str:
        """The text with its pastes put back."""
        return "".join(
            self.pastes[ord(c) - _PASTE] if is_paste(c) else c for c in self.text
        )


class FieldLayout(Struct, frozen=True):
    """The rows of a field, and where its cursor stands: row and cell, from 0."""

    rows: tuple[str, ...]
    row: int
    cell: int


def is_paste(letter: str) -> bool:
    return _PASTE <= ord(letter) < _PASTE + _PASTES


def field_of(text: str) -> TextField:
    return TextField(text, len(text))


def inserted(field: TextField, text: str) -> TextField:
    """The field after this was typed at the cursor."""
    at = field.at
    return _changed(field, field.text[:at] + text + field.text[at:], at + len(text))


def pasted(field: TextField, text: str) -> TextField:
    """The field after a paste. A long one is folded into one character."""
    clean = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    long = len(clean) > _LONG or clean.count("\n") >= _MANY
    if not long or len(field.pastes) >= _PASTES:
        return inserted(field, clean)
    sign = chr(_PASTE + len(field.pastes))
    return inserted(replace(field, pastes=(*field.pastes, clean)), sign)


def edited(field: TextField, key: str) -> TextField | None:
    """The field after an editing key; None: the key does not edit."""
    action = _ACTIONS.get(key)
    return action(field) if action else None


def with_text_at(field: TextField, text: str, at: int) -> TextField:
    """The field with this text instead, as an edit that can be undone."""
    return _changed(field, text, at)


def lay_out(field: TextField, room: int) -> FieldLayout:
    """The field on rows of `room` cells; the cursor is always on one of them."""
    room = max(room, 2)
    rows, used, at = [""], 0, 0
    cursor = (0, 0)
    for text, span in _clusters(field):
        parts = [("", 0)] if text == "\n" else list(letters(text))
        if used + parts[0][1] > room:
            rows.append("")
            used = 0
        if at <= field.at < at + span:
            cursor = (len(rows) - 1, used)
        at += span
        if text == "\n":
            rows.append("")
            used = 0
            continue
        for letter, cells in parts:  # several only for the label of a paste
            if used + cells > room:
                rows.append("")
                used = 0
            rows[-1] += letter
            used += cells
    if field.at >= at:
        if used >= room:
            rows.append("")
            used = 0
        cursor = (len(rows) - 1, used)
    return FieldLayout(tuple(rows), *cursor)


def up(field: TextField) -> TextField | None:
    """One line up; None on the first line."""
    start = field.text.rfind("\n", 0, field.at) + 1
    if not start:
        return None
    above = field.text.rfind("\n", 0, start - 1) + 1
    return replace(field, at=min(above + field.at - start, start - 1))


def down(field: TextField) -> TextField | None:
    """One line down; None on the last line."""
    end = field.text.find("\n", field.at)
    if end < 0:
        return None
    start = field.text.rfind("\n", 0, field.at) + 1
    below = field.text.find("\n", end + 1)
    last = len(field.text) if below < 0 else below
    return replace(field, at=min(end + 1 + field.at - start, last))


def cleared(field: TextField) -> TextField:
    """An empty field that still has the text that was cut last."""
    return TextField(killed=field.killed)


def _clusters(field: TextField) -> Iterator[tuple[str, int]]:
    """The text in graphemes as they are drawn, each with its length in `text`."""
    for run in _RUNS.findall(field.text):
        if run == "\n":
            yield run, 1
        elif run == "\t":
            yield " ", 1
        elif is_paste(run[0]):
            yield _label(field.pastes[ord(run) - _PASTE]), 1
        else:
            for cluster, _ in letters(run):
                yield visible(cluster), len(cluster)


def _label(paste: str) -> str:
    lines = paste.count("\n") + 1
    return f"[pasted {lines} lines]" if lines > 1 else f"[pasted {len(paste)} characters]"


def _changed(field: TextField, text: str, at: int) -> TextField:
    before = (*field.before, (field.text, field.at))[-_UNDO:]
    return replace(field, text=text, at=at, before=before)


def _next_letter(field: TextField) -> int:
    rest = field.text[field.at : field.at + 32]
    if not rest or rest[0] == "\n":
        return min(field.at + 1, len(field.text))
    return field.at + len(next(iter(letters(rest)))[0])


def _letter_before(field: TextField) -> int:
    start = max(field.at - 32, field.text.rfind("\n", 0, field.at) + 1, 0)
    before = field.text[start : field.at]
    if not before:
        return max(field.at - 1, 0)
    *_, (last, _) = letters(before)
    return field.at - len(last)


def _word_before(field: TextField) -> int:
    at = field.at
    while at and not field.text[at - 1].isalnum():
        at -= 1
    while at and field.text[at - 1].isalnum():
        at -= 1
    return at


def _word_after(field: TextField) -> int:
    at, end = field.at, len(field.text)
    while at < end and not field.text[at].isalnum():
        at += 1
    while at < end and field.text[at].isalnum():
        at += 1
    return at


def _space_before(field: TextField) -> int:
    at = field.at
    while at and field.text[at - 1].isspace():
        at -= 1
    while at and not field.text[at - 1].isspace():
        at -= 1
    return at


def _line_start(field: TextField) -> int:
    return field.text.rfind("\n", 0, field.at) + 1


def _line_end(field: TextField) -> int:
    end = field.text.find("\n", field.at)
    return len(field.text) if end < 0 else end


def _to(where: Callable[[TextField], int]) -> Callable[[TextField], TextField]:
    return lambda field: replace(field, at=where(field))


def _without(
    where: Callable[[TextField], int], *, keep: bool = False
) -> Callable[[TextField], TextField]:
    """Delete from the cursor to there; `keep`: as what Ctrl+Y inserts."""

    def delete(field: TextField) -> TextField:
        start, end = sorted((field.at, where(field)))
        if start == end:
            return field
        killed = field.text[start:end] if keep else field.killed
        text = field.text[:start] + field.text[end:]
        return replace(_changed(field, text, start), killed=killed)

    return delete


def _undone(field: TextField) -> TextField:
    if not field.before:
        return field
    text, at = field.before[-1]
    return replace(field, text=text, at=at, before=field.before[:-1])


_ACTIONS: Mapping[str, Callable[[TextField], TextField]] = {
    "left": _to(_letter_before),
    "ctrl+b": _to(_letter_before),
    "right": _to(_next_letter),
    "ctrl+f": _to(_next_letter),
    "home": _to(_line_start),
    "ctrl+a": _to(_line_start),
    "end": _to(_line_end),
    "ctrl+e": _to(_line_end),
    "alt+b": _to(_word_before),
    "ctrl+left": _to(_word_before),
    "alt+f": _to(_word_after),
    "ctrl+right": _to(_word_after),
    "alt+<": _to(lambda field: 0),
    "alt+>": _to(lambda field: len(field.text)),
    "backspace": _without(_letter_before),
    "delete": _without(_next_letter),
    "ctrl+w": _without(_space_before, keep=True),
    "alt+backspace": _without(_word_before, keep=True),
    "alt+d": _without(_word_after, keep=True),
    "ctrl+u": _without(_line_start, keep=True),
    "ctrl+k": _without(_line_end, keep=True),
    "ctrl+y": lambda field: inserted(field, field.killed),
    "ctrl+_": _undone,
}
