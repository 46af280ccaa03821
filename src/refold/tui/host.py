"""The full screen as commands and questions see it: a printer, a reader, and a context.

Slash commands and the questions of a session are the same as in the line terminal. What they print
becomes rows of the transcript or of a question, and what they ask becomes a question in place
of the input; the coroutine waits until `update` gives the answer back as a command.
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

_QUESTION_ROWS = 100_000  # a question is shown whole, and scrolled
_KEY_NAMES: Mapping[str, Key] = {
    "esc": Key.ESC,
    "ctrl+c": Key.CTRL_C,
    "ctrl+d": Key.CTRL_D,
    "shift+tab": Key.SHIFT_TAB,
}
Post = Callable[[Message], None]
Edit = Callable[[str, tuple[str, ...], str], Awaitable[str]]  # as in `TerminalReader.edit`


class RowPrinter(Printer):
    """A printer that passes whole rows to `rows`; nothing is written to a terminal.

    `use` applies other capabilities to the screen.
    """

    def __init__(
        self,
        width: Callable[[], int],
        capabilities: TerminalCapabilities,
        rows: Callable[[Sequence[Line]], None],
        use: Callable[[TerminalCapabilities], None],
    ) -> None:
        super().__init__(io.StringIO(), _row_capabilities(capabilities, width))
        self._rows, self._begun = rows, list[Piece]()
        self._cells, self._use = width, use

    def print_pieces(self, pieces: Iterable[Piece]) -> None:
        texts = [*self._begun, *pieces]
        text = "".join(text for _, text in texts)
        if not text:
            return
        self.written += 1
        rows = split_rows(texts)
        self._begun = [] if text.endswith("\n") else [*rows.pop()]
        self._at_start, self._after_gap = not self._begun, text.endswith("\n\n")
        if rows:
            self._rows(rows)

    def start_line(self) -> None:
        if self._begun:
            self.print_pieces((("plain", "\n"),))

    def ensure_blank_line(self) -> None:
        """End the line: the transcript adds its own gaps."""
        self.start_line()

    def send_sequence(self, sequence: str) -> None:
        write(sequence)

    def set_theme(self, theme: str, environ: Mapping[str, str]) -> None:
        self.set_capabilities(
            detect_capabilities(sys.stdout, environ, display="line", theme=theme)
        )

    def set_capabilities(self, capabilities: TerminalCapabilities) -> None:
        self.capabilities = _row_capabilities(capabilities, self._cells)
        self._use(capabilities)


class Questions:
    """The open questions. Each has a number; its answer comes as a command."""

    def __init__(self, post: Post, clock: Callable[[], float]) -> None:
        self._post, self._clock = post, clock
        self._numbers, self._vi = count(1), False
        self._open = dict[int, tuple[anyio.Event, list[Answer | Picked]]]()
        self._lists = dict[int, tuple[Search | None, Callable[[str], None] | None]]()

    async def ask(
        self,
        to_message: Callable[[int, float], Message],
        search: Search | None = None,
        on_move: Callable[[str], None] | None = None,
    ) -> Answer | Picked:
        """Ask, and wait. `search` searches a list; `on_move` gets the selected item."""
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
        if not isinstance(command, Selected):
            self._set_answer(command)
            return
        _, on_move = self._lists.get(command.number, (None, None))
        if on_move is not None:
            on_move(command.id)

    def _set_answer(self, answer: Answer | Picked) -> None:
        if (waiting := self._open.get(answer.number)) is not None:
            event, answers = waiting
            answers.append(answer)
            event.set()

    async def search(self, number: int, query: str) -> None:
        """Search in what the items of the list do not show."""
        search, _ = self._lists.get(number, (None, None))
        if search is not None and query.strip():
            ids = await anyio.to_thread.run_sync(search, query)
            self._post(Matched(number, query, ids))

    def use_vi_keys(self, enabled: bool | None) -> bool:
        """Turn the vi keys of the input on or off; None changes nothing. Return whether they are on."""
        if enabled is not None:
            self._vi = enabled
            self._post(ViKeys(enabled))
        return self._vi

    def switch_draft(self, *, back: bool) -> None:
        self._post(DraftLeft(back))


class ScreenReader:
    """Implements `DialogReader`, the port. `body` are the rows printed for a question, until `forget`.

    `edit` leaves the screen for an editor and comes back.
    """

    has_line_editor = can_edit_text = True

    def __init__(
        self, questions: Questions, edit: Edit, body: list[Line] | None = None
    ) -> None:
        self._questions, self._body = questions, [] if body is None else body
        self._edit = edit
        self._shown = 0  # rows of the body that an earlier question showed

    def erase_question(self) -> bool:
        """Remove the printed body: the question is over, or is printed again."""
        self._body.clear()
        self._shown = 0
        return True

    async def read_message(self, prompt: Callable[[], Line], text: str = "") -> str | Key:
        return _key_or_text(await self._ask(prompt(), text=text, many=True))

    async def read_line(self, prompt: Line, text: str = "") -> str | Key:
        return _key_or_text(await self._ask(prompt, text=text))

    async def choose(self, menu: Menu, prompt: Line = ()) -> str | DraftMessage | Key:
        return _key_or_text(await self._ask(prompt, menu=menu))

    async def read_choice(self, prompt: Line, keys: str) -> str | Key:
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
        body, follows = tuple(self._body), self._shown > 0
        self._shown = len(body)
        answer = await self._questions.ask(
            lambda number, at: Asked(
                number, body, prompt, keys, text, many, follows, at, menu
            )
        )
        return answer if isinstance(answer, Answer) else Answer(answer.number, key="esc")


class ScreenContext(ConsoleContext):
    """Implements `CommandContext`. Turns run by themselves; sending does not wait."""

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
        """Let other processes join the session."""
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
        from refold.console.run_program import run_program

        directory = self.session.view.session.directory or "."
        if only_prints:
            return await run_program(command, directory, self.printer)
        # The last argument of a shell is what the person typed.
        display = self._display.display_for(command[-1])
        return await run_program(command, directory, self.printer, display)

    async def switch(self, target: ResumeTarget | None) -> Sequence[str]:
        self._leave_draft()
        try:
            notices = await super().switch(target)
        except BaseException:
            self._leave_draft(back=True)
            raise
        await self._display.show_session(self.session)
        return notices

    async def show_session(self) -> None:
        """Do nothing: the display loaded it; an interrupted turn waits for /continue."""

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
    """What shows the session that a command works on: the runtime of the screen."""

    def wake_turn_loop(self) -> None:
        """Wake the turn loop: there may be work."""
        ...

    async def show_session(self, session: Session) -> None:
        """Show this session from now on."""
        ...

    def display_for(self, command: str) -> CommandDisplay:
        """Show this command in the transcript while it runs."""
        ...


def _row_capabilities(
    capabilities: TerminalCapabilities, width: Callable[[], int]
) -> TerminalCapabilities:
    """Return capabilities for rows that the screen draws: no cursor movement."""
    return replace(
        capabilities,
        text_width=width,
        width=width,
        height=lambda: _QUESTION_ROWS,
        moves=False,
    )


def _key_or_text(answer: Answer) -> str | Key:
    return _KEY_NAMES.get(answer.key, answer.text)
