"""Subagents on both pages: opened from the conversation, followed live, and left again."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.pages.conftest import Held, Server, Watched
from tests.server.pages.test_page_stories import BOTH, WORDS, answer, button, id_of, send
from tests.server.pages.test_work_stories import TABS, calls, panel

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
PHONE = {"viewport": {"width": 360, "height": 780}}
TASK = "Look around for doors."
LOOK = calls(("task", {"agent": "code", "prompt": TASK}))
HELD = "until test -e go; do sleep 0.05; done; echo it is gone"
LINK = {"/": "Look at its work", "/dev": "open"}
NAME = {"/": "Helper 1", "/dev": "child-1"}
NO_MESSAGES = {"/": "Messages go to the conversation above", "/dev": "read only"}


@BOTH
@pytest.mark.parametrize("options", [{}, PHONE], ids=["wide", "phone"])
def test_a_running_subagent_opens_and_is_followed_to_its_end(
    serve: Serve, pages: Watched, path: str, options: dict[str, Any]
) -> None:
    server = serve(
        LOOK, {"text": "It found a door."},
        {"for": TASK, **calls(("bash", {"command": HELD}))},
        {"for": TASK, "text": "There is **a door**, as far as I can see.", "pause": 0.05},
    )  # fmt: skip
    page = pages.open(server, path, **options)
    send(page, "Send somebody")
    id_ = id_of(page)
    page.locator(".request").wait_for()
    page.locator(".block-news").get_by_text(LINK[path], exact=True).click()

    page.locator(".node-bar").get_by_text("It waits for your answer").wait_for()
    page.locator(".block-heard", has_text=TASK).wait_for()
    assert not page.locator("#message").is_visible()
    assert page.url.endswith(f"{id_}%2Fchild-1")
    page.go_back()
    page.locator(".request").wait_for()
    button(page, WORDS[path]["yes"]).click()
    page.locator(".request").wait_for(state="detached")
    response = Held(page, "assistant_message", "There is")
    page.go_forward()
    page.locator(".node-bar").get_by_text(NO_MESSAGES[path]).wait_for()
    page.locator(".block-heard", has_text=TASK).wait_for()  # it is connected
    (server.workspace / "go").touch()
    page.locator(".coming", has_text="There is").wait_for()  # while it is written
    response.release()
    answer(page, "There is a door, as far as I can see.")
    step = page.locator(".block-called details")
    step.locator("summary").first.click()
    assert "it is gone" in step.first.inner_text()
    assert page.locator(".scroller").evaluate("e => e.scrollWidth <= e.clientWidth + 1")
    page.locator(".node-bar").get_by_role("button").click()
    answer(page, "It found a door.")
    assert page.locator("#message").is_visible()


@BOTH
def test_a_finished_subagent_opens_from_its_panel_after_a_reload(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(
        LOOK, {"text": "It found a door."}, {"for": TASK, "text": "There is a door."}
    )
    page = pages.open(server, path)
    send(page, "Send somebody")
    answer(page, "It found a door.")
    page.reload()
    answer(page, "It found a door.")

    panel(page, TABS[path]["team"]).get_by_text(NAME[path], exact=True).click()
    answer(page, "There is a door.")
    page.reload()
    answer(page, "There is a door.")
    page.locator(".card[aria-current=page]", has_text="Send somebody").wait_for()
    page.locator(".node-bar").get_by_role("button", name="Back to Send somebody").wait_for()
    assert page.locator(".node-bar [aria-current]").inner_text() == NAME[path]


def test_the_tree_of_the_developer_page_opens_a_subagent(
    serve: Serve, pages: Watched
) -> None:
    server = serve(
        LOOK, {"text": "It found a door."}, {"for": TASK, "text": "There is a door."}
    )
    page = pages.open(server, "/dev")
    send(page, "Send somebody")
    answer(page, "It found a door.")

    tree = panel(page, "Tree")
    opening = tree.get_by_role("button", name="Open code, root/child-1")
    opening.wait_for()
    late = list[Any]()
    page.route("**/tree", lambda route: late.append(route))
    opening.click()
    answer(page, "There is a door.")
    page.get_by_role("tab", name="Usage", exact=True).click()
    page.locator(".panel-body .figures").first.wait_for()
    with page.expect_response("**/tree"):
        late[0].continue_()
    page.wait_for_timeout(200)

    assert page.locator(".panel-body .figures").first.is_visible()


def test_a_row_of_the_timeline_opens_the_subagent_at_its_event(
    serve: Serve, pages: Watched
) -> None:
    server = serve(
        LOOK, {"text": "It found a door."}, {"for": TASK, "text": "There is a door."}
    )
    page = pages.open(server, "/dev")
    send(page, "Send somebody")
    answer(page, "It found a door.")

    row = panel(page, "Timeline").locator("li", has_text="There is a door.")
    row.get_by_role("button").click()
    page.locator(".node-bar").get_by_role("button", name="Back to Send somebody").wait_for()
    page.locator("article:focus").wait_for()
