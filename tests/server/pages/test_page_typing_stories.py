"""What is typed, attached and linked on the pages does no more than was meant."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_stories import (
    BOTH,
    WORDS,
    WRITE,
    answer,
    button,
    id_of,
    send,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]


def draft(page: Any) -> str:
    return page.input_value("#message")


def attach(page: Any, name: str, content: bytes) -> None:
    page.locator("form.composer input[type=file]").set_input_files(
        {"name": name, "mimeType": "text/plain", "buffer": content}
    )


@BOTH
@pytest.mark.parametrize("text", ["hey do you", "yes, and then", "no, you"])
def test_typing_on_a_page_answers_no_request(
    serve: Serve, pages: Watched, path: str, text: str
) -> None:
    asks = {"text": "Let me see what is there first.", "pause": 0.03, **WRITE}
    server = serve(asks, {"text": "Written."})
    page = pages.open(server, path)
    send(page, "Write a.txt")

    page.keyboard.type(text, delay=60)
    page.locator(".request").wait_for()
    page.keyboard.type(" more", delay=60)

    assert draft(page) == f"{text} more"
    page.locator(".request").wait_for()
    assert not (server.workspace / "a.txt").exists()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.locator(".request:focus").wait_for()
    page.keyboard.press("ArrowDown")
    page.locator(".request .is-chosen", has_text=WORDS[path]["yes"]).first.wait_for()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("x")
    assert draft(page) == "x"
    page.keyboard.press("Backspace")
    page.locator(".request:focus").wait_for()
    page.keyboard.press("Enter")
    answer(page, "Written.")
    assert (server.workspace / "a.txt").exists()


@BOTH
def test_draft_stays_with_its_conversation_and_survives_a_reload(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "Hello."}), path)
    send(page, "First")
    answer(page, "Hello.")
    first = id_of(page)
    page.fill("#message", "a long careful draft")
    page.evaluate("() => history.pushState(null, '', location.pathname)")
    page.evaluate("() => dispatchEvent(new PopStateEvent('popstate'))")
    page.locator(".welcome").wait_for()

    assert draft(page) == ""
    page.fill("#message", "for a new one")
    page.reload()
    page.locator(".welcome").wait_for()
    assert draft(page) == "for a new one"
    page.locator(f".card[href*='{first}']").click()
    page.locator(".block-heard").wait_for()
    assert draft(page) == "a long careful draft"
    if path == "/dev":
        page.locator(".chips button.chip").first.click()
        page.locator("dialog input").wait_for()
        page.keyboard.press("Escape")
        assert draft(page) == "a long careful draft"
    page.locator("#message").press("Enter")
    page.locator(".block-heard", has_text="careful").wait_for()
    page.reload()
    page.locator(".block-heard", has_text="careful").wait_for()
    assert draft(page) == ""


@BOTH
def test_an_attached_file_does_not_replace_an_existing_file(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": "Hello."}, {"text": "I see."})
    (server.workspace / "README.md").write_text("ORIGINAL")
    page = pages.open(server, path)
    send(page, "First")
    answer(page, "Hello.")

    page.fill("#message", "Read")
    attach(page, "README.md", b"mine")
    beside = server.workspace / "README-1.md"
    wait_until(page, "document.querySelector('#message').value.includes('README')")

    assert draft(page) == "Read @README-1.md "
    assert (server.workspace / "README.md").read_text() == "ORIGINAL"
    assert beside.read_text() == "mine"


@BOTH
def test_a_misleading_link_shows_its_target(
    serve: Serve, pages: Watched, path: str
) -> None:
    text = "See [https://github.com](http://evil.example/) or [the docs](https://example.org/a)."
    page = pages.open(serve({"text": text}), path)
    send(page, "Where?")
    page.locator(".link-target").wait_for()

    assert page.locator(".link-target").all_inner_texts() == [" (http://evil.example/)"]
    titles = page.locator(".block-words a").evaluate_all("all => all.map((a) => a.title)")
    assert titles == ["http://evil.example/", "https://example.org/a"]


def test_own_workspace_writes_without_a_request(serve: Serve, pages: Watched) -> None:
    server = serve(WRITE, {"text": "Written."})
    page = pages.open(server, "/dev")
    page.get_by_role("button", name="New chat").first.click()
    page.locator("dialog input[name=own_workspace]").check()
    page.locator("dialog select[name=mode]").select_option("accept-edits")
    button(page, "Start").click()
    id_of(page)

    send(page, "Write a.txt")

    answer(page, "Written.")
    assert page.locator(".request").count() == 0
