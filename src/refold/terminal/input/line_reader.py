"""Reads whole lines: from a terminal without cursor control, a screen reader or a pipe.

`LineReader` writes only the prompt; the terminal itself echoes and edits the line. A line that
ends with a backslash is continued on the next line. A line that is only Esc counts as the key.
"""

import codecs
import os
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import anyio
from anyio import to_thread
from msgspec.structs import replace

from refold.console.editor import edit_text
from refold.console.keyboard_modes import (
    canonical_mode,
    cbreak_mode,
    disable_echo,
    discard_input,
    is_readable,
    read_key,
    unread_input,
    wait_readable,
)
from refold.console.printer import Printer
from refold.console.reader import Key, QueuedMessage
from refold.views.question_keys import (
    CALM_SECONDS,
    DraftMessage,
    Menu,
    Pressed,
    menu_line,
    press_key,
    type_text,
)
from refold.views.styled import Line

_ESC_KEY = "\x1b"
_ANSWER_WORDS = {"yes": "y", "no": "n"}


class LineReader:
    """Reads lines from the file descriptor `source`."""

    has_line_editor = can_edit_text = False

    def __init__(
        self,
        printer: Printer,
        source: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._printer, self._source, self._clock = printer, source, clock
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.reads_input = os.isatty(source)
        self._buffered = ""  # input that was read from `source` and not returned yet
        self._input_ended = False
        self._prompt_scope: anyio.CancelScope | None = None  # of the open prompt
        self._prompt: Line = ()
        self._prompt_closed = False  # whether `close_prompt` has cancelled it

    async def read_message(self, prompt: Callable[[], Line], text: str = "") -> str | Key:
        """Read a message. A backslash at the end of a line continues it on the next line.

        Return a key if it ended the prompt. `text` is ignored, because the terminal edits the
        line.
        """
        lines = list[str]()
        while True:
            continuation_prompt: Line = (("plain", "  "),)
            line = await self._read_prompted_line(
                continuation_prompt if lines else prompt()
            )
            if isinstance(line, Key):
                return line
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])

    async def read_line(self, prompt: Line, text: str = "") -> str | Key:
        """Read one line and return `text` followed by it. Return a key if it ended the prompt."""
        line = await self._read_prompted_line(
            (*prompt, ("plain", text)) if text else prompt
        )
        if isinstance(line, Key):
            return line
        return Key.ESC if line.strip(" ") == _ESC_KEY else text + line

    async def read_draft(
        self, prompt: Callable[[], Line], text: str = ""
    ) -> str | QueuedMessage | Key:
        return await self.read_line(prompt(), text)

    async def choose(self, menu: Menu, prompt: Line = ()) -> str | DraftMessage | Key:
        """Read the answer to a question. Return the id of a choice, a text, or a key.

        A line that was sent before the question is returned as a message.
        """
        if self.reads_input:
            line = await self._line_before_question()
            if line is not None:
                return DraftMessage(line)
        shown_at = self._clock()
        menu = replace(menu, amends=False)  # Tab is text here
        while True:
            width = self._printer.free_columns
            question = prompt or menu_line(menu, width, typed=False, calm=True)
            answer = await self._read_prompted_line(question)
            if isinstance(answer, Key):
                return answer
            if answer.strip(" ") == _ESC_KEY:
                return Key.ESC
            calm = not self.reads_input or self._clock() - shown_at >= CALM_SECONDS
            pressed = interpret_line(menu, answer, calm=calm)
            match pressed.action:
                case "answer" | "write":
                    return pressed.value
                case "draft" if self.reads_input:
                    return DraftMessage(answer)
                case _:
                    ids = f"1 to {len(menu.choices)}" if menu.choices else "an answer"
                    self._printer.print_text(f"Type {ids} and Enter.", "dim")

    async def read_choice(self, prompt: Line, keys: str) -> str | Key:
        """Read a line, and return it if it is one of `keys`, or "" for any other text.

        The words "yes" and "no" mean `y` and `n`.
        """
        if self.reads_input:  # a line that was typed before the question does not answer it
            discard_input(self._source)
            self._buffered = ""
        line = await self.read_line(prompt)
        if isinstance(line, Key):
            return line
        word = line.strip().lower()
        key = _ANSWER_WORDS.get(word, word)
        return key if len(key) == 1 and key in keys else ""

    async def read_secret(
        self, prompt: Line, shows: Callable[[str], bool] = lambda _: False
    ) -> str | Key:
        """Read a line without echo. `shows` is ignored, because the terminal draws the line."""
        line = await self._read_prompted_line(prompt, disable_echo)
        if self.reads_input:
            self._printer.print_text("")
        return line

    async def edit(self, text: str, command: tuple[str, ...], name: str) -> str:
        return await edit_text(text, command, name)

    def erase_question(self) -> bool:
        return False

    @contextmanager
    def suppress_echo(self) -> Generator[None]:
        """Within the block, do not echo keys. Unread keys are kept for the next prompt."""
        can_read_keys = self._printer.capabilities.moves
        with cbreak_mode(self._source) if can_read_keys else nullcontext():
            try:
                yield
            finally:
                self._read_unread_keys()

    async def read_input(self) -> str:
        """Return a key, or a line with its end; "" at the end of the input.

        If nothing can be typed (`reads_input` is false), this method never returns.
        """
        if not self.reads_input:
            # the lines of a script are answers, which wait for their questions
            await anyio.sleep_forever()
        if self._printer.capabilities.moves:
            earlier, self._buffered = self._buffered, ""
            return earlier or await read_key(self._source)
        await self._read_whole_line()
        line, end, self._buffered = self._buffered.partition("\n")
        return _ESC_KEY if line.strip(" ") == _ESC_KEY else line + end

    def interrupt(self) -> bool:
        """Cancel the open prompt. Return False if none is open, or if a complete line is
        waiting.
        """
        if self._prompt_scope is None or self._has_line():
            return False
        self._prompt_scope.cancel()
        return True

    def switch_draft(self, old_session: str, new_session: str) -> None:
        """Do nothing: a half-typed line stays in the terminal."""

    def restore_draft(self, text: str) -> None:
        """Do nothing: a program cannot put text into the line that the terminal edits."""

    def close_prompt(self) -> bool:
        """Close the open prompt. Return False if none is open."""
        if self._prompt_scope is None:
            return False
        self._prompt_closed = True  # a half-typed line stays in the terminal
        self._prompt_scope.cancel()
        return True

    def redraw(self) -> None:
        """Print the prompt again, because printed text cannot be changed."""
        if self._prompt_scope is not None:
            self._print_prompt()

    def use_vi_keys(self, enabled: bool | None = None) -> None:
        """Do nothing: the terminal edits the line."""

    async def _read_prompted_line(
        self,
        prompt: Line,
        mode: Callable[[int], AbstractContextManager[None]] = canonical_mode,
    ) -> str | Key:
        """Print the prompt and read a line. Return a key if it ended the prompt."""
        self._prompt = prompt
        self._read_unread_keys()
        self._prompt_scope = scope = anyio.CancelScope()
        with mode(self._source), scope:
            # in this mode, so that what is typed once the prompt is visible is echoed
            self._print_prompt()
            try:
                await self._read_whole_line()
            except anyio.get_cancelled_exc_class():
                self._printer.start_line()
                raise
            finally:
                self._prompt_scope = None
        interrupted = scope.cancelled_caught
        prompt_closed, self._prompt_closed = self._prompt_closed, False
        if interrupted and prompt_closed:
            self._printer.start_line()
            return Key.PROMPT_CLOSED
        if interrupted:
            if self.reads_input:  # discard the incomplete line before Ctrl+C
                discard_input(self._source)
                self._buffered = ""
            return Key.CTRL_C
        # Enter moves the cursor to the next line, Ctrl+D leaves it in the line.
        if self.reads_input and "\n" in self._buffered:
            self._printer.note_typed_line()
        else:
            self._printer.start_line()
        if not self._buffered:
            return Key.CTRL_D
        line, _, self._buffered = self._buffered.partition("\n")
        return line.removesuffix("\r")

    def _print_prompt(self) -> None:
        self._printer.start_line()
        sign = self._printer.capabilities.sign("prompt")
        self._printer.print_pieces(
            (style, text.replace("›", sign)) for style, text in self._prompt
        )

    async def _line_before_question(self) -> str | None:
        """Return a line that the user sent before the question, or None if there is none.

        This method waits for `CALM_SECONDS`, because the line may still be arriving.
        """
        self._read_unread_keys()
        with canonical_mode(self._source), anyio.move_on_after(CALM_SECONDS):
            await self._read_whole_line()
        if "\n" not in self._buffered:
            return None
        line, _, self._buffered = self._buffered.partition("\n")
        return line.removesuffix("\r")

    def _has_line(self) -> bool:
        """Return whether a complete line is waiting to be read."""
        return "\n" in self._buffered or (self.reads_input and is_readable(self._source))

    def _read_unread_keys(self) -> None:
        self._buffered += self._decoder.decode(unread_input(self._source))

    async def _read_whole_line(self) -> None:
        while "\n" not in self._buffered and not self._input_ended:
            await self._read_more()

    async def _read_more(self) -> None:
        """Add input to the buffer. A closed terminal counts as the end of the input."""
        try:
            await wait_readable(self._source)
            data = os.read(self._source, 65_536)
        except PermissionError:  # a file is always readable, and cannot be polled
            data = await to_thread.run_sync(os.read, self._source, 65_536)
        except OSError:  # the terminal was closed
            data = b""
        self._input_ended = not data
        self._buffered += self._decoder.decode(data, final=not data)


def interpret_line(menu: Menu, line: str, *, calm: bool) -> Pressed:
    """Return the effect of a line that is typed at a question: of its text, followed by Enter.

    Without `calm`, the question has just been shown, and an empty line is ignored.
    """
    text = line.strip()
    if not text:
        return press_key(menu, "enter", typed=False, calm=calm)
    pressed = type_text(menu, text, typed=False, calm=True)
    if pressed.action == "select":
        return press_key(pressed.menu, "enter", typed=False, calm=True)
    return pressed
