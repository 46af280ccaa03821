"""A session in two places: a terminal has it open, and a page joins it; or its process is gone."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_stories import (
    BOTH,
    QUICK,
    SLOW,
    WORDS,
    answer,
    button,
    send,
)

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]


@pytest.fixture
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """`refold` with these flags in a pseudo terminal, in the workspace of the server."""
    from tests.terminal.pty_terminal import Terminal

    terminals = list[Terminal]()
    compiled = tmp_path_factory.mktemp("compiled")

    def start(server: Server, *flags: str) -> Terminal:
        arguments = ("-m", "refold", *flags)
        program = Path(sys.executable)
        terminals.append(
            Terminal(program, *arguments, directory=server.workspace, compiled=compiled)
        )
        return terminals[-1]

    yield start
    for item in terminals:
        item.child.close(force=True)  # pyright: ignore[reportUnknownMemberType]


@BOTH
def test_a_terminal_and_a_page_work_in_one_session(
    serve: Serve, pages: Watched, terminal: Callable[..., Any], path: str
) -> None:
    server = serve({"text": "unused"})
    lines = server.directory / "terminal.jsonl"
    lines.write_text(
        '{"text": "Good morning."}\n'
        '{"calls": [{"tool": "bash", "arguments": {"command": "touch made.txt"}}]}\n'
        '{"text": "Made."}\n{"text": "And again."}\n'
    )
    there = terminal(server, "--script", str(lines), "--ask", "bash(touch *)")
    there.until("›")
    there.type("Hello from the terminal.\r")
    there.until("Good morning.")
    page = pages.open(server, path)
    page.locator(".card", has_text="Hello from the terminal.").click()
    answer(page, "Good morning.")
    page.locator(".notice", has_text="Also open in a terminal").wait_for()

    there.type("half typed")
    send(page, "Make it.")
    page.locator(".request").wait_for()
    there.until("May bash run this?")
    button(page, WORDS[path]["yes"]).click()
    there.until("answered elsewhere")
    answer(page, "Made.")
    there.until("half typed")
    assert (server.workspace / "made.txt").exists()

    there.type("\x15And from here.\r")
    answer(page, "And again.")
    assert page.locator(".block-heard", has_text="And from here.").count() == 1

    there.wait_for_prompt()
    there.type("\x04")
    there.end()
    page.locator(".light[data-state=online]").wait_for()
    page.locator(".notice", has_text="Also open").wait_for(state="hidden", timeout=40_000)


@BOTH
def test_the_start_page_offers_to_continue_a_turn_interrupted_by_a_crash(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(SLOW)
    page = pages.open(server, path)
    send(page, "Go on and on")
    page.locator(".coming", has_text="word20 ").wait_for()
    server.kill()
    server.write([QUICK])
    server.start()
    again = pages.open(server, path)

    again.locator(".cut-off button", has_text="Go on and on").click()
    button(again, {"/": "Go on", "/dev": "Continue"}[path]).click(timeout=40_000)

    answer(again, "end.", 90)
    again.goto(f"{server.address}{path}")
    again.locator(".welcome").wait_for()
    again.locator(".card", has_text="Go on and on").wait_for()
    assert again.locator(".cut-off").count() == 0
