"""The table of states and keys of a question that waits for the user. Pure.

`press_key` and `type_text` are the whole table; `server/pages/shared/question_keys.js` is the same
in JavaScript, and both are tested against `tests/views/question_keys.json`. A question is in one
of these states:

- *draft*: the message that the user types has text. All text goes into it, and Enter sends it.
- *busy*: there is no draft, but a key came within the last `CALM_SECONDS`, or the question has
  not been shown for so long. Text begins a draft, and Enter does nothing.
- *calm*: Enter gives the highlighted choice, `y` and `n` give theirs, a digit highlights one. Other
  text begins a draft, or the answer itself where the question takes free text. Enter right after
  such a digit gives its choice, however fast it follows.
- *writing*: that answer has text. Enter gives it.

In a terminal, Tab gives the highlighted choice of a permission question with words for the model.

Arrows highlight a choice whenever nothing is typed. No letter gives a choice that widens rights.
Displays keep the text and the clock, and decide nothing about keys themselves.

Questions that a command asks take one key, but none that follows another within that time:
letters of a sentence that is still being typed must not count as an answer.
"""

from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.views.styled import Line, Style
from refold.views.wrap import wrap_line

CALM_SECONDS = 0.7
WAITING_NOTICE = "a question waits"
MAX_DIGIT = 9  # the last that highlights a choice
AMEND_MARK = "\t"  # before the id of a choice: with words for the model
_MAX_ROW_CELLS = 76  # of choices in one row
_CHOICE_INDENT_CELLS = 4  # of the second row of a choice
_ARROW_STEPS = {"up": -1, "left": -1, "down": 1, "right": 1}
_LEAVE_KEYS = ("esc", "ctrl+c", "ctrl+d")


class Choice(Struct, frozen=True):
    """`id` is one letter; that of a choice that `widens` rights does not choose it."""

    id: str
    label: str
    widens: bool = False

    @property
    def direct(self) -> bool:
        return self.id in ("y", "n") and not self.widens


class Menu(Struct, frozen=True):
    """The choices of a question, and the highlighted one, at first the first.

    `leave` says what Esc does. `free_text`: the answer may be text; `writing`: typed text
    is that answer. `digit` has highlighted a choice; it becomes text if more text follows.
    `send_leaves`: sending a message leaves the question for later. `amends`: Tab gives the
    highlighted choice, too, with `AMEND_MARK` before it; the display then asks for words.
    """

    choices: tuple[Choice, ...] = ()
    leave: str = ""
    free_text: bool = False
    selected: int = 0
    digit: str = ""
    writing: bool = False
    send_leaves: bool = False
    amends: bool = False

    @property
    def ids(self) -> str:
        return "".join(choice.id for choice in self.choices)


Action: TypeAlias = Literal[
    "answer", "select", "draft", "write", "send", "leave", "edit", "wait"
]


class Pressed(Struct, frozen=True):
    """What a key does.

    It answers with the choice `value` or with the written text; highlights another choice;
    adds the text `value` to the draft or the answer; sends the draft; leaves the question;
    edits the text, as it would without a question; or does nothing.
    """

    action: Action
    menu: Menu
    value: str = ""


class DraftMessage(Struct, frozen=True):
    """The draft that the user sent while a question waited; `later`: for after the turn."""

    words: str
    later: bool = False


def press_key(menu: Menu, key: str, *, typed: bool, calm: bool) -> Pressed:
    """Handle a named key, such as `enter`. `typed`: the draft or the answer has text."""
    if key in _LEAVE_KEYS:
        return Pressed("leave", _reset(menu))
    if typed:
        end: Action = "answer" if menu.writing else "send"
        return Pressed(end if key == "enter" else "edit", menu)
    if key in _ARROW_STEPS and menu.choices:
        index = (menu.selected + _ARROW_STEPS[key]) % len(menu.choices)
        return Pressed("select", replace(_reset(menu), selected=index))
    amends = key == "tab" and menu.amends
    if key != "enter" and not amends:
        return Pressed("edit", menu)
    if not (calm or menu.digit) or not (menu.choices or menu.free_text):
        return Pressed("wait", menu)
    value = menu.choices[menu.selected].id if menu.choices else ""
    return Pressed("answer", menu, f"{AMEND_MARK}{value}" if amends else value)


def type_text(menu: Menu, text: str, *, typed: bool, calm: bool) -> Pressed:
    """Handle typed or pasted text. `typed`: the draft or the answer has text already."""
    if typed:
        return Pressed("write" if menu.writing else "draft", menu, text)
    if calm and not menu.digit:
        if any(choice.id == text and choice.direct for choice in menu.choices):
            return Pressed("answer", menu, text)
        if text in _digits(menu):
            selected = replace(_reset(menu), selected=int(text) - 1, digit=text)
            return Pressed("select", selected)
    writing = menu.free_text and (calm or bool(menu.digit))
    new_menu = replace(_reset(menu), writing=writing)
    return Pressed("write" if writing else "draft", new_menu, menu.digit + text)


def _reset(menu: Menu) -> Menu:
    return replace(menu, selected=0, digit="", writing=False)


def _digits(menu: Menu) -> tuple[str, ...]:
    return tuple(str(number + 1) for number in range(min(len(menu.choices), MAX_DIGIT)))


def is_tall(menu: Menu) -> bool:
    """Whether its choices are too long for one row, and stand below each other."""
    return sum(len(choice.label) + 9 for choice in menu.choices) > _MAX_ROW_CELLS


def menu_line(menu: Menu, width: int, *, typed: bool, calm: bool) -> Line:
    """The choices, in one row if they are short, broken at `width` cells.

    One is highlighted only while Enter would choose it.
    """
    indent = _CHOICE_INDENT_CELLS if is_tall(menu) else 0
    return wrap_line(_choices_line(menu, typed=typed, calm=calm), width, indent)


def _choices_line(menu: Menu, *, typed: bool, calm: bool) -> Line:
    drafts = typed and not menu.writing
    open_ = (calm or bool(menu.digit)) and not drafts
    between = "\n" if is_tall(menu) else " · "
    row: Line = ()
    for index, choice in enumerate(menu.choices):
        highlighted = open_ and index == menu.selected
        style: Style = "strong" if highlighted else "plain" if open_ else "dim"
        mark = "› " if highlighted else "  " if is_tall(menu) else ""
        letter = f" ({choice.id})" if choice.direct else ""
        before = between if row else ""
        row = (*row, ("dim", before), (style, f"{mark}{index + 1} {choice.label}{letter}"))
    before = between if row else ""
    if drafts:
        return (
            *row,
            ("warn", f"{before}{WAITING_NOTICE}: Enter sends your message first "),
        )
    if not open_ and not menu.writing:
        return (*row, ("warn", f"{before}{WAITING_NOTICE} "))
    amend = "tab amend · " if menu.amends else ""
    if menu.choices and menu.free_text:
        amend = "or type an answer · "
    return (*row, ("dim", f"{before}{amend}esc {menu.leave} ")) if menu.leave else row
