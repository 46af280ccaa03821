"""Reads messages and answers with the line editor of prompt_toolkit.

It is imported only on terminals that support it, because importing prompt_toolkit takes longer
than all other imports together. `key_bindings` has the keys.
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
from refold.console.keyboard_modes import canonical_mode
from refold.console.letter_keys import keep_cursor_between_letters
from refold.console.printer import Printer
from refold.console.reader import Key, PromptKeys, QueuedMessage
from refold.terminal.input.line_editor.drawing import (
    ESC_ALONE_SECONDS,
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
from refold.terminal.input.line_editor.question_bindings import MenuAnswer, QuestionPrompt
from refold.terminal.input.line_editor.typing_pace import TypingPace
from refold.values.text import clean
from refold.views.escape import escape_to_one_line
from refold.views.picker import OnMove, Picker, Search
from refold.views.question_keys import DraftMessage, Menu
from refold.views.styled import Line, Piece
from refold.views.wrap import wrap_rows

_MAX_NAME_CHARS = 1_024  # before the cursor, in which the name of a file is looked for
_MIN_MENU_ROWS = 6  # for the menu, even on a lower screen
# How long a key waits that may begin a sequence: prompt_toolkit's defaults.
_KEY_SECONDS, _KEY_SEQUENCE_SECONDS = 0.5, 1.0
_CONTEXT_CHARS = 4_096  # the text before the cursor that completion examines
_TYPED_AHEAD_SECONDS = 0.5  # within which typed-ahead text arrives, even on a busy machine
_MENU_ROWS = 11  # for the menu of completions, including the row below it
_VI_MODES = {InputMode.INSERT: "i", InputMode.REPLACE: "r", InputMode.REPLACE_SINGLE: "r"}
_Answer = str | QueuedMessage | DraftMessage | MenuAnswer | Key


class PromptToolkitReader:
    """Reads with prompt_toolkit. `complete` returns the completions for the text before the
    cursor.
    """

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
        self._mask_secrets = mask_secrets
        self._pasted = PasteMarks()
        self._prompt_scope: anyio.CancelScope | None = None
        self._shown_at = 0.0
        self._has_shortcuts = False
        self._unsent = ""  # a draft, while it is in no prompt
        self._drafts = dict[str, str]()  # drafts of sessions that the user left
        self._pace = TypingPace(time.monotonic)  # the pace of keys at choices
        self._keyboard = Keyboard(self._input, printer, self._pasted)
        self._external_editor = ExternalEditor(printer, self._pasted)
        take_image = self._keys.paste_image
        self._image = image_paste_handler(printer, take_image) if take_image else None

    async def read_message(self, prompt: Callable[[], Line], text: str = "") -> str | Key:
        """Read a message, which may have several lines and begins as `text`.

        Return a key if it ended the prompt.
        """
        self._shown_at = time.monotonic()
        self._keyboard.parser.fed = 0
        initial_text = text or self._take_unsent_text()
        self._has_shortcuts = not text
        menu_rows = max(min(_MENU_ROWS, self._printer.max_status_rows), _MIN_MENU_ROWS)
        self._message_prompt.reserve_space_for_menu = menu_rows
        try:
            answer = await self._run_prompt(
                self._message_prompt,
                lambda: self._with_vi_mode(prompt()),
                default=initial_text,
            )
        finally:
            self._message_prompt.app.erase_when_done = False  # `close_prompt` sets it
        if answer is not Key.PROMPT_CLOSED:  # otherwise the prompt would be erased
            self._printer.note_typed_line()
        return _text_or_key(answer)

    async def read_line(self, prompt: Line, text: str = "") -> str | Key:
        """Read one line, which begins as `text`. Return a key if it ended the prompt."""
        return _text_or_key(await self._read_short_line(lambda: prompt, text, leave_keys()))

    async def read_draft(
        self, prompt: Callable[[], Line], text: str = ""
    ) -> str | QueuedMessage | Key:
        """Read a message below the output. It begins as `text`.

        Return a `QueuedMessage` if the message is for after the turn, or a key if a key ended
        the prompt. If the prompt is cancelled, the text is kept.
        """
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
        """Ask a question. Return the id of a choice, a text, a sent message, or a key."""
        question = QuestionPrompt(
            menu, prompt, self._pasted, time.monotonic, lambda: self._printer.free_columns
        )
        answer: _Answer = Key.CTRL_C
        with question.open_in(self._short_prompt) as options:
            try:
                answer = await self._run_prompt(
                    self._short_prompt,
                    question.row,
                    default=self._take_unsent_text(),
                    **options,
                )
            finally:
                # The text is a draft, unless it was sent or answers the question.
                if not isinstance(answer, DraftMessage) and not question.menu.writing:
                    self._unsent = self._short_prompt.default_buffer.text
        return answer if isinstance(answer, DraftMessage) else _text_or_key(answer)

    async def read_choice(self, prompt: Line, keys: str) -> str | Key:
        """Read one of `keys`. Return "" for another key, or the key that ended the prompt."""
        if self._keyboard.discard_typed():
            self._pace.note_key()
        bindings = answer_keys(keys, self._pace)
        return _text_or_key(
            await self._run_prompt(
                self._short_prompt,
                lambda: prompt,
                key_bindings=bindings,
                is_password=False,
            )
        )

    async def read_secret(
        self, prompt: Line, shows: Callable[[str], bool] = lambda _: False
    ) -> str | Key:
        """Read a secret. It is hidden, except while `shows` returns true for the typed text."""
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
        """Return the draft of a prompt that was cancelled, or else what is typed next."""
        # The stripped draft is never taken for a complete line, which would be sent.
        unsent = self._take_unsent_text().strip()
        return unsent or await self._keyboard.read_input()

    def _keep_unsent_text(self, *, entered: bool) -> None:
        """Keep the text of a draft whose prompt was cancelled, for the next prompt.

        If Enter was already pressed (`entered`), the next prompt sends the text at once.
        """
        text = self._short_prompt.default_buffer.text
        if entered:
            self._keyboard.pass_to_prompt(f"{text}\r")
        else:
            self._unsent = text

    def _take_unsent_text(self) -> str:
        text, self._unsent = self._unsent, ""
        return text

    def use_vi_keys(self, enabled: bool | None = None) -> bool:
        """Turn vi keys on or off; None changes nothing. Return whether they are on."""
        if enabled is None:
            return self._is_vi
        app = self._message_prompt.app
        app.editing_mode = EditingMode.VI if enabled else EditingMode.EMACS
        app.ttimeoutlen, app.timeoutlen = _KEY_SECONDS, _KEY_SEQUENCE_SECONDS
        if enabled:  # Esc is a key of its own, not the first half of Alt and another key
            app.ttimeoutlen = app.timeoutlen = ESC_ALONE_SECONDS
        return enabled

    def interrupt(self) -> bool:
        """Cancel the open prompt.

        Return False if no prompt is open, or if Enter was just pressed. While the external
        editor is open, Ctrl+C is left to the editor: return True and do nothing.
        """
        # Text that was entered before Ctrl+C is not lost while the prompt closes.
        entered = self._message_prompt.app.is_done or self._short_prompt.app.is_done
        if self._prompt_scope is None or entered:
            return False
        if not self._external_editor.away:  # otherwise Ctrl+C is for the editor
            self._prompt_scope.cancel()
        return True

    def close_prompt(self) -> bool:
        """Close the message prompt, and keep its text as the draft.

        Return False if the prompt is not open or cannot be closed now.
        """
        app = self._message_prompt.app
        if self._prompt_scope is None or not app.is_running:
            return False
        if app.is_done or self._external_editor.away:
            return False
        buffer = self._message_prompt.default_buffer
        if not self._keep_draft(buffer.text):  # the prompt asks to edit a given text
            return False
        app.erase_when_done = True
        app.exit(result=Key.PROMPT_CLOSED)
        return True

    def switch_draft(self, old_session: str, new_session: str) -> None:
        self._drafts[old_session] = self._take_unsent_text()
        self._unsent = self._drafts.pop(new_session, "")

    def restore_draft(self, text: str) -> None:
        """Keep the text as the draft, unless there is a draft or the user is typing one."""
        # otherwise these keys would be added to the text
        if not self._keyboard.has_unread_keys():
            self._unsent = self._unsent or text

    def redraw(self) -> None:
        """Draw the open prompt again, if there is one."""
        if self._prompt_scope is not None:
            self._message_prompt.app.invalidate()
            self._short_prompt.app.invalidate()

    @cached_property
    def _common_arguments(self) -> dict[str, Any]:
        return {"input": self._input, **drawing_arguments(self._printer.capabilities)}

    @cached_property
    def _message_prompt(self) -> "PromptSession[_Answer]":
        actions = KeyActions(
            cycle_mode=self._keys.cycle_mode,
            edit=self._external_editor.edit,
            has_typed_ahead=self._was_typed_ahead,
            shortcut=self._keep_draft,
            image=self._image,
            is_after_stop=self._keyboard.is_after_escape,
        )
        session = PromptSession[_Answer](
            history=open_history(
                self._history, self._pasted.restore_pastes, self._mask_secrets
            ),
            auto_suggest=HistorySuggester(),
            multiline=True,
            prompt_continuation="  ",
            key_bindings=message_keys(self._pasted, actions),
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
        # These prompts have no history, because what is typed may be a secret.
        session = PromptSession[_Answer](
            history=DummyHistory(), erase_when_done=True, **self._common_arguments
        )
        erase_reflowed_rows(session.app, self._printer.capabilities)
        keep_cursor_between_letters(session.app)
        # Esc must not be held back for long as a possible start of Alt+Enter.
        session.app.ttimeoutlen = session.app.timeoutlen = ESC_ALONE_SECONDS
        return session

    async def _read_short_line(
        self, prompt: Callable[[], Line], text: str, keys: KeyBindings
    ) -> _Answer:
        bindings = merge_key_bindings([text_keys(self._pasted), keys])
        return await self._run_prompt(
            self._short_prompt,
            prompt,
            default=text,
            key_bindings=bindings,
            is_password=False,
        )

    async def _run_prompt(
        self, session: "PromptSession[_Answer]", prompt: Callable[[], Line], **options: Any
    ) -> _Answer:
        """Run a prompt. Return its answer, or the key Ctrl+C if it is cancelled."""
        self._printer.start_line()
        self._printer.clear_status()

        def message() -> FormattedText:
            # prompt_toolkit cuts rows that are too wide, except the last.
            first, *rest = wrap_rows(prompt(), self._printer.free_columns)
            shown = [*first]
            for row in rest:
                shown += [("plain", "\n"), *row]
            return FormattedText([(f"class:{style}", text) for style, text in shown])

        answer: _Answer = Key.CTRL_C
        with anyio.CancelScope() as self._prompt_scope:
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
                self._prompt_scope = None
        self._keyboard.enable_paste_marks()
        return _with_pasted_text(answer, self._pasted)

    def _keep_draft(self, text: str) -> bool:
        """Keep the text for the next prompt, because a shortcut or a program ends this one.

        Return False, and keep nothing, if this prompt began with a text: shortcuts are off.
        """
        if self._has_shortcuts:
            self._unsent = text
        return self._has_shortcuts

    def _has_name_to_complete(self) -> bool:
        """Return whether a command or a file may be named before the cursor."""
        document = self._message_prompt.default_buffer.document
        if document.text.startswith("/"):  # the name of a command
            return True
        return names_a_file(document.current_line_before_cursor[-_MAX_NAME_CHARS:])

    @property
    def _is_vi(self) -> bool:
        return self._message_prompt.app.editing_mode == EditingMode.VI

    def _with_vi_mode(self, prompt: Line) -> Line:
        """Return the prompt; with vi keys, the current vi mode is shown before it."""
        if not self._is_vi:
            return prompt
        mode = self._message_prompt.app.vi_state.input_mode
        sign: Piece = ("dim", f"[{_VI_MODES.get(mode, 'n')}] ")
        return (sign, *prompt)

    def _was_typed_ahead(self) -> bool:
        """Return whether the text was typed before the prompt was shown.

        That text arrives in one piece, right after the prompt has opened.
        """
        is_first_piece = self._keyboard.parser.fed <= 1
        seconds_open = time.monotonic() - self._shown_at
        return is_first_piece and seconds_open < _TYPED_AHEAD_SECONDS


def _with_pasted_text(answer: _Answer, pasted: PasteMarks) -> _Answer:
    """Return the answer with the pasted texts in place of their marks."""
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
    """Return the answer without its type: the text, the id of the choice, or the key."""
    match answer:
        case QueuedMessage(words) | DraftMessage(words):
            return words
        case MenuAnswer(choice, text):
            return choice or text
        case _:
            return answer


class PromptCompleter(Completer):
    """Offers completions in the menu of prompt_toolkit.

    `complete` finds the completions in a thread, while keys are read. Completions are
    escaped, because names of files may contain control characters.
    """

    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield the completions for the text before the cursor. Only its end is examined."""
        before = document.text_before_cursor
        if len(before) > _CONTEXT_CHARS:
            before = " " + before[-_CONTEXT_CHARS:]  # a blank: the text does not begin here
        for offer in self._complete(before):
            yield Completion(
                offer.text,
                start_position=-offer.instead_of,
                display=escape_to_one_line(offer.shown or offer.text),
                display_meta=escape_to_one_line(offer.about),
            )
