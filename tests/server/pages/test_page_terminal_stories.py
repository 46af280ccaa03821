"""A terminal in the developer page: opened, used, resized, closed, reloaded, and what the journal has."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold.process_groups import signal_session
from tests.journal_files import find_journals
from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_accessibility import problems
from tests.server.pages.test_page_stories import answer, button, send, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(240)]
Serve = Callable[..., Server]
WIDE: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 360, "height": 640},
    "is_mobile": True,
    "has_touch": True,
}
BOTH_SIZES = pytest.mark.parametrize("size", [WIDE, PHONE], ids=["1440", "360"])


@pytest.fixture(autouse=True)
def bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user has bash, and a home without files."""
    monkeypatch.setenv("SHELL", "/bin/bash")
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve({"text": "Hello."}, {"text": "I see."}, flags=["--terminal"])


def open_terminal(page: Any) -> None:
    if page.locator(".panel").is_hidden():
        page.get_by_role("button", name="Show details").click()
    page.get_by_role("tab", name="Terminal").click()
    button(page, "Open a terminal").click()
    page.locator(".terminal-state", has_text="/bin/bash in").wait_for()
    wait_until(page, "() => document.querySelector('.xterm-rows').innerText.trim() !== ''")


def open_page(pages: Watched, server: Server, **options: Any) -> Any:
    page = pages.open(server, "/dev", **options)
    send(page, "Hi")
    answer(page, "Hello.")
    open_terminal(page)
    return page


def rows(page: Any) -> str:
    return page.locator(".xterm-rows").inner_text()


def wait_for_row(page: Any, text: str) -> None:
    """Wait for a row that begins with this text: not for the line that was typed."""
    wait_until(
        page,
        f"() => [...document.querySelectorAll('.xterm-rows > div')]"
        f".some((row) => row.innerText.startsWith({text!r}))",
    )


def type_line(page: Any, line: str) -> None:
    page.locator(".xterm-helper-textarea").focus()
    page.keyboard.type(f"{line}\n")


def journal(tmp_path: Path) -> str:
    files = find_journals(Path(os.environ["REFOLD_HOME"]))
    return "".join(file.read_text("utf-8") for file in files)


def wait_for_journal(tmp_path: Path, pattern: str) -> str:
    for _ in range(400):
        if re.search(pattern, text := journal(tmp_path)):
            return text
        time.sleep(0.05)
    raise AssertionError(f"{pattern} is not in the journal: {journal(tmp_path)}")


@BOTH_SIZES
def test_a_command_is_typed_stopped_and_recorded_and_a_selection_goes_to_the_model(
    server: Server, pages: Watched, tmp_path: Path, size: dict[str, Any]
) -> None:
    page = open_page(pages, server, **size)
    type_line(page, r"printf '\033[31mred \033[38;2;1;2;3mgrüße %s\033[0m\n' $((40+2))")
    wait_for_row(page, "red grüße 42")
    faults = problems(page)
    type_line(page, "echo began$((1+1)); sleep 1000")
    wait_for_row(page, "began2")
    page.keyboard.press("Control+c")
    type_line(page, "echo after$((1+1))")
    wait_for_row(page, "after2")
    fits = page.evaluate("""() => {
      const screen = document.querySelector('.terminal-screen').getBoundingClientRect();
      const lines = document.querySelector('.xterm-screen').getBoundingClientRect();
      return screen.right <= innerWidth && lines.right <= screen.right && lines.bottom <= screen.bottom
        && document.documentElement.scrollWidth <= innerWidth;
    }""")
    row = page.locator(".xterm-rows > div", has_text="red grüße 42").last.bounding_box()
    page.mouse.click(row["x"] + 40, row["y"] + row["height"] / 2, click_count=3)
    button(page, "Send selection to the model").click()
    page.locator(".terminal-state", has_text="next message").wait_for()
    type_line(page, "exit 3")
    page.locator(".terminal-state", has_text="exited with code 3").wait_for()
    text = wait_for_journal(tmp_path, '"TerminalEnded"')

    assert fits
    assert faults == []
    assert text.count('"kind":"TerminalCommandEntered"') == 4
    assert '"by":"person:page","cause":0,"kind":"TerminalStarted"' in text
    assert '"reason":"exited","code":3' in text
    assert text.count("red grüße 42") == 1  # the selected text, and no other output


def test_the_keyboard_leaves_the_terminal_and_other_panels_keep_it(
    server: Server, pages: Watched
) -> None:
    page = open_page(pages, server, **WIDE)
    type_line(page, "stty size; tput smcup; printf full%s $((1+1))")
    wait_for_row(page, "full2")
    page.keyboard.type("jkpG/\t")  # keys of the page, which belong to the shell here
    is_inside = page.evaluate(
        "() => document.activeElement.matches('.xterm-helper-textarea')"
    )
    page.keyboard.press("Control+Shift+L")
    left = page.evaluate("() => document.activeElement.textContent")
    page.get_by_role("tab", name="Todos").click()
    page.get_by_role("tab", name="Terminal").click()
    wait_for_row(page, "full2")
    page.locator("label", has_text="Screen reader").locator("input").check()
    page.locator(".xterm-accessibility-tree").wait_for()

    assert is_inside
    assert left == "Send selection to the model"


def test_a_terminal_follows_the_size_of_its_window(server: Server, pages: Watched) -> None:
    page = open_page(pages, server, **WIDE)
    type_line(page, "trap 'echo size $(stty size)' WINCH")
    before = page.locator(".xterm-rows > div").count()
    page.set_viewport_size({"width": 1440, "height": 600})
    wait_until(
        page, f"() => document.querySelectorAll('.xterm-rows > div').length < {before}"
    )
    type_line(page, "clear; echo now $(stty size)")
    wait_for_row(page, "now ")
    size = re.search(r"now (\d+) (\d+)", rows(page))
    shown = page.evaluate("() => document.querySelectorAll('.xterm-rows > div').length")

    assert size is not None
    assert int(size[1]) == shown


def test_reloading_ends_the_shell_and_windows_have_shells_of_their_own(
    server: Server, pages: Watched, tmp_path: Path
) -> None:
    page = open_page(pages, server, **WIDE)
    type_line(page, "mine=$((40+2))")
    other = page.context.new_page()
    other.goto(page.url)
    other.locator("#message").wait_for()
    open_terminal(other)
    type_line(other, "echo other${mine}x")
    wait_for_row(other, "otherx")
    type_line(page, "echo first${mine}x")
    wait_for_row(page, "first42x")
    page.reload()
    text = wait_for_journal(tmp_path, '"reason":"closed"')
    page.locator("#message").wait_for()
    open_terminal(page)
    button(page, "Close terminal").click()
    page.locator(".terminal-state", has_text="was closed").wait_for()
    type_line(other, "echo still$((1+1))")
    wait_for_row(other, "still2")

    assert text.count('"kind":"TerminalStarted"') == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_the_shell_ends_with_a_killed_server_and_the_page_says_so(
    server: Server, pages: Watched, tmp_path: Path, number: signal.Signals
) -> None:
    pages.expect_loss = True
    page = open_page(pages, server, **WIDE)
    type_line(page, "sleep 1000 & echo pid=$$. ")
    wait_for_row(page, "pid=")
    match = re.search(r"^pid=(\d+)\.", rows(page), re.MULTILINE)
    assert match is not None
    alive = signal_session(int(match[1]), 0)

    if number is signal.SIGKILL:
        server.kill()
    else:
        server.stop()
    page.get_by_role("button", name="Open another").wait_for()
    state = page.locator(".terminal-state").inner_text()
    for _ in range(200):
        if not signal_session(int(match[1]), 0):
            break
        time.sleep(0.05)

    assert alive
    assert not signal_session(int(match[1]), 0)
    assert state == (
        "The connection to the server was lost, and the shell has ended with it."
        if number is signal.SIGKILL
        else "The terminal was closed, because the conversation or the server was."
    )
    assert ('"reason":"stopped"' in journal(tmp_path)) is (number is signal.SIGTERM)


def test_without_the_flag_the_page_has_no_terminal(serve: Serve, pages: Watched) -> None:
    page = pages.open(serve({"text": "Hello."}), "/dev", **WIDE)
    send(page, "Hi")
    answer(page, "Hello.")
    tabs = page.get_by_role("tab").all_inner_texts()

    assert "Frames" in tabs
    assert "Terminal" not in tabs
