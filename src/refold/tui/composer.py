"""The input at the bottom of the screen: its field, the history and the completion menu. Pure."""

from msgspec import Struct
from msgspec.structs import replace

from refold.tui.text_field import (
    TextField,
    cleared,
    down,
    edited,
    field_of,
    inserted,
    pasted,
    up,
)
from refold.tui.vi import Vi, normal_key, normal_mode
from refold.views.picker import CompletionItem

_KEPT = 500  # inputs of the history


class Composer(Struct, frozen=True):
    """`at` is the place in the history; `draft` what was being typed before it was looked at."""

    field: TextField = TextField()
    history: tuple[str, ...] = ()
    at: int = -1  # -1: not in the history, 0: the newest input
    draft: str = ""
    offers: tuple[CompletionItem, ...] = ()
    chosen: int = -1  # of the offers
    search: str | None = None  # what Ctrl+R looks for
    vi: Vi | None = None  # None: the keys of Emacs

    @property
    def before(self) -> str:
        return self.field.text[: self.field.at]

    @property
    def suggestion(self) -> str:
        """The rest of the newest input that begins with what is typed."""
        text = self.field.text
        if not text or self.field.at < len(text) or "\n" in text or self.at >= 0:
            return ""
        found = next((e for e in reversed(self.history) if e.startswith(text)), "")
        return found[len(text) :].split("\n")[0]


def typed(composer: Composer, text: str) -> Composer:
    if composer.search is not None:
        return looked_for(composer, composer.search + text)
    if composer.vi is not None and composer.vi.mode == "normal":
        for letter in text:
            composer = _commanded(composer, letter)
        return composer
    return _anew(composer, inserted(composer.field, text))


def with_paste(composer: Composer, text: str) -> Composer:
    return _anew(composer, pasted(composer.field, text))


def with_text(composer: Composer, text: str) -> Composer:
    return _anew(composer, field_of(text))


def draft_of(composer: Composer) -> str:
    """What is being typed, also while the history is looked at."""
    looking = composer.at >= 0 or composer.search is not None
    return composer.draft if looking else composer.field.whole


def emptied(composer: Composer) -> Composer:
    return replace(
        _anew(composer, cleared(composer.field)), at=-1, draft="", search=None,
        vi=composer.vi and Vi(),
    )  # fmt: skip


def remembered(composer: Composer, text: str) -> Composer:
    """The history with one more input; the same twice in a row stands there once."""
    if not text.strip() or composer.history[-1:] == (text,):
        return composer
    return replace(composer, history=(*composer.history, text)[-_KEPT:])


def pressed(composer: Composer, key: str) -> Composer | None:
    """The composer after a key; None: the key is not for it."""
    if composer.search is not None:
        return _in_search(composer, key)
    if composer.offers and (found := _in_menu(composer, key)) is not None:
        return found
    if composer.vi is not None and key == "esc":
        return _left_insert(composer, composer.vi)
    match key:
        case "up" | "down":
            return _in_lines(composer, key)
        case "ctrl+r" if composer.history:
            return replace(composer, search="", draft=composer.field.text)
        case "right" | "end" | "ctrl+e" | "ctrl+f" if composer.suggestion:
            return _anew(composer, inserted(composer.field, composer.suggestion))
        case "ctrl+j" | "shift+enter":
            return _anew(composer, inserted(composer.field, "\n"))
        case _:
            changed = edited(composer.field, key)
            return None if changed is None else _anew(composer, changed)


def offered(
    composer: Composer, before: str, offers: tuple[CompletionItem, ...]
) -> Composer:
    """The completions for the text before the cursor, unless that has changed."""
    if before != composer.before or composer.search is not None:
        return composer
    return replace(composer, offers=offers, chosen=-1)


def completed(composer: Composer, at: int) -> Composer:
    """Take the offer with this number."""
    offer = composer.offers[at]
    field = composer.field
    start = field.at - offer.instead_of
    text = field.text[:start] + offer.text + field.text[field.at :]
    changed = replace(field, text=text, at=start + len(offer.text))
    return _anew(composer, changed)


def older(composer: Composer) -> Composer:
    if composer.at + 1 >= len(composer.history):
        return composer
    draft = composer.field.text if composer.at < 0 else composer.draft
    at = composer.at + 1
    found = composer.history[-1 - at]
    return replace(composer, field=field_of(found), at=at, draft=draft, offers=())


def newer(composer: Composer) -> Composer:
    if composer.at < 0:
        return composer
    at = composer.at - 1
    found = composer.draft if at < 0 else composer.history[-1 - at]
    return replace(composer, field=field_of(found), at=at, offers=())


def looked_for(composer: Composer, words: str, *, further: bool = False) -> Composer:
    """The newest input with these words; `further`: the one before what is shown."""
    start = composer.at + 1 if further else 0
    for at in range(start, len(composer.history)):
        found = composer.history[-1 - at]
        if words and words.casefold() in found.casefold():
            return replace(composer, search=words, field=field_of(found), at=at)
    return replace(composer, search=words)


def _in_lines(composer: Composer, key: str) -> Composer:
    """↑ and ↓: another line of the input, and behind the last one another input."""
    moved = (up if key == "up" else down)(composer.field)
    if moved:
        return replace(composer, field=moved)
    return older(composer) if key == "up" else newer(composer)


def _left_insert(composer: Composer, vi: Vi) -> Composer | None:
    """Esc in insert mode or within a command; None: there is nothing to leave."""
    if vi.mode == "insert":
        field = normal_mode(composer.field)
        return replace(_anew(composer, field), vi=Vi("normal"))
    return replace(composer, vi=Vi("normal")) if vi.typed else None


def _commanded(composer: Composer, letter: str) -> Composer:
    """After one letter of normal mode; j and k also reach earlier inputs, as ↓ and ↑ do."""
    vi = composer.vi or Vi()
    if vi.mode == "insert":  # an earlier letter of the same text has begun it
        return _anew(composer, inserted(composer.field, letter))
    if not vi.typed and letter in ("j", "k"):
        return pressed(composer, "down" if letter == "j" else "up") or composer
    field, vi = normal_key(composer.field, vi, letter)
    return replace(_anew(composer, field), vi=vi)


def _in_search(composer: Composer, key: str) -> Composer | None:
    match key:
        case "ctrl+r":
            return looked_for(composer, composer.search or "", further=True)
        case "backspace":
            return looked_for(composer, (composer.search or "")[:-1])
        case "esc" | "ctrl+g":
            return replace(composer, search=None, field=field_of(composer.draft), at=-1)
        case "enter":
            return replace(composer, search=None)
        case _:
            return pressed(replace(composer, search=None), key)


def _in_menu(composer: Composer, key: str) -> Composer | None:
    many = len(composer.offers)
    match key:
        case "tab" if composer.chosen < 0:
            return completed(composer, 0)
        case "tab" | "enter" if composer.chosen >= 0:
            return completed(composer, composer.chosen)
        case "down" | "ctrl+n":
            return replace(composer, chosen=(composer.chosen + 1) % many)
        case "up" | "ctrl+p" if composer.chosen >= 0:
            return replace(composer, chosen=(composer.chosen - 1) % many)
        case "esc":
            return replace(composer, offers=(), chosen=-1)
        case _:
            return None


def _anew(composer: Composer, field: TextField) -> Composer:
    return replace(composer, field=field, offers=(), chosen=-1, at=-1)
