"""Reading with a line editor: history, completion, several lines, single keys.

Built on prompt_toolkit, which is imported here and nowhere else, once a terminal
that can do it is really there: importing it takes longer than all the rest.
"""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style as Styles

from refold.cli.terminal.completion import Complete
from refold.cli.terminal.keys import forget
from refold.cli.terminal.reading import Key, Later
from refold.cli.terminal.screen import Screen
from refold.session.secrets import Masks
from refold.views.flow import fitted
from refold.views.styled import Line

_ESC_ALONE = 0.1  # seconds
_STYLES = {
    "dim": "fg:ansibrightblack",
    "strong": "bold",
    "person": "bold fg:ansiblue",
    "warn": "fg:ansiyellow",
    "good": "fg:ansigreen",
    "bad": "fg:ansired",
    "accent": "fg:ansicyan",
}


class Lively:
    """`complete` gives what could stand at the cursor; `cycle` hears Shift+Tab."""

    lively = True

    def __init__(
        self,
        screen: Screen,
        *,
        history: Path | None = None,
        complete: Complete | None = None,
        cycle: Callable[[], None] = lambda: None,
    ) -> None:
        self._screen = screen
        self._input = create_input()
        # No cursor position is asked for: an answer that comes late would be typed text.
        output = Vt100_Output(
            sys.stdout, _size, term=os.environ.get("TERM"), enable_cpr=False
        )
        depth = ColorDepth.DEPTH_4_BIT if screen.look.color else ColorDepth.DEPTH_1_BIT
        common: dict[str, Any] = {
            "input": self._input,
            "output": output,
            "color_depth": depth,
            "style": Styles.from_dict(_STYLES),
        }
        self._editor: PromptSession[str | Later | Key] = PromptSession(
            history=_history(history),
            multiline=True,
            prompt_continuation="  ",
            key_bindings=_editing(cycle),
            completer=_Offers(complete) if complete else None,
            complete_while_typing=Condition(self._begins_a_command),
            reserve_space_for_menu=6,
            enable_history_search=False,
            **common,
        )
        self._short: PromptSession[str | Later | Key] = PromptSession(
            history=InMemoryHistory(), erase_when_done=True, **common
        )
        # Esc alone must not be taken for the beginning of Alt+Enter for long.
        self._short.app.ttimeoutlen = self._short.app.timeoutlen = _ESC_ALONE
        self._asking: anyio.CancelScope | None = None

    async def words(self, prompt: Callable[[], Line], text: str = "") -> str | Key:
        return _now(await self._ask(self._editor, prompt, default=text))

    async def brief(self, prompt: Line, text: str = "") -> str | Key:
        return _now(await self._short_line(prompt, text, _leaving()))

    async def aside(self, prompt: Line, text: str = "") -> str | Later | Key:
        return await self._short_line(prompt, text, _sending())

    async def choice(self, prompt: Line, keys: str) -> str | Key:
        forget(self._input.fileno())
        clear_typeahead(self._input)
        keyed = _one_of(keys)
        return _now(
            await self._ask(
                self._short, lambda: prompt, key_bindings=keyed, is_password=False
            )
        )

    async def secret(self, prompt: Line) -> str | Key:
        return _now(
            await self._ask(
                self._short, lambda: prompt, key_bindings=_leaving(), is_password=True
            )
        )

    def interrupt(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    def redraw(self) -> None:
        if self._asking is not None:
            self._editor.app.invalidate()

    async def _short_line(
        self, prompt: Line, text: str, keys: KeyBindings
    ) -> str | Later | Key:
        return await self._ask(
            self._short, lambda: prompt, default=text, key_bindings=keys, is_password=False
        )

    async def _ask(
        self,
        session: "PromptSession[str | Later | Key]",
        prompt: Callable[[], Line],
        **more: Any,
    ) -> str | Later | Key:
        self._screen.fresh()
        self._screen.no_status()

        def message() -> FormattedText:
            shown = fitted(prompt(), self._screen.room)
            return FormattedText([(f"class:{style}", text) for style, text in shown])

        answer: str | Later | Key = Key.CTRL_C
        with anyio.CancelScope() as self._asking:
            try:
                answer = await session.prompt_async(message, handle_sigint=False, **more)
            except EOFError:
                answer = Key.CTRL_D
        self._asking = None
        if session is self._editor:
            self._screen.typed()
        return answer

    def _begins_a_command(self) -> bool:
        return self._editor.default_buffer.text.startswith("/")


def _now(answer: str | Later | Key) -> str | Key:
    return answer.words if isinstance(answer, Later) else answer


class _Offers(Completer):
    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(self, document: Any, complete_event: Any) -> Iterable[Completion]:
        for offer in self._complete(document.text_before_cursor):
            yield Completion(
                offer.text, start_position=-offer.instead_of, display_meta=offer.about
            )


def _size() -> Size:
    try:
        found = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return Size(24, 80)
    # Some terminals say 0 for what they do not know.
    return Size(found.lines or 24, found.columns or 80)


def _history(path: Path | None) -> History:
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError:  # a disk that is full or read-only: history is a convenience
        return InMemoryHistory()
    return _Masked(path)


class _Masked(FileHistory):
    """What looks like a key can be fetched back in this session, and is not written down."""

    def store_string(self, string: str) -> None:
        super().store_string(Masks().masked(string))


def _editing(cycle: Callable[[], None]) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("s-tab")
    def _(event: KeyPressEvent) -> None:
        cycle()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(result=Key.CTRL_C)

    @keys.add("c-d")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.delete()
        else:
            event.app.exit(result=Key.CTRL_D)

    return keys


def _leaving() -> KeyBindings:
    keys = KeyBindings()
    for name, key in (("c-c", Key.CTRL_C), ("c-d", Key.CTRL_D), ("escape", Key.ESC)):

        @keys.add(name, eager=True)
        def _(event: KeyPressEvent, key: Key = key) -> None:
            event.app.exit(result=key)

    return keys


def _sending() -> KeyBindings:
    """Enter sends, Alt+Enter sends for later, which is Esc and Enter to a terminal."""
    keys = KeyBindings()
    for name, key in (("c-c", Key.CTRL_C), ("c-d", Key.CTRL_D), ("escape", Key.ESC)):

        @keys.add(name)
        def _(event: KeyPressEvent, key: Key = key) -> None:
            event.app.exit(result=key)

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=Later(event.current_buffer.text))

    return keys


def _one_of(letters: str) -> KeyBindings:
    keys = _leaving()

    @keys.add("<any>")
    def _(event: KeyPressEvent) -> None:
        pressed = event.data.lower()  # or all that was pasted
        known = len(pressed) == 1 and pressed in letters
        event.app.exit(result=pressed if known else "")

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result="")

    return keys
