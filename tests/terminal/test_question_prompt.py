"""Typing never answers a question at the line editor, nor in a terminal that sends whole lines."""

import asyncio
import io
import os
import select
import selectors
from collections.abc import Coroutine
from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as some
from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input.defaults import create_pipe_input
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import DummyOutput

from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.console.reader import Key
from refold.terminal.input.line_editor.pastes import PasteMarks
from refold.terminal.input.line_editor.question_bindings import MenuAnswer, QuestionPrompt
from refold.terminal.input.line_reader import LineReader, interpret_line
from refold.views.question_keys import Choice, DraftMessage, Menu
from refold.views.styled import plain_text

MENU = Menu(
    tuple(Choice(id_, id_.upper(), widens=id_ not in "yn") for id_ in "ysawen"), "stop"
)
SENTENCES = some.sampled_from([
    "hey do you", "try harder", "please be quicker", "and you too", "yes, but write a test",
    "no wait", "1 more thing", "always ask", "session 3 is done.", "e.g. this", "w 2 3",
])  # fmt: skip
Stroke = tuple[float, str]  # seconds before it, and the key


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def type_keys(menu: Menu, *strokes: Stroke) -> tuple[object, str, str]:
    """Return what the prompt gives after these keys, its row, and the text; "" while it is
    open.
    """
    clock = Clock()

    async def run_story() -> tuple[object, str, str]:
        with create_pipe_input() as keys, create_app_session(keys, DummyOutput()):
            return await _at_prompt(menu, clock, strokes)

    return _run(run_story())


async def _at_prompt(
    menu: Menu, clock: Clock, strokes: tuple[Stroke, ...]
) -> tuple[object, str, str]:
    session = PromptSession[object]()
    question = QuestionPrompt(menu, (), PasteMarks(), clock, lambda: 80)
    processor, buffer = session.app.key_processor, session.default_buffer
    processor.before_key_press += question.note_key
    event = asyncio.Event()
    ensure_future = asyncio.ensure_future(
        session.prompt_async(key_bindings=question.bindings(), pre_run=event.set)
    )
    await event.wait()
    for pause, key in strokes:
        clock.now += pause
        processor.feed(KeyPress(*_NAMED.get(key, (key, key))))
        processor.process_keys()
        if session.app.future is not None and session.app.future.done():
            return await ensure_future, "", buffer.text
    row = plain_text([question.line(buffer.text)])
    text = buffer.text
    session.app.exit(result=None)
    await ensure_future
    return "", row, text


_NAMED: dict[str, tuple[Any, str]] = {
    "enter": (Keys.ControlM, "\r"), "down": (Keys.Down, ""), "ctrl+c": (Keys.ControlC, ""),
}  # fmt: skip


def _run(story: Coroutine[Any, Any, tuple[object, str, str]]) -> tuple[object, str, str]:
    return asyncio.run(story)


@given(SENTENCES, some.lists(some.floats(0.01, 5.0), min_size=30, max_size=30))
def test_question_is_not_answered_by_typing_at_the_line_editor(
    sentence: str, pauses: list[float]
) -> None:
    first = min(pauses[0], 0.6)  # the first letter was on its way when the question came
    strokes = [(first if not n else pauses[n], letter) for n, letter in enumerate(sentence)]

    answer, row, text = type_keys(MENU, *strokes)

    assert (answer, text) == ("", sentence)
    assert "a question waits" in row
    assert type_keys(MENU, *strokes, (pauses[-1], "enter"))[0] == DraftMessage(sentence)


def test_question_is_answered_after_a_pause_in_typing_at_the_line_editor() -> None:
    assert type_keys(MENU, (0.8, "y"))[0] == MenuAnswer("y", "")
    assert type_keys(MENU, (0.8, "enter"))[0] == MenuAnswer("y", "")
    assert type_keys(MENU, (0.1, "enter"), (0.8, "enter"))[0] == MenuAnswer("y", "")
    assert type_keys(MENU, (0.1, "enter"), (0.3, "enter"))[0] == ""
    assert type_keys(MENU, (0.8, "down"), (0.1, "enter"))[0] == MenuAnswer("s", "")
    assert type_keys(MENU, (0.8, "3"), (0.1, "enter"))[0] == MenuAnswer("a", "")
    assert type_keys(MENU, (0.1, "3"), (0.1, "enter"))[0] == DraftMessage("3")
    assert type_keys(MENU, (0.8, "3"), (0.1, " "), (0.1, "x"))[2] == "3 x"
    assert type_keys(MENU, (0.1, "x"), (0.1, "ctrl+c"))[0] is Key.CTRL_C


def test_question_takes_free_text_at_the_line_editor() -> None:
    menu = Menu(free_text=True)

    assert type_keys(menu, (0.8, "y"), (0.1, "1"), (0.1, "enter"))[0] == MenuAnswer(
        "", "y1"
    )
    assert type_keys(menu, (0.1, "y"), (0.8, "1"), (0.1, "enter"))[0] == DraftMessage("y1")
    assert type_keys(menu, (0.8, "enter"))[0] == MenuAnswer("", "")


class VirtualSelector(selectors.DefaultSelector):
    """Advances the clock where a loop would wait, and does not wait."""

    now = 0.0

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if timeout and not ready:
            self.now += timeout
        return ready if ready or timeout is not None else super().select(None)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def type_lines(*strokes: Stroke) -> str | DraftMessage | Key:
    """Return what a terminal that sends whole lines answers when these keys come."""
    keyboard, source = os.openpty()

    async def press() -> None:
        for pause, key in strokes:
            await anyio.sleep(pause)
            os.write(keyboard, key.encode())
            if "\n" in key:  # the kernel needs a moment, in which no time passes here
                select.select([source], [], [])

    async def run_story() -> str | DraftMessage | Key:
        clock = asyncio.get_running_loop().time
        printer = Printer(io.StringIO(), TerminalCapabilities())
        reader = LineReader(printer, source, clock)
        answer: str | DraftMessage | Key = Key.CTRL_D
        async with anyio.create_task_group() as group:
            group.start_soon(press)
            answer = await reader.choose(MENU)
            group.cancel_scope.cancel()
        return answer

    try:
        return anyio.run(run_story, backend_options={"loop_factory": VirtualLoop})
    finally:
        os.close(keyboard)
        os.close(source)


@given(SENTENCES, some.lists(some.floats(0.0, 5.0), min_size=30, max_size=30))
def test_question_is_not_answered_by_typing_in_a_plain_terminal(
    sentence: str, pauses: list[float]
) -> None:
    strokes = list(zip(pauses, f"{sentence}\n", strict=False))

    assert type_lines(*strokes) == DraftMessage(sentence)


def test_question_in_a_plain_terminal_is_answered_only_after_a_short_delay() -> None:
    assert type_lines((0.1, "y\n")) == DraftMessage("y")
    assert type_lines((0.8, "y\n")) == "y"
    assert type_lines((0.8, "\n"), (0.8, "n\n")) == "n"
    assert type_lines((2.0, "\n")) == "y"


@given(SENTENCES, some.booleans())
def test_question_is_not_answered_by_a_line_of_text(sentence: str, calm: bool) -> None:
    pressed = interpret_line(MENU, sentence, calm=calm)

    assert (pressed.action, pressed.value) == ("draft", sentence)


def test_question_is_answered_by_a_line_with_a_choice() -> None:
    def value(line: str, *, calm: bool = True) -> tuple[str, str]:
        pressed = interpret_line(MENU, line, calm=calm)
        return pressed.action, pressed.value

    assert value("y") == ("answer", "y")
    assert value(" n ") == ("answer", "n")
    assert value("3") == ("answer", "a")
    assert value("a") == ("draft", "a")
    assert value("") == ("answer", "y")
    assert value("", calm=False) == ("wait", "")
