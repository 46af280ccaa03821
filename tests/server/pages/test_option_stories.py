"""What holds for one conversation: its directories, its budget, teams and recorded requests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.pages.conftest import Held, Server, Watched
from tests.server.pages.test_page_stories import BOTH, answer, button, id_of, send

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
RECORD = {
    "/": "Keep a record of everything that is sent to the model",
    "/dev": "Record each model request and response as it is sent",
}
TEAMS = {"/": "Let me work with helpers", "/dev": "Teams: the agent may lead teammates"}
ADDED = {"/": "More folders I may work in", "/dev": "Added directories"}


def options(page: Any) -> Any:
    page.locator(".menu summary").click()
    page.locator(".menu").get_by_role("button", name="Options").click()
    return page.locator("dialog")


@BOTH
def test_options_apply_to_the_conversation_and_are_shown_when_reopened(
    serve: Serve, pages: Watched, path: str, tmp_path: Path
) -> None:
    more = tmp_path / "more"
    more.mkdir()
    server = serve({"text": "Hello."}, {"text": "Again."})
    page = pages.open(server, path)
    send(page, "Hi")
    answer(page, "Hello.")
    address = f"{server.address}/api/conversations/{id_of(page)}"
    unrecorded = page.request.get(f"{address}/requests").json()

    dialog = options(page)
    dialog.get_by_label(ADDED[path]).fill(str(more))
    dialog.get_by_label("US dollars").fill("0.5")
    dialog.get_by_label(TEAMS[path]).check()
    dialog.get_by_label(RECORD[path]).check()
    button(page, "Save").click()
    dialog.wait_for(state="detached")
    status = Held(page, "status")  # has what the dialog shows
    page.reload()
    page.locator(".light[data-state=online]").wait_for()
    status.wait(page)
    early = page.locator(".menu").is_visible()
    status.release()
    dialog = options(page)
    result = (
        dialog.get_by_label(ADDED[path]).input_value(),
        dialog.get_by_label("US dollars").input_value(),
        dialog.get_by_label(TEAMS[path]).is_checked(),
        dialog.get_by_label(RECORD[path]).is_checked(),
    )
    button(page, "Cancel").click()
    send(page, "And now?")
    answer(page, "Again.")

    assert not early
    assert result == (str(more), "0.5", True, True)
    assert unrecorded == []
    assert len(page.request.get(f"{address}/requests").json()) == 1


@BOTH
def test_a_directory_that_does_not_exist_is_refused_in_the_dialog(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "Hello."}), path)
    send(page, "Hi")
    answer(page, "Hello.")

    dialog = options(page)
    dialog.get_by_label(ADDED[path]).fill("/no/such/place")
    button(page, "Save").click()

    dialog.get_by_role("alert").wait_for()
    assert "/no/such/place" in dialog.get_by_role("alert").inner_text()
    assert button(page, "Save").is_enabled()
