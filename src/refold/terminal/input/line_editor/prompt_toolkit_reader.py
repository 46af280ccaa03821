"""Reads with a line editor: history, completion, several lines, single keys.

prompt_toolkit is imported only if the terminal supports it: the import takes longer than all
others. `key_bindings` has the keys.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import DummyHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, merge_key_bindings
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.layout.processors import TabsProcessor

from refold.commands.completion import Complete, names_a_file
from refold.console.editor import edit_text
from refold.console.history import HistorySuggester, open_history
from refold.console.keys import canonical_mode
from refold.console.letter_keys import keep_cursor_between_letters
from refold.console.printer import Printer
from refold.console.reader import Key, PromptKeys, QueuedMessage
from refold.terminal.input.line_editor.choosing import MenuAnswer, QuestionPrompt
from refold.terminal.input.line_editor.drawing import (
    ESC_ALONE,
    DraftEditor,
    drawing_arguments,
    erase_reflowed_rows,
    style_arguments,
)
from refold.terminal.input.line_editor.external_editor import ExternalEditor
from refold.terminal.input.line_editor.image_pasting import image_paste_handler
from refold.terminal.input.line_editor.key_bindings import (
    KeyActions,
    answer_keys,
    leave_keys,
    message_keys,
    send_keys,
    text_keys,
)
from refold.terminal.input.line_editor.keyboard import Keyboard
from refold.terminal.input.line_editor.pastes import PasteMarks
from refold.terminal.input.line_editor.typing_pace import TypingPace
from refold.values.text import clean
from refold.views.escape import escape_to_one_line
from refold.views.picker import OnMove, Picker, Search
from refold.views.question_keys import DraftMessage, Menu
from refold.views.styled import Line, Piece
from refold.views.wrap import wrap_rows

_CONTEXT_CHARS = 4_096  # characters before the cursor that can matter
_TYPED_AHEAD_SECONDS = 0.5  # seconds in which it arrives, also on a busy machine
_MENU_ROWS = 11  # rows for the menu of completions, the one below it included
_VI_MODES = {InputMode.INSERT: "i", InputMode.REPLACE: "r", InputMode.REPLACE_SINGLE: "r"}
_Answer = str | QueuedMessage | DraftMessage | MenuAnswer | Key


class PromptToolkitReader:
    """Reads with prompt_toolkit. `complete` returns the completions at the cursor."""

    has_line_editor = reads_input = can_edit_text = True

    def __init__(
        self,
        printer: Printer,
        *,
        history: Path | None = None,
        mask_secrets: Callable[[str], str] = lambda text: text,
        complete: Complete | None = None,
        keys: PromptKeys | None = None,
    ) -> None:
        self._printer = printer
        self._input = create_input()
        assert isinstance(self._input, Vt100Input)  # it is a terminal
        self._history, self._complete = history, complete
        self._keys = keys or PromptKeys()
        self._masked = mask_secrets
        self._pasted = PasteMarks()
        self._asking: anyio.CancelScope | None = None
        self._began = 0.0
        self._shortcuts = False
        self._unsent = ""  # a draft, while no prompt has it
        self._drafts = dict[str, str]()  # of sessions that were left
        self._pace = TypingPace(time.monotonic)  # at choices
        self._keyboard = Keyboard(self._input, printer, self._pasted)
        self._elsewhere = ExternalEditor(printer, self._pasted)
        take = self._keys.paste_image
        self._image = image_paste_handler(printer, take) if take else None

    async def read_message(self, prompt: Callable[[], Line], text: str = "") -> str | Key:
        self._began, self._keyboard.parser.fed = time.monotonic(), 0
        initial_text, self._shortcuts = text or self._take_unsent_text(), not text
        self._message_prompt.reserve_space_for_menu = max(
            min(_MENU_ROWS, self._printer.max_status_rows), 6
        )
        try:
            answer = await self._run_prompt(
                self._message_prompt,
                lambda: self._with_vi_mode(prompt()),
                default=initial_text,
            )
        finally:
            self._message_prompt.app.erase_when_done = False
        if answer is not Key.PROMPT_CLOSED:  # otherwise the prompt would be gone
            self._printer.note_typed_line()
        return _text_or_key(answer)

    async def read_line(self, prompt: Line, text: str = "") -> str | Key:
        return _text_or_key(await self._read_short_line(lambda: prompt, text, leave_keys()))

    async def read_draft(
        self, prompt: Callable[[], Line], text: str = ""
    ) -> str | QueuedMessage | Key:
        editor = DraftEditor(self._short_prompt.app, self._printer)
        answer: _Answer = Key.CTRL_C
        entered = anyio.Event()
        with self._printer.print_above(editor):
            try:
                answer = await self._read_short_line(
                    lambda: (*editor.status, *prompt()), text, send_keys(entered.set)
                )
            finally:
                if isinstance(answer, Key):
                    self._keep_unsent_text(entered=entered.is_set())
        if answer is Key.ESC:
            self._keyboard.note_escape()
        return answer if isinstance(answer, QueuedMessage) else _text_or_key(answer)

    async def choose(self, menu: Menu, prompt: Line = ()) -> str | DraftMessage | Key:
        open_ = QuestionPrompt(
            menu, prompt, self._pasted, time.monotonic, lambda: self._printer.free_columns
        )
        answer: _Answer = Key.CTRL_C
        with open_.open_in(self._short_prompt) as options:
            try:
                answer = await self._run_prompt(
                    self._short_prompt,
                    open_.row,
                    default=self._take_unsent_text(),
                    **options,
                )
            finally:
                if not isinstance(answer, DraftMessage) and not open_.menu.writing:
                    self._unsent = self._short_prompt.default_buffer.text
        return answer if isinstance(answer, DraftMessage) else _text_or_key(answer)

    async def read_choice(self, prompt: Line, keys: str) -> str | Key:
        if self._keyboard.discard_typed():
            self._pace.note_key()
        keyed = answer_keys(keys, self._pace)
        return _text_or_key(
            await self._run_prompt(
                self._short_prompt,
                lambda: prompt,
                key_bindings=keyed,
                is_password=False,
            )
        )

    async def read_secret(
        self, prompt: Line, shows: Callable[[str], bool] = lambda _: False
    ) -> str | Key:
        hidden = Condition(lambda: not shows(self._short_prompt.default_buffer.text))
        return _text_or_key(
            await self._run_prompt(
                self._short_prompt,
                lambda: prompt,
                key_bindings=leave_keys(),
                is_password=hidden,
            )
        )

    async def edit(self, text: str, command: tuple[str, ...], name: str) -> str:
        with canonical_mode(self._input.fileno()):
            return await edit_text(text, command, name)

    async def pick(
        self,
        picker: Picker,
        search: Search | None = None,
        on_move: OnMove | None = None,
    ) -> Picker | None:
        from refold.terminal.input.line_editor.picker_list import pick

        self._printer.start_line()
        return await pick(self._printer, picker, search, on_move)

    def erase_question(self) -> bool:
        return False

    def suppress_echo(self) -> AbstractContextManager[None]:
        return self._keyboard.suppress_echo()

    async def read_input(self) -> str:
        # Stripped, a draft is never taken for a complete line, which would be sent.
        return self._take_unsent_text().strip() or await self._keyboard.read_input()

    def _keep_unsent_text(self, *, entered: bool) -> None:
        """Keep the text of `read_draft` for the next prompt, which sends it after Enter."""
        text = self._short_prompt.default_buffer.text
        if entered:
            self._keyboard.pass_to_prompt(f"{text}\r")
        else:
            self._unsent = text

    def _take_unsent_text(self) -> str:
        text, self._unsent = self._unsent, ""
        return text

    def use_vi_keys(self, enabled: bool | None = None) -> bool:
        if enabled is None:
            return self._is_vi
        app = self._message_prompt.app
        app.editing_mode = EditingMode.VI if enabled else EditingMode.EMACS
        # In vi mode Esc is a key of its own, not the first half of Alt and another key.
        app.ttimeoutlen, app.timeoutlen = (ESC_ALONE,) * 2 if enabled else (0.5, 1.0)
        return enabled

    def interrupt(self) -> bool:
        # What was entered before Ctrl+C is not lost while the prompt closes.
        entered = self._message_prompt.app.is_done or self._short_prompt.app.is_done
        if self._asking is None or entered:
            return False
        if not self._elsewhere.away:  # otherwise Ctrl+C is for the editor
            self._asking.cancel()
        return True

    def close_prompt(self) -> bool:
        app = self._message_prompt.app
        busy = app.is_done or not app.is_running or self._elsewhere.away
        if self._asking is None or busy:
            return False
        buffer = self._message_prompt.default_buffer
        if not self._keep_draft(buffer.text):  # the draft is edited while work is shown
            return False
        app.erase_when_done = True
        app.exit(result=Key.PROMPT_CLOSED)
        return True

    def switch_draft(self, old_session: str, new_session: str) -> None:
        self._drafts[old_session] = self._take_unsent_text()
        self._unsent = self._drafts.pop(new_session, "")

    def restore_draft(self, text: str) -> None:
        if not self._keyboard.has_unread_keys():  # these would be added to the text
            self._unsent = self._unsent or text

    def redraw(self) -> None:
        if self._asking is not None:
            self._message_prompt.app.invalidate()
            self._short_prompt.app.invalidate()

    @cached_property
    def _common_arguments(self) -> dict[str, Any]:
        return {"input": self._input, **drawing_arguments(self._printer.capabilities)}

    @cached_property
    def _message_prompt(self) -> "PromptSession[_Answer]":
        doing = KeyActions(
            self._keys.cycle_mode,
            self._elsewhere.edit,
            self._was_typed_ahead,
            self._keep_draft,
            self._image,
            self._keyboard.is_after_escape,
        )
        session = PromptSession[_Answer](
            history=open_history(self._history, self._pasted.restore_pastes, self._masked),
            auto_suggest=HistorySuggester(),
            multiline=True,
            prompt_continuation="  ",
            key_bindings=message_keys(self._pasted, doing),
            completer=PromptCompleter(self._complete) if self._complete else None,
            complete_in_thread=True,
            complete_while_typing=Condition(self._has_name_to_complete),
            enable_history_search=False,
            input_processors=[TabsProcessor(char1=" ", char2=" ")],
            **self._common_arguments,
        )
        erase_reflowed_rows(session.app, self._printer.capabilities)
        keep_cursor_between_letters(session.app)
        return session

    @cached_property
    def _short_prompt(self) -> "PromptSession[_Answer]":
        # No history: what is typed at these prompts may be a secret.
        session = PromptSession[_Answer](
            history=DummyHistory(), erase_when_done=True, **self._common_arguments
        )
        erase_reflowed_rows(session.app, self._printer.capabilities)
        keep_cursor_between_letters(session.app)
        # Esc must not be held back for long as a possible start of Alt+Enter.
        session.app.ttimeoutlen = session.app.timeoutlen = ESC_ALONE
        return session

    async def _read_short_line(
        self, prompt: Callable[[], Line], text: str, keys: KeyBindings
    ) -> _Answer:
        bound = merge_key_bindings([text_keys(self._pasted), keys])
        return await self._run_prompt(
            self._short_prompt,
            prompt,
            default=text,
            key_bindings=bound,
            is_password=False,
        )

    async def _run_prompt(
        self, session: "PromptSession[_Answer]", prompt: Callable[[], Line], **options: Any
    ) -> _Answer:
        self._printer.start_line()
        self._printer.clear_status()

        def message() -> FormattedText:
            # prompt_toolkit cuts what is too wide in all rows but the last.
            first, *rest = wrap_rows(prompt(), self._printer.free_columns)
            shown = (*first, *(piece for row in rest for piece in (("plain", "\n"), *row)))
            return FormattedText([(f"class:{style}", text) for style, text in shown])

        answer: _Answer = Key.CTRL_C
        with anyio.CancelScope() as self._asking:
            try:
                answer = await session.prompt_async(
                    message,
                    handle_sigint=False,
                    **style_arguments(self._printer.capabilities),
                    **options,
                )
            except EOFError:
                answer = Key.CTRL_D
            finally:  # Ctrl+C between two prompts is for the work
                self._asking = None
        self._keyboard.enable_paste_marks()
        return _with_pasted_text(answer, self._pasted)

    def _keep_draft(self, text: str) -> bool:
        """Keep the text when a shortcut is pressed; return False if it has no effect."""
        if self._shortcuts:
            self._unsent = text
        return self._shortcuts

    def _has_name_to_complete(self) -> bool:
        document = self._message_prompt.default_buffer.document
        before = document.current_line_before_cursor[-1024:]
        return document.text.startswith("/") or names_a_file(before)

    @property
    def _is_vi(self) -> bool:
        return self._message_prompt.app.editing_mode == EditingMode.VI

    def _with_vi_mode(self, prompt: Line) -> Line:
        """Return the prompt, preceded by the vi mode if vi keys are on."""
        if not self._is_vi:
            return prompt
        mode = self._message_prompt.app.vi_state.input_mode
        sign: Piece = ("dim", f"[{_VI_MODES.get(mode, 'n')}] ")
        return (sign, *prompt)

    def _was_typed_ahead(self) -> bool:
        return (
            self._keyboard.parser.fed <= 1
            and time.monotonic() - self._began < _TYPED_AHEAD_SECONDS
        )


def _with_pasted_text(answer: _Answer, pasted: PasteMarks) -> _Answer:
    """Return the answer with its pastes in place of their marks."""
    match answer:
        case str():
            return clean(pasted.restore_pastes(answer))
        case QueuedMessage(words):
            return QueuedMessage(clean(pasted.restore_pastes(words)))
        case DraftMessage(words, later):
            return DraftMessage(clean(pasted.restore_pastes(words)), later)
        case MenuAnswer(choice, text):
            return MenuAnswer(choice, clean(pasted.restore_pastes(text)))
        case Key():
            return answer


def _text_or_key(answer: _Answer) -> str | Key:
    match answer:
        case QueuedMessage(words) | DraftMessage(words):
            return words
        case MenuAnswer(choice, text):
            return choice or text
        case _:
            return answer


# Completions for the menu of the line editor. `completion` finds them; this runs it in a
# thread, while keys are read, and escapes the names, which may contain anything.
class PromptCompleter(Completer):
    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        if len(before) > _CONTEXT_CHARS:
            before = " " + before[-_CONTEXT_CHARS:]
        for offer in self._complete(before):
            yield Completion(
                offer.text,
                start_position=-offer.instead_of,
                display=escape_to_one_line(offer.shown or offer.text),
                display_meta=escape_to_one_line(offer.about),
            )
