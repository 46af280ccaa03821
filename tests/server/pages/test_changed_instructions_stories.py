"""Instructions of the folder that changed: a page shows the change and asks which version counts."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from refold.client.folder_trust import KEEP, USE, record_versions
from refold.config.paths import paths
from refold.config.trusted_folders import TrustedFolders
from tests.journal.journals import prompts_in
from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_stories import (
    BOTH,
    answer,
    button,
    id_of,
    listen,
    send,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
QUESTION = "Send the changed instructions to the model from now on?"


def change_instructions(server: Server) -> None:
    """The server's folder is trusted, and AGENTS.md changed since."""
    file, places = server.workspace / "AGENTS.md", paths(os.environ)
    file.write_text("Run the tests.\nUse tabs.\n")
    TrustedFolders(places.folders).trust_texts(str(server.workspace))
    record_versions(str(server.workspace), places.data)
    file.write_text("Run the tests.\nUse spaces.\u200b\n")


def prompts(server: Server, page: Any) -> str:
    """Return the newest system prompt of the conversation on the page."""
    return prompts_in(paths(os.environ).data / "sessions" / id_of(page) / "events.jsonl")[
        -1
    ].system


@BOTH
def test_changed_instructions_are_shown_and_used_after_approval(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": "Hello."}, {"text": "Again."})
    change_instructions(server)
    page = pages.open(server, path)
    listen(page)

    send(page, "Hi")
    answer(page, "Hello.")
    card = page.get_by_role("dialog", name=QUESTION)
    card.wait_for()
    inner_texts = card.locator("tr.gone .text, tr.added .text").all_inner_texts()
    warning = card.locator(".warning").inner_text()
    before = prompts(server, page)
    button(page, USE).click()
    card.wait_for(state="detached")
    send(page, "And now?")
    answer(page, "Again.")

    assert inner_texts == ["Use tabs.", "Use spaces.\\u200b"]
    assert warning == "1 hidden character is written out."
    assert "AGENTS.md changed since you trusted it" in "".join(page.evaluate("told"))
    assert ("Use tabs." in before, "Use spaces." in prompts(server, page)) == (True, True)
    page.reload()
    page.locator(".light[data-state=online]").wait_for()
    answer(page, "Again.")
    assert page.locator(".request").count() == 0


@BOTH
def test_enter_keeps_the_trusted_version_and_another_window_sees_the_answer(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": "Hello."}, {"text": "Again."})
    change_instructions(server)
    page = pages.open(server, path)
    send(page, "Hi")
    answer(page, "Hello.")
    other = page.context.new_page()
    other.set_viewport_size({"width": 390, "height": 844})
    other.goto(page.url)
    other.locator(".request").wait_for()
    assert other.evaluate("document.documentElement.scrollWidth <= innerWidth")

    wait_until(page, "document.activeElement.matches('.request')")
    assert page.locator(".request .is-chosen").inner_text() == KEEP
    page.wait_for_timeout(800)  # keys count after a pause
    page.keyboard.press("Enter")
    other.locator(".request").wait_for(state="detached")
    send(page, "And now?")
    answer(page, "Again.")

    assert "Use spaces." not in prompts(server, page)
    assert (server.workspace / "AGENTS.md").read_text().startswith("Run the tests.")
