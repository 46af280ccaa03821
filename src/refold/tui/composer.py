"""The input at the bottom of the screen: text field, history and completion menu. Pure."""

from msgspec import Struct
from msgspec.structs import replace

from refold.tui import editing
from refold.tui.text_field import Edit, TextField, clear
from refold.views.picker import CompletionItem

_MAX_INPUTS = 500  # in the history


class Composer(Struct, frozen=True):
    """The input at the bottom of the screen.

    `at` is the position in the history of the entry that is shown. `draft` is the text that
    the user had typed before an entry was shown.
    """

    field: TextField = TextField()
    history: tuple[str, ...] = ()
    at: int = -1  # -1: not in the history, 0: the newest input
    draft: str = ""
    offers: tuple[CompletionItem, ...] = ()
    chosen: int = -1  # the index of the selected completion
    search: str | None = None  # the words that Ctrl+R searches for

    @property
    def before(self) -> str:
        """The text before the cursor."""
        return self.field.text[: self.field.at]

    @property
    def suggestion(self) -> str:
        """The rest of the newest entry of the history that begins with the typed text, or ""."""
        text = self.field.text
        is_at_history_entry = self.at >= 0
        if not text or "\n" in text or is_at_history_entry:
            return ""
        if self.field.at < len(text):  # the cursor is not at the end
            return ""
        for entry in reversed(self.history):
            if entry.startswith(text):
                first_line, _, _ = entry.removeprefix(text).partition("\n")
                return first_line
        return ""


def insert(composer: Composer, text: str) -> Composer:
    """Return the input after typed characters.

    The characters are inserted as text, added to an open search, or interpreted as commands
    of vi.
    """
    if composer.search is not None:
        return search_history(composer, composer.search + text)
    if composer.field.mode == "insert":
        return _after_edit(
            composer, editing.type_into(composer.field, text, composer.history)
        )
    for letter in text:  # as commands of vi, `j` and `k` also reach earlier inputs
        edit = editing.type_into(composer.field, letter, composer.history)
        composer = _after_edit(composer, edit)
    return composer


def with_paste(composer: Composer, text: str) -> Composer:
    return _with_field(composer, editing.insert_paste(composer.field, text))


def with_text(composer: Composer, text: str) -> Composer:
    return _with_field(composer, _field_with_text(composer, text))


def is_same_place(composer: Composer, other: Composer) -> bool:
    """Return whether both inputs have the same text and the same cursor position."""
    first_field, second_field = composer.field, other.field
    return (first_field.text, first_field.at) == (second_field.text, second_field.at)


def expects_vi_command(composer: Composer) -> bool:
    """Return whether the next character begins a command of vi."""
    field = composer.field
    has_begun = field.pending or field.selected or composer.search is not None
    return field.mode == "normal" and not has_begun


def with_vi_keys(composer: Composer, enabled: bool) -> Composer:
    field = replace(composer.field, vi=enabled, mode="insert", pending="", edit=None)
    return replace(composer, field=field)


def draft_of(composer: Composer) -> str:
    """Return the text that the user has typed, even if another input is shown from the history."""
    is_browsing = composer.at >= 0 or composer.search is not None
    return composer.draft if is_browsing else composer.field.whole


def clear_field(composer: Composer) -> Composer:
    return replace(_with_field(composer, clear(composer.field)), draft="", search=None)


def remember_input(composer: Composer, text: str) -> Composer:
    """Return the input with `text` added to the history, unless it is the last entry already."""
    if not text.strip() or composer.history[-1:] == (text,):
        return composer
    return replace(composer, history=(*composer.history, text)[-_MAX_INPUTS:])


def press_key(composer: Composer, key: str) -> Composer | None:
    """Return the input after a key, or None if the key means nothing here."""
    if composer.search is not None:
        return _press_key_in_search(composer, key)
    if composer.offers:
        after_menu_key = _press_key_in_menu(composer, key)
        if after_menu_key is not None:
            return after_menu_key
    field = composer.field
    match key:
        case "ctrl+r" if composer.history:
            return replace(composer, search="", draft=composer.field.text)
        case "right" | "end" | "ctrl+e" | "ctrl+f" if composer.suggestion:
            return _with_field(composer, editing.insert_text(field, composer.suggestion))
        case "ctrl+j" | "shift+enter":
            return _with_field(composer, editing.insert_text(field, "\n"))
        case "ctrl+v" if field.mode == "insert":  # pastes an image
            return None
        case "ctrl+g" if not field.selected:  # opens the user's editor
            return None
        case _:
            edit = editing.press_key(field, key, composer.history)
            return None if edit is None else _after_edit(composer, edit)


def with_offers(
    composer: Composer, before: str, offers: tuple[CompletionItem, ...]
) -> Composer:
    """Return the input with these completions for the text `before` the cursor.

    If that text has changed since, return the input unchanged.
    """
    if before != composer.before or composer.search is not None:
        return composer
    return replace(composer, offers=offers, chosen=-1)


def accept_completion(composer: Composer, index: int) -> Composer:
    """Return the input after the completion with this index was accepted."""
    offer = composer.offers[index]
    field = composer.field
    start = field.at - offer.instead_of
    text = field.text[:start] + offer.text + field.text[field.at :]
    changed = editing.with_text_at(field, text, start + len(offer.text))
    return _with_field(composer, changed)


def recall_older(composer: Composer) -> Composer:
    """Return the input with the next older entry of the history. Typed text becomes the draft."""
    if composer.at + 1 >= len(composer.history):
        return composer
    draft = composer.field.text if composer.at < 0 else composer.draft
    index = composer.at + 1
    entry = composer.history[-1 - index]
    return replace(
        composer, field=_field_with_text(composer, entry), at=index, draft=draft, offers=()
    )


def recall_newer(composer: Composer) -> Composer:
    """Return the input with the next newer entry of the history; after the newest, the draft."""
    if composer.at < 0:
        return composer
    index = composer.at - 1
    entry = composer.draft if index < 0 else composer.history[-1 - index]
    return replace(composer, field=_field_with_text(composer, entry), at=index, offers=())


def search_history(composer: Composer, text: str, *, further: bool = False) -> Composer:
    """Return the input with the newest entry of the history that contains `text`.

    With `further`, only entries that are older than the current one are searched.
    """
    start = composer.at + 1 if further else 0
    for index in range(start, len(composer.history)):
        entry = composer.history[-1 - index]
        if text and text.casefold() in entry.casefold():
            field = _field_with_text(composer, entry)
            return replace(composer, search=text, field=field, at=index)
    return replace(composer, search=text)


def _after_edit(composer: Composer, edit: Edit) -> Composer:
    """Return the input after an edit.

    If the cursor leaves the text upwards or downwards by `edit.beyond` lines, older or newer
    entries of the history are shown.
    """
    edited = replace(composer, field=edit.field)
    if edit.beyond:
        step = recall_older if edit.beyond < 0 else recall_newer
        # The count that the user typed may be huge; further steps would change nothing.
        max_steps = len(composer.history) + 1
        for _ in range(min(abs(edit.beyond), max_steps)):
            edited = step(edited)
        return edited
    # An entry of the history stays one as long as its text is not changed.
    is_entry = composer.at >= 0 and edit.field.text == composer.field.text
    if is_entry or is_same_place(edited, composer):
        return edited
    return _with_field(composer, edit.field)


def _field_with_text(composer: Composer, text: str) -> TextField:
    """Return the field with `text` as its text, and the cursor at its end."""
    cursor = len(text)
    if text and composer.field.mode == "normal" and not text.endswith("\n"):
        cursor -= 1  # in this mode, the cursor is on the last character
    return editing.with_text_at(composer.field, text, cursor)


def _press_key_in_search(composer: Composer, key: str) -> Composer | None:
    """Return the input after a key in the search, or None if the key means nothing here."""
    match key:
        case "ctrl+r":
            return search_history(composer, composer.search or "", further=True)
        case "backspace":
            return search_history(composer, (composer.search or "")[:-1])
        case "esc" | "ctrl+g":
            field = _field_with_text(composer, composer.draft)
            return replace(composer, search=None, field=field, at=-1)
        case "enter":
            return replace(composer, search=None)
        case _:
            return press_key(replace(composer, search=None), key)


def _press_key_in_menu(composer: Composer, key: str) -> Composer | None:
    """Return the input after a key in the menu, or None if the key is not for the menu."""
    count = len(composer.offers)
    match key:
        case "tab" if composer.chosen < 0:
            return accept_completion(composer, index=0)
        case "tab" | "enter" if composer.chosen >= 0:
            return accept_completion(composer, composer.chosen)
        case "down" | "ctrl+n":
            return replace(composer, chosen=(composer.chosen + 1) % count)
        case "up" | "ctrl+p" if composer.chosen >= 0:
            return replace(composer, chosen=(composer.chosen - 1) % count)
        case "esc":
            return replace(composer, offers=(), chosen=-1)
        case _:
            return None


def _with_field(composer: Composer, field: TextField) -> Composer:
    return replace(composer, field=field, offers=(), chosen=-1, at=-1)
