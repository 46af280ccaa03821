"""Gives slash commands and questions a printer, a reader and a context on the full screen.

Commands and questions are the same as in the line terminal. What they print becomes rows of
the transcript, or of a question. A question of a command replaces the input, and the
coroutine that asks waits until `update` returns the answer.
"""

import io
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Literal, Protocol

import anyio
from msgspec.structs import replace

from refold.client.launch import ResumeTarget
from refold.client.session import Session
from refold.client.types import ImageData
from refold.commands.command_context import ProgramOutput
from refold.commands.dispatch import CommandRunner
from refold.console.capabilities import TerminalCapabilities, detect_capabilities
from refold.console.clipboard import load_named_images
from refold.console.console_context import ConsoleContext
from refold.console.printer import Printer
from refold.console.pty import CommandDisplay
from refold.console.reader import Key
from refold.tui.messages import (
    Answer,
    Asked,
    AskedToPick,
    DraftLeft,
    Matched,
    Message,
    Picked,
    Selected,
    ViKeys,
    Withdrawn,
)
from refold.tui.prose_rows import split_rows
from refold.tui.screen_modes import write
from refold.views.picker import OnMove, Picker, Search, with_selection
from refold.views.question_keys import DraftMessage, Menu
from refold.views.styled import Line, Piece

_QUESTION_ROWS = 100_000  # a question is shown completely, and scrolled
_KEY_NAMES: Mapping[str, Key] = {
    "esc": Key.ESC,
    "ctrl+c": Key.CTRL_C,
    "ctrl+d": Key.CTRL_D,
    "shift+tab": Key.SHIFT_TAB,
}
Post = Callable[[Message], None]
# the same as `TerminalReader.edit`
Edit = Callable[[str, tuple[str, ...], str], Awaitable[str]]


class RowPrinter(Printer):
    """A printer that passes each complete row to `rows` and writes nothing to a terminal.

    `use` is called when the capabilities of the terminal change.
    """

    def __init__(
        self,
        width: Callable[[], int],
        capabilities: TerminalCapabilities,
        rows: Callable[[Sequence[Line]], None],
        use: Callable[[TerminalCapabilities], None],
    ) -> None:
        super().__init__(io.StringIO(), _row_capabilities(capabilities, width))
        self._pass_rows, self._get_width = rows, width
        self._on_capabilities = use
        self._unfinished_row = list[Piece]()

    def print_pieces(self, pieces: Iterable[Piece]) -> None:
        """Pass on the rows that these pieces complete. An unfinished row waits for the next
        pieces.
        """
        waiting = [*self._unfinished_row, *pieces]
        waiting_text = "".join(text for _, text in waiting)
        if not waiting_text:
            return
        self.written += 1
        rows = split_rows(waiting)
        self._unfinished_row = [] if waiting_text.endswith("\n") else [*rows.pop()]
        self._at_start = not self._unfinished_row
        self._after_gap = waiting_text.endswith("\n\n")
        if rows:
            self._pass_rows(rows)

    def start_line(self) -> None:
        if self._unfinished_row:
            self.print_pieces((("plain", "\n"),))

    def ensure_blank_line(self) -> None:
        """End the current line. The transcript itself leaves blank lines."""
        self.start_line()

    def send_sequence(self, sequence: str) -> None:
        write(sequence)

    def set_theme(self, theme: str, environ: Mapping[str, str]) -> None:
        self.set_capabilities(
            detect_capabilities(sys.stdout, environ, display="line", theme=theme)
        )

    def set_capabilities(self, capabilities: TerminalCapabilities) -> None:
        self.capabilities = _row_capabilities(capabilities, self._get_width)
        self._on_capabilities(capabilities)


class Questions:
    """The questions that wait for an answer, by number. The answers come as commands."""

    def __init__(self, post: Post, clock: Callable[[], float]) -> None:
        self._post, self._clock = post, clock
        self._numbers = count(1)
        self._vi = False
        # By number: an event that is set by the answer, and the answer.
        self._open = dict[int, tuple[anyio.Event, list[Answer | Picked]]]()
        # By number: the functions `search` and `on_move` of a list.
        self._lists = dict[int, tuple[Search | None, Callable[[str], None] | None]]()

    async def ask(
        self,
        to_message: Callable[[int, float], Message],
        search: Search | None = None,
        on_move: Callable[[str], None] | None = None,
    ) -> Answer | Picked:
        """Post a question, and return the answer.

        `to_message` makes the message from the number of the question and the time. If the
        question is a list, `search` finds items by hidden text, and `on_move` is called with
        the id of a newly selected item.
        """
        number = next(self._numbers)
        self._lists[number] = search, on_move
        event, answers = anyio.Event(), list[Answer | Picked]()
        self._open[number] = event, answers
        self._post(to_message(number, self._clock()))
        try:
            await event.wait()
            return answers[0]
        finally:
            del self._open[number], self._lists[number]
            if not answers:
                self._post(Withdrawn(number, self._clock()))

    def accept(self, command: Answer | Picked | Selected) -> None:
        """Pass an answer to the coroutine that waits for it, or a newly selected item to
        `on_move`.
        """
        if not isinstance(command, Selected):
            self._set_answer(command)
            return
        _, on_move = self._lists.get(command.number, (None, None))
        if on_move is not None:
            on_move(command.id)

    def _set_answer(self, answer: Answer | Picked) -> None:
        """Wake the coroutine that waits for the answer. If none waits, do nothing."""
        if (open_question := self._open.get(answer.number)) is not None:
            event, answers = open_question
            answers.append(answer)
            event.set()

    async def search(self, number: int, query: str) -> None:
        """Search the hidden text of a list's items, and post the ids of the matches."""
        search, _ = self._lists.get(number, (None, None))
        if search is not None and query.strip():
            ids = await anyio.to_thread.run_sync(search, query)
            self._post(Matched(number, query, ids))

    def use_vi_keys(self, enabled: bool | None) -> bool:
        """Turn the vi keys of the input on or off, or change nothing if `enabled` is None.

        Return whether they are on.
        """
        if enabled is not None:
            self._vi = enabled
            self._post(ViKeys(enabled))
        return self._vi

    def switch_draft(self, *, back: bool) -> None:
        self._post(DraftLeft(back))


class ScreenReader:
    """Implements `DialogReader` on the full screen.

    `body` collects the rows that are printed for a question, until `erase_question`. `edit`
    opens an editor in place of the screen.
    """

    has_line_editor = can_edit_text = True

    def __init__(
        self, questions: Questions, edit: Edit, body: list[Line] | None = None
    ) -> None:
        self._questions, self._edit = questions, edit
        self._body = list[Line]() if body is None else body
        self._shown = 0  # rows of the body that an earlier question showed

    def erase_question(self) -> bool:
        """Remove the rows printed for the question: it is over, or will be printed again."""
        self._body.clear()
        self._shown = 0
        return True

    async def read_message(self, prompt: Callable[[], Line], text: str = "") -> str | Key:
        """Ask for a message, which begins as `text` and may have several lines.

        Return a key if it ended the question.
        """
        return _key_or_text(await self._ask(prompt(), text=text, many=True))

    async def read_line(self, prompt: Line, text: str = "") -> str | Key:
        return _key_or_text(await self._ask(prompt, text=text))

    async def choose(self, menu: Menu, prompt: Line = ()) -> str | DraftMessage | Key:
        """Return the id of the choice, a typed text, or the key that left the question."""
        return _key_or_text(await self._ask(prompt, menu=menu))

    async def read_choice(self, prompt: Line, keys: str) -> str | Key:
        """Ask for one of `keys`. Return "" for any other key, except those that leave the
        question.
        """
        answer = await self._ask(prompt, keys=keys)
        if answer.key:
            return _KEY_NAMES[answer.key]
        return answer.text if answer.text and answer.text in keys else ""

    async def edit(self, text: str, command: tuple[str, ...], name: str) -> str:
        return await self._edit(text, command, name)

    async def pick(
        self,
        picker: Picker,
        search: Search | None = None,
        on_move: OnMove | None = None,
    ) -> Picker | None:
        """Show a list. Return it with the chosen item selected, or None if the user leaves."""

        def move(id_: str) -> None:
            if on_move is not None:
                on_move(with_selection(picker, id_))

        answer = await self._questions.ask(
            lambda number, at: AskedToPick(number, picker), search, move
        )
        if not isinstance(answer, Picked) or not answer.id:
            return None
        return with_selection(picker, answer.id, answer.dial)

    @contextmanager
    def suppress_echo(self) -> Generator[None]:
        yield

    def switch_draft(self, *, back: bool = False) -> None:
        self._questions.switch_draft(back=back)

    def use_vi_keys(self, enabled: bool | None = None) -> bool | None:
        return self._questions.use_vi_keys(enabled)

    async def _ask(
        self, prompt: Line, *, keys: str = "", text: str = "", 
        many: bool = False, menu: Menu | None = None,
    ) -> Answer:  # fmt: skip
        """Ask below the rows printed for the question, and return the answer.

        If a list was answered instead, return the key Esc as the answer.
        """
        body = tuple(self._body)
        follows = self._shown > 0  # whether an earlier question showed the body
        self._shown = len(body)

        def to_message(number: int, at: float) -> Asked:
            return Asked(
                number, body, prompt, keys=keys, text=text, many=many, follows=follows,
                at=at, menu=menu,
            )  # fmt: skip

        answer = await self._questions.ask(to_message)
        return answer if isinstance(answer, Answer) else Answer(answer.number, key="esc")


class ScreenContext(ConsoleContext):
    """Implements `CommandContext`. Turns run in another task, so `say` does not wait for them."""

    def __init__(
        self,
        session: Session,
        printer: Printer,
        reader: ScreenReader,
        display: "ScreenDisplay",
    ) -> None:
        super().__init__(session, printer, reader)
        self._display, self._leave_draft = display, reader.switch_draft
        self.commands = CommandRunner(self)

    @property
    def terminal(self) -> "ScreenContext":
        return self

    async def let_processes_join(self) -> None:
        """Let other processes give orders to the session, until cancelled."""
        if self.socket is None:
            return
        async with anyio.create_task_group() as group:
            group.start_soon(self.socket.run)
            while True:
                await self.socket.wait_for_order()
                self._display.wake_turn_loop()

    async def run_program(
        self, command: Sequence[str], *, only_prints: bool = False
    ) -> ProgramOutput:
        """Run a program on the screen. With `only_prints`, it only prints and gets no keys."""
        from refold.console.run_program import run_program

        directory = self.session.view.session.directory or "."
        if only_prints:
            return await run_program(command, directory, self.printer)
        # The last argument of a shell is the command that the user typed.
        display = self._display.display_for(command[-1])
        return await run_program(command, directory, self.printer, display)

    async def switch(self, target: ResumeTarget | None) -> Sequence[str]:
        """Show another session. If it cannot be opened, the draft is shown again."""
        self._leave_draft()
        try:
            notices = await super().switch(target)
        except BaseException:
            self._leave_draft(back=True)
            raise
        await self._display.show_session(self.session)
        return notices

    async def show_session(self) -> None:
        """Do nothing: the display already shows the session. A stopped turn waits for
        /continue.
        """

    async def say(
        self,
        text: str,
        images: Sequence[ImageData] = (),
        *,
        typed: str | None = None,
        when: Literal["now", "next"] = "now",
    ) -> None:
        self._display.wake_turn_loop()
        shown = (*images, *load_named_images(text, self.session, self.printer))
        await self.session.say(text, when=when, images=shown, typed=typed)

    async def carry_out(self, start: Callable[[], Awaitable[object]] | None = None) -> None:
        if start is not None:
            await start()
        self._display.wake_turn_loop()


class ScreenDisplay(Protocol):
    """Shows the session on which a command works. The runtime of the screen implements it."""

    def wake_turn_loop(self) -> None:
        """Wake the turn loop, because there may be work."""
        ...

    async def show_session(self, session: Session) -> None:
        """Show another session."""
        ...

    def display_for(self, command: str) -> CommandDisplay:
        """Return a display that shows this command in the transcript while it runs."""
        ...


def _row_capabilities(
    capabilities: TerminalCapabilities, width: Callable[[], int]
) -> TerminalCapabilities:
    """Return the capabilities of a terminal whose output is only rows: the cursor cannot move."""
    return replace(
        capabilities,
        text_width=width,
        width=width,
        height=lambda: _QUESTION_ROWS,
        moves=False,
    )


def _key_or_text(answer: Answer) -> str | Key:
    """Return the key that ended the question, or else the text of the answer."""
    return _KEY_NAMES.get(answer.key, answer.text)
