"""The folder of a new chat: picked, recent, or new with a name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_accessibility import problems
from tests.server.pages.test_page_stories import BOTH, answer, button, id_of, send
from tests.server.pages.test_settings_stories import SIZES

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]


def new_chat(page: Any) -> Any:
    if page.viewport_size["width"] < 800:
        page.locator(".bar button").first.click()
    page.locator(".list").get_by_role("button", name="New chat").click()
    return page.locator("dialog")


def directory_of(page: Any, server: Server) -> str:
    card = page.request.get(f"{server.address}/api/conversations/{id_of(page)}").json()
    return card["directory"]


@SIZES
@BOTH
def test_a_folder_picked_for_a_new_chat_is_offered_as_recent_the_next_time(
    serve: Serve, pages: Watched, path: str, size: Any
) -> None:
    server = serve({"text": "Hello."})
    (server.workspace / "Reports" / "2026").mkdir(parents=True)
    page = pages.open(server, path, **size)
    dialog = new_chat(page)
    button(page, "Browse").click()
    dialog.locator(".folder-picker").get_by_role("button", name="Reports").click()
    dialog.locator(".folder-picker").get_by_role("button", name="2026").click()
    dialog.get_by_text("There is no folder in it.").wait_for()
    faults = problems(page)
    fits = dialog.evaluate("e => e.scrollWidth <= e.clientWidth")
    button(page, "Start").click()
    id_of(page)
    send(page, "Hi")
    answer(page, "Hello.")
    directory = directory_of(page, server)
    dialog = new_chat(page)
    dialog.locator(".folder-recent").get_by_role("button", name="2026").click()
    again = dialog.locator("input[name=workspace]").input_value()

    assert (faults, fits) == ([], True)
    assert directory == again == str(server.workspace / "Reports" / "2026")


@BOTH
def test_the_new_folder_of_a_chat_gets_the_typed_name(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": "Hello."})
    page = pages.open(server, path)
    dialog = new_chat(page)
    dialog.locator("input[name=own_workspace]").check()
    dialog.get_by_label("Name of the new folder").fill("Invoices 2026")
    button(page, "Start").click()
    id_of(page)
    send(page, "Hi")
    answer(page, "Hello.")

    assert Path(directory_of(page, server)).name == "Invoices 2026"
