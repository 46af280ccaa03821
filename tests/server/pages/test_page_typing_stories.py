"""What is typed, attached and linked on the pages does no more than was meant."""

from collections.abc import Callable
from pathlib import Path
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
)

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]


def draft(page: Any) -> str:
    return page.input_value("#message")


def attach(page: Any, name: str, content: bytes) -> None:
    page.locator("form.composer input[type=file]").first.set_input_files(
        {"name": name, "mimeType": "text/plain", "buffer": content}
    )


@BOTH
def test_typing_on_a_page_answers_no_request(
    serve: Serve, pages: Watched, path: str
) -> None:
    texts = ["hey do you", "yes, and then", "no, you"]
    asks = {"text": "Let me see what is there first.", "pause": 0.03, **WRITE}
    server = serve(*[asks, {"text": "Written."}] * len(texts))
    page = pages.open(server, path)

    for number, text in enumerate(texts, start=1):
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
        if number == len(texts):
            page.keyboard.press("ArrowDown")
            chosen = page.locator(".request .is-chosen", has_text=WORDS[path]["yes"])
            chosen.first.wait_for()
            page.keyboard.press("ArrowUp")
            page.keyboard.press("x")
            assert draft(page) == "x"
            page.keyboard.press("Backspace")
            page.locator(".request:focus").wait_for()
        page.keyboard.press("Enter")
        page.locator(".block-words", has_text="Written.").nth(number - 1).wait_for()
        assert (server.workspace / "a.txt").exists()
        (server.workspace / "a.txt").unlink()


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
    page.locator(".light[data-state=online]").wait_for()
    page.fill("#message", "sent while leaving")
    page.evaluate(SEND_AND_LEAVE)
    page.locator(".welcome").wait_for()
    page.locator(f".card[href*='{first}']").click()
    page.locator(".block-heard", has_text="while leaving").wait_for()
    page.wait_for_timeout(300)
    assert (draft(page), page.locator(".block-heard").count()) == ("", 3)


def chips(page: Any) -> list[str]:
    """Return the names of what is attached, as a screen reader has them."""
    buttons = page.locator(".attachment .icon-button")
    names = buttons.evaluate_all("all => all.map((b) => b.ariaLabel)")
    return [name.removeprefix("Remove ") for name in names]


SEND_AND_LEAVE = """async () => {
  document.querySelector("form.composer").requestSubmit();
  await new Promise((done) => { setTimeout(done); }); // it is under way
  history.pushState(null, "", location.pathname);
  dispatchEvent(new PopStateEvent("popstate"));
}"""
PASTE = """text => {
  const data = new DataTransfer();
  data.setData("text/plain", text);
  document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
}"""


@BOTH
def test_attachments_are_removed_with_keys_and_the_message_names_the_remaining_ones(
    serve: Serve, pages: Watched, path: str, tmp_path: Path
) -> None:
    server = serve({"text": "Hello."}, {"text": "I see."})
    (server.workspace / "README.md").write_text("ORIGINAL")
    (server.workspace / "plans").mkdir()
    folder = tmp_path / "plans"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git/config").write_text("hidden")
    (folder / "may").mkdir()
    (folder / "may/first.txt").write_text("1 May")
    page = pages.open(server, path)
    send(page, "First")
    answer(page, "Hello.")

    page.fill("#message", "Read")
    attach(page, "README.md", b"mine")
    page.locator(".attachment", has_text="README-1.md").wait_for()
    page.locator("form.composer input[webkitdirectory]").set_input_files(folder)
    page.locator(".attachment", has_text="plans-1").wait_for()
    page.focus("#message")
    page.evaluate(PASTE, "a short text")
    page.evaluate(PASTE, "a line\r\n" * 40)
    page.evaluate(PASTE, "x" * 2000)
    every = [
        "README-1.md",
        "plans-1",
        "Pasted text, 40 lines",
        "Pasted text, 2,000 characters",
    ]
    assert chips(page) == every
    page.reload()
    page.locator(".attachment").first.wait_for()
    assert (draft(page), chips(page)) == ("Read", every)

    page.focus("#message")
    page.keyboard.press("Home")
    page.keyboard.press("Backspace")
    page.keyboard.press("Delete")
    page.get_by_role("status").filter(has_text="2,000 characters is removed").wait_for()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Delete")
    page.get_by_role("status").filter(has_text="It stays in the folder.").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")

    answer(page, "I see.")
    assert chips(page) == []
    uploads = page.locator(".block-uploads").get_by_text("2 files")
    uploads.click()
    page.locator(".block-uploads li", has_text="plans-1/may/first.txt").wait_for()
    assert page.locator(".block-news", has_text="first.txt").count() == 0
    message = page.locator(".block-heard").last
    assert message.locator(".named li").all_inner_texts() == ["plans-1/"]
    assert message.inner_text().count("a line") == 40
    shown = message.bounding_box()["height"]
    message.get_by_role("button", name="Show all").click()
    assert message.bounding_box()["height"] > shown + 300
    assert (server.workspace / "README.md").read_text() == "ORIGINAL"
    assert (server.workspace / "README-1.md").read_text() == "mine"
    assert (server.workspace / "plans-1/may/first.txt").read_text() == "1 May"
    assert not (server.workspace / "plans-1/.git").exists()


@BOTH
def test_a_misleading_link_shows_its_target(
    serve: Serve, pages: Watched, path: str
) -> None:
    text = "See [https://github.com](http://evil.example/) or [the docs](https://example.org/a)."
    page = pages.open(serve({"text": text}), path)
    send(page, "Where?")
    page.locator(".link-target").wait_for()
    page.get_by_role("link", name="the docs").wait_for()

    assert page.locator(".link-target").all_inner_texts() == [" (http://evil.example/)"]
    titles = page.locator(".block-words a").evaluate_all("all => all.map((a) => a.title)")
    assert titles == ["http://evil.example/", "https://example.org/a"]


def test_a_chat_in_its_own_workspace_in_mode_accept_edits_writes_without_a_request(
    serve: Serve, pages: Watched
) -> None:
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
