"""Lets the user fill in a form of an MCP server, or asks whether to open an address.

The whole form is shown with its defaults, and is sent only when the user presses Enter. Each
value is checked when it is typed. The answer can be to accept, decline or cancel. An address is
opened only if the user chooses to open it.
"""

import os
import re
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp

from refold.console.open_page import NO_BROWSER, open_page
from refold.console.printer import Printer
from refold.console.reader import DialogReader, Key
from refold.values.display import Form, FormAction, FormAnswer, FormField, FormValue
from refold.values.forms import field_hint, parse_field, shown_value
from refold.views.escape import escape_to_one_line
from refold.views.form_lines import choice_lines, field_lines, form_lines
from refold.views.question_keys import Choice, Menu
from refold.views.styled import Line

_LEAVE_WORD = "cancel"
_DECLINE_CHOICE = Choice("n", "decline")
_PAGE_MENU = Menu(
    (
        Choice("o", "open it in the browser", widens=True),
        Choice("c", "I open it myself", widens=True),
        _DECLINE_CHOICE,
    ),
    leave=_LEAVE_WORD,
)
_UNSHOWN_MENU = Menu((_DECLINE_CHOICE,), leave=_LEAVE_WORD)
_FORM_MENU = Menu(leave=_LEAVE_WORD, free_text=True)
# the number of a field, as in 2, or with a value, as in 2=text
_FIELD_PATTERN = re.compile(r"(\d{1,3})(?:\s*[=:]\s*(.*))?", re.DOTALL)
_DECLINE_WORDS = ("d", "decline")

Choose = Callable[[Menu, Line], Awaitable[str | Key]]


class FormPrompt:
    """Asks the user to fill in one form. `ask` returns the answer, or None to stop the turn."""

    def __init__(
        self, form: Form, printer: Printer, reader: DialogReader, choose: Choose
    ) -> None:
        self._form, self._printer = form, printer
        self._reader, self._choose = reader, choose
        self._content: dict[str, FormValue] = form.defaults
        # kept, because Python warns about a process that is forgotten while it runs
        self._browser: subprocess.Popen[bytes] | None = None

    async def ask(self) -> FormAnswer | None:
        """Ask until the form is sent, declined or cancelled. None means: stop the turn."""
        self._printer.print_lines(
            form_lines(self._form, self._content, self._printer.free_columns)
        )
        if self._form.problem or self._form.url:
            return await self._ask_about_page()
        # Only the first question appears unexpectedly; later ones respond to the user's
        # input.
        typed = await self._choose(_FORM_MENU, self._form_prompt())
        while True:
            match typed:
                case str(words):
                    if (action := await self._handle_line(words.strip())) is not None:
                        content = self._content if action == "accept" else {}
                        return FormAnswer(action, content)
                case Key.ESC:
                    return FormAnswer("cancel")
                case _:
                    return None
            typed = await self._reader.read_line(self._form_prompt())

    async def _ask_about_page(self) -> FormAnswer | None:
        """Ask whether to open the address of the form.

        If the form cannot be shown, ask whether to decline it.
        """
        menu = _UNSHOWN_MENU if self._form.problem else _PAGE_MENU
        match await self._choose(menu, ()):
            case "o":
                # The file is not deleted here, because the browser reads it later.
                redirect_file = Path(mkdtemp(prefix="refold-")) / "open.html"
                self._browser = open_page(self._form.url, redirect_file, os.environ)
                if self._browser is None:
                    self._printer.print_text(NO_BROWSER, "warn")
                return FormAnswer("accept")
            case "c":
                return FormAnswer("accept")
            case "n":
                return FormAnswer("decline")
            case Key.ESC:
                return FormAnswer("cancel")
            case _:
                return None

    def _missing_numbers(self) -> list[int]:
        """Return the numbers of the required fields that are empty."""
        return [
            number
            for number, field in enumerate(self._form.fields, 1)
            if field.required and field.name not in self._content
        ]

    def _form_prompt(self) -> Line:
        """Return the prompt, and above it a hint that says what Enter does now."""
        missing_count = len(self._missing_numbers())
        hints = ["Enter sends it"]
        if missing_count:
            fields = "1 field" if missing_count == 1 else f"{missing_count} fields"
            hints = [f"Enter fills in what is needed ({fields})"]
        if self._form.fields:
            hints.append("a number changes that field, as in 2 or 2=text")
        hints += ("d declines", "Esc cancels")
        return (("dim", f"{' · '.join(hints)}\n"), ("person", "form › "))

    async def _handle_line(self, text: str) -> FormAction | None:
        """Handle a line that was typed at the form. Return the action, or None to ask again."""
        if text.lower() in _DECLINE_WORDS:
            return "decline"
        if not text:
            return await self._send()
        match = _FIELD_PATTERN.fullmatch(text)
        number = int(match[1]) if match else 0
        count = len(self._form.fields)
        if match is None or not 1 <= number <= count:
            advice = "Enter accepts, d declines"
            if count:
                advice = f"type its number, 1 to {count}"
            problem = f"{escape_to_one_line(text)!r} is not a field: {advice}"
            self._printer.print_text(problem, "warn")
        elif match[2] is None:
            await self._ask_for_value(number)
            self._show(number)
        elif self._store_value(self._form.fields[number - 1], match[2]):
            self._show(number)
        return None

    async def _send(self) -> FormAction | None:
        """Return "accept" if the form is complete.

        Otherwise ask for the missing values, show the form again, and return None.
        """
        missing = self._missing_numbers()
        if not missing:
            return "accept"
        for number in missing:
            if not await self._ask_for_value(number):
                break
        self._show(*range(1, len(self._form.fields) + 1))
        return None

    async def _ask_for_value(self, number: int) -> bool:
        """Ask for the value of field `number` until it is valid.

        Return False if the user goes back.
        """
        field = self._form.fields[number - 1]
        self._printer.print_lines(choice_lines(field, self._printer.free_columns))
        hint = (
            "a number or a name" if field.options else escape_to_one_line(field_hint(field))
        )
        several = ", several with commas" if field.kind == "choices" else ""
        note = f" ({hint}{several})" if hint else ""
        prompt: Line = (
            ("dim", f"{number} "),
            ("person", f"{escape_to_one_line(field.label)}{note} › "),
        )
        text = shown_value(field, self._content.get(field.name))
        while True:
            offered_text = text if self._reader.can_edit_text else ""
            answer = await self._reader.read_line(prompt, offered_text)
            if not isinstance(answer, str):
                return False
            if self._store_value(field, answer):
                return True
            text = answer  # to be corrected

    def _store_value(self, field: FormField, typed: str) -> bool:
        """Store the typed value if it is valid; otherwise print why not.

        Return whether the value is valid.
        """
        try:
            value = parse_field(field, typed)
        except ValueError as error:
            self._printer.print_text(
                f"{escape_to_one_line(field.label)}: {escape_to_one_line(str(error))}",
                "warn",
            )
            return False
        if value is None:
            self._content.pop(field.name, None)
        else:
            self._content[field.name] = value
        return True

    def _show(self, *numbers: int) -> None:
        """Draw the form again in its place.

        If the display cannot do this, print only the fields with these numbers.
        """
        width = self._printer.free_columns
        if self._reader.erase_question():
            self._printer.print_lines(form_lines(self._form, self._content, width))
            return
        for number in numbers:
            field = self._form.fields[number - 1]
            self._printer.print_lines(
                field_lines(number, field, self._content.get(field.name), width)
            )


def answer_line(form: Form, answer: FormAnswer) -> str:
    """Return an answer as one line to print."""
    if answer.action != "accept":
        return "declined" if answer.action == "decline" else "cancelled"
    if form.url or not form.fields:
        return "accepted"
    if not answer.content:
        return "sent, empty"
    return f"sent: {_values_text(form.fields, answer.content)}"


def _values_text(fields: tuple[FormField, ...], content: Mapping[str, FormValue]) -> str:
    texts = [
        f"{field.label}: {shown_value(field, content[field.name])}"
        for field in fields
        if field.name in content
    ]
    return escape_to_one_line(", ".join(texts))
