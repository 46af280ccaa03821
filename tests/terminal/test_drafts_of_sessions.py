"""A draft at the prompt of the line editor belongs to the session in which it was typed."""

import io
from collections.abc import Awaitable, Callable

import anyio
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input.defaults import create_pipe_input
from prompt_toolkit.output import DummyOutput

from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.console.reader import Key
from refold.terminal.input.line_editor.prompt_toolkit_reader import PromptToolkitReader

TODOS = "\x14"  # Ctrl+T, a shortcut: the draft is kept for the next prompt
Type = Callable[[str], Awaitable[str | Key]]


def run_at_prompts(
    story: Callable[[PromptToolkitReader, Type], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run the story with a reader, and a function that types at one prompt of it."""

    async def run() -> None:
        with create_pipe_input() as keys, create_app_session(keys, DummyOutput()):
            target = "refold.terminal.input.line_editor.prompt_toolkit_reader.create_input"
            monkeypatch.setattr(target, lambda: keys)
            reader = PromptToolkitReader(Printer(io.StringIO(), TerminalCapabilities()))

            async def typing(text: str) -> str | Key:
                keys.send_text(text)
                return await reader.read_message(lambda: (("plain", "› "),))

            await story(reader, typing)

    anyio.run(run, backend="asyncio")


def test_a_draft_is_stored_by_session_and_restored_on_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_messages = list[str | Key]()

    async def run_story(reader: PromptToolkitReader, typing: Type) -> None:
        read_messages.append(await typing(f"for one{TODOS}"))
        reader.switch_draft("one", "two")
        read_messages.append(await typing(f"for two{TODOS}"))
        reader.switch_draft("two", "one")
        read_messages.append(await typing(", sent\r"))
        reader.switch_draft("one", "two")
        read_messages.append(await typing("\r"))

    run_at_prompts(run_story, monkeypatch)

    assert read_messages == [Key.CTRL_T, Key.CTRL_T, "for one, sent", "for two"]


def test_a_draft_stays_while_another_text_is_edited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_messages = list[str | Key]()

    async def run_story(reader: PromptToolkitReader, typing: Type) -> None:
        await typing(f"a draft{TODOS}")
        await _leave_another(reader)
        read_messages.append(await typing("\r"))

    async def _leave_another(reader: PromptToolkitReader) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(_leave, reader)
            read_messages.append(
                await reader.read_message(lambda: (("plain", "› "),), "an old message")
            )

    async def _leave(reader: PromptToolkitReader) -> None:
        while not reader.interrupt():
            await anyio.sleep(0)

    run_at_prompts(run_story, monkeypatch)

    assert read_messages == [Key.CTRL_C, "a draft"]


def test_ctrl_c_after_a_cancelled_prompt_is_not_taken_for_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupts = list[bool]()

    async def run_story(reader: PromptToolkitReader, typing: Type) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(typing, "half a line")
            await anyio.wait_all_tasks_blocked()
            interrupts.append(reader.interrupt())
        async with anyio.create_task_group() as group:
            group.start_soon(typing, "half a line")
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        interrupts.append(reader.interrupt())

    run_at_prompts(run_story, monkeypatch)

    assert interrupts == [True, False]
