"""Decides what each key does while a question waits for the user. Pure.

`press_key` and `type_text` are the whole table; `server/pages/shared/question_keys.js` is the
same in JavaScript, and both are tested against `tests/views/question_keys.json`. A question is
in one of these states:

- *draft*: the message that the user types has text. All text goes into it, and Enter sends it.
- *busy*: there is no draft, but a key came within the last `CALM_SECONDS`, or the question has
  been shown for a shorter time than that. Text begins a draft, and Enter does nothing.
- *calm*: Enter gives the highlighted choice, `y` and `n` give their choices, a digit highlights
  a choice. Other text begins a draft, or the answer if the question takes free text. Right
  after a digit, Enter gives the choice that the digit highlighted, even if the state is busy.
- *writing*: the free text of the answer is not empty. Enter gives the answer.

At a permission question in a terminal, Tab also gives the highlighted choice, and then the user
can write words for the model. Arrows highlight a choice whenever nothing is typed. No letter
gives a choice that widens rights. The caller knows the text and the time; this module decides.

A question that a slash command asks takes one key, but ignores a key that follows another one
within `CALM_SECONDS`: it may be a letter of a sentence that the user is still typing.

So text that is being typed never answers a question: half a word of a message must not run a
command or change the mode. It is not enough to ignore keys for a moment after a question
appears, because the sentence continues after that moment. A question cannot wait until the
draft is sent, because that may never happen.
"""

from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.views.styled import Line, Style
from refold.views.wrap import wrap_line

CALM_SECONDS = 0.7
WAITING_NOTICE = "a question waits"
MAX_DIGIT = 9  # the highest digit that highlights a choice
# In an answer before the id of a choice: the user also wants to write words for the model.
AMEND_MARK = "\t"
_MAX_ROW_CELLS = 76  # of choices in one row
_CHOICE_INDENT_CELLS = 4  # indent of the second row of a choice
_CHOICE_EXTRA_CELLS = 9  # around a label: its number, its letter and the separator
_ARROW_STEPS = {"up": -1, "left": -1, "down": 1, "right": 1}
_LEAVE_KEYS = ("esc", "ctrl+c", "ctrl+d")


class Choice(Struct, frozen=True):
    """A choice of a question. `id` is one letter; `widens` says that it gives further rights.

    A choice that widens rights cannot be given by its letter.
    """

    id: str
    label: str
    widens: bool = False

    @property
    def direct(self) -> bool:
        """Whether the letter of this choice gives it."""
        return self.id in ("y", "n") and not self.widens


class Menu(Struct, frozen=True):
    """The choices of a question, and the state of its keys.

    `selected` is the index of the highlighted choice. `leave` says what Esc does. With
    `free_text`, the answer may be text; `writing` says that it is being typed. `digit` is the
    digit that has just highlighted a choice; it becomes text if more text follows. With
    `send_leaves`, sending a message postpones the question. With `amends`, Tab gives the
    highlighted choice, too: the answer is then its id after `AMEND_MARK`, and the display asks
    for words.
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
    """The effect of a key: an action, and the menu after the key.

    "answer" answers with the choice whose id is `value`, or with the typed text. "select"
    highlights a choice. "draft" adds `value` to the draft, "write" adds it to the answer.
    "send" sends the draft. "leave" leaves the question. "edit" lets the key edit the text, as
    without a question. "wait" does nothing.
    """

    action: Action
    menu: Menu
    value: str = ""


class DraftMessage(Struct, frozen=True):
    """A message that the user sent while a question waited. With `later`, it waits for the
    turn's end.
    """

    words: str
    later: bool = False


def press_key(menu: Menu, key: str, *, typed: bool, calm: bool) -> Pressed:
    """Return the effect of a named key, such as `enter`.

    `typed` says that the draft or the answer is not empty, `calm` that no key came within the
    last `CALM_SECONDS`. Without `calm`, Enter does not answer: it may have been meant for the
    draft.
    """
    if key in _LEAVE_KEYS:
        return Pressed("leave", _reset(menu))
    if typed:
        enter_action: Action = "answer" if menu.writing else "send"
        return Pressed(enter_action if key == "enter" else "edit", menu)
    if key in _ARROW_STEPS and menu.choices:
        index = (menu.selected + _ARROW_STEPS[key]) % len(menu.choices)
        return Pressed("select", replace(_reset(menu), selected=index))
    amends = key == "tab" and menu.amends  # Tab answers, and a text is asked for
    if key != "enter" and not amends:
        return Pressed("edit", menu)
    may_answer = calm or menu.digit != ""
    has_answer = bool(menu.choices) or menu.free_text
    if not may_answer or not has_answer:
        return Pressed("wait", menu)
    value = menu.choices[menu.selected].id if menu.choices else ""
    return Pressed("answer", menu, f"{AMEND_MARK}{value}" if amends else value)


def type_text(menu: Menu, text: str, *, typed: bool, calm: bool) -> Pressed:
    """Return the effect of typed or pasted text. `typed` and `calm` are as in `press_key`."""
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
    """Whether the choices do not fit on one row, and are shown one below the other."""
    row_cells = sum(len(choice.label) + _CHOICE_EXTRA_CELLS for choice in menu.choices)
    return row_cells > _MAX_ROW_CELLS


def menu_line(menu: Menu, width: int, *, typed: bool, calm: bool) -> Line:
    """Return the choices as a line that is wrapped at `width` cells.

    A choice is highlighted only while Enter would give it.
    """
    indent = _CHOICE_INDENT_CELLS if is_tall(menu) else 0
    return wrap_line(_choices_line(menu, typed=typed, calm=calm), width, indent)


def _choices_line(menu: Menu, *, typed: bool, calm: bool) -> Line:
    """Return the choices as one line, and after them a warning or a hint about the keys.

    While Enter would not answer, no choice is highlighted.
    """
    is_message = typed and not menu.writing  # the typed text is not an answer
    enter_answers = (calm or bool(menu.digit)) and not is_message
    separator = "\n" if is_tall(menu) else " · "
    row: Line = ()
    for index, choice in enumerate(menu.choices):
        style: Style = "plain" if enter_answers else "dim"
        mark = "  " if is_tall(menu) else ""
        if enter_answers and index == menu.selected:
            style, mark = "strong", "› "
        letter = f" ({choice.id})" if choice.direct else ""
        text = f"{mark}{index + 1} {choice.label}{letter}"
        row = (*row, ("dim", separator if row else ""), (style, text))
    last_separator = separator if row else ""
    if is_message:
        warning = f"{WAITING_NOTICE}: Enter sends your message first "
        return (*row, ("warn", f"{last_separator}{warning}"))
    if not enter_answers and not menu.writing:
        return (*row, ("warn", f"{last_separator}{WAITING_NOTICE} "))
    if not menu.leave:
        return row
    hint = "tab amend · " if menu.amends else ""
    if menu.choices and menu.free_text:
        hint = "or type an answer · "
    return (*row, ("dim", f"{last_separator}{hint}esc {menu.leave} "))
