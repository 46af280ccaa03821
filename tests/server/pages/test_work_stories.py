"""What works beside a conversation, on both pages: the task board, helpers, and commands."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold.agents.team import first_words
from refold.journal.state.fold import View
from refold.tools.team import TeammateRequest
from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_stories import BOTH, WORDS, answer, button, send

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]

TABS = {"/": {"tasks": "To do", "team": "Helpers", "background": "Running"},
        "/dev": {"tasks": "Tasks", "team": "Team", "background": "Background"}}  # fmt: skip


def calls(*pairs: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"calls": [{"tool": tool, "arguments": args} for tool, args in pairs]}


def panel(page: Any, name: str) -> Any:
    if page.locator(".app[data-panel=closed]").count():
        page.get_by_role("button", name="Show details").click()
    page.get_by_role("tab", name=name, exact=True).click()
    return page.locator(".panel-body")


def run_refold(server: Server, *text: str) -> None:
    """Another process in the same project."""
    subprocess.run(
        [sys.executable, "-m", "refold", *text], cwd=server.workspace, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip


@BOTH
def test_the_task_board_shows_changes_of_the_model_and_of_other_programs(
    serve: Serve, pages: Watched, path: str
) -> None:
    work = calls(
        ("task_create", {"subject": "Mend the door", "description": "Oil the hinges."}),
        ("task_create", {"subject": "Paint the door", "blocked_by": [1]}),
        ("task_claim", {"id": 1}),
    )
    server = serve(work, {"text": "It is planned."})
    page = pages.open(server, path)
    send(page, "Plan it")
    answer(page, "It is planned.")

    board = panel(page, TABS[path]["tasks"])
    board.locator(".todo").nth(1).wait_for()
    rows = board.locator(".todo").all_inner_texts()
    board.locator("summary").click()
    board.get_by_text("Oil the hinges.").wait_for()
    run_refold(server, "tasks", "add", "Clean <b>up</b>")
    board.get_by_text("Clean <b>up</b>").wait_for()

    mine, waits = {"/": ("me", "waits for #1"), "/dev": ("this session", "blocked by #1")}[
        path
    ]
    assert "Mend the door" in rows[0]
    assert mine in rows[0]
    assert waits in rows[1]
    assert board.get_by_text("Oil the hinges.").is_visible()  # it stays open


@BOTH
def test_a_background_command_can_be_followed_and_stopped(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(
        calls(("background_run", {"command": "tail -f log"})), {"text": "It runs."}
    )
    log: Path = server.workspace / "log"
    log.write_text("it begins\n")
    page = pages.open(server, path)
    send(page, "Serve it")
    page.locator(".request").wait_for()
    button(page, WORDS[path]["yes"]).click()
    answer(page, "It runs.")

    beside = panel(page, TABS[path]["background"])
    beside.locator(".worker summary").click()
    beside.get_by_text("it begins").wait_for()
    with log.open("a") as file:
        file.write("and <i>goes</i> on\n")
    beside.get_by_text("and <i>goes</i> on").wait_for()
    stop = {"/": "Stop Program 1", "/dev": "Stop background-1"}[path]
    button(page, stop).click()
    button(page, stop).wait_for(state="detached")

    assert "stopped" in beside.locator(".worker-head").inner_text()
    assert "goes" in beside.locator(".worker pre").inner_text()


@BOTH
def test_the_running_command_of_a_turn_is_moved_to_the_background(
    serve: Serve, pages: Watched, path: str
) -> None:
    text = "touch begun; until test -e go; do sleep 0.02; done"
    server = serve(calls(("bash", {"command": text})), {"text": "I go on."})
    page = pages.open(server, path)
    send(page, "Build it")
    page.locator(".request").wait_for()
    button(page, WORDS[path]["yes"]).click()
    beside = panel(page, TABS[path]["background"])
    move = {
        "/": "Do not wait for the running program",
        "/dev": "Move the running command here",
    }
    button(page, move[path]).click()
    answer(page, "I go on.")
    beside.locator(".worker").wait_for()
    (server.workspace / "go").touch()
    beside.get_by_text("done", exact=True).wait_for()

    assert not button(page, move[path]).is_visible()


@BOTH
def test_a_teammate_is_shown_with_its_mail_and_can_be_stopped(
    serve: Serve, pages: Watched, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_SUBAGENTS__TEAMS", "true")
    spawn = {"name": "ada", "role": "reviewer", "prompt": "Review it."}
    hers = first_words(TeammateRequest(**spawn, agent="code"), View())
    mail = {"to": "ada", "content": "Begin with the tests."}
    server = serve(
        calls(("spawn_teammate", spawn)), calls(("send_message", mail)), {"text": "She works."},
        {"for": hers, "text": "word " * 400, "pause": 0.1},
    )  # fmt: skip
    page = pages.open(server, path)
    send(page, "Get help")
    team = panel(page, TABS[path]["team"])

    worker = team.locator(".worker", has_text="ada")
    worker.wait_for()
    team.get_by_text("Begin with the tests.").wait_for()
    works = {"/": "at work", "/dev": "works"}[path]
    worker.get_by_text(works, exact=True).wait_for()
    button(page, "Stop ada").click()
    button(page, "Stop ada").wait_for(state="detached")
    worker.get_by_text(works, exact=True).wait_for(state="detached")
