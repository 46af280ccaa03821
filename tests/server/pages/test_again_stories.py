"""After an answer or an error: copy, answer again, try again, edit, and go back to a message."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.pages.conftest import Held, Server, Watched
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
REFUSED = {"error": {"kind": "Refused", "words": "mine refused the key in MINE_KEY (401)"}}
# A browser without a screen gives no clipboard.
CLIPBOARD = """
    Object.defineProperty(navigator, "clipboard", {value: {
        writeText: async (text) => { window.copied = text; },
    }});
"""


def message_button(page: Any, text: str, name: str) -> None:
    block = page.locator(".block-heard:not(.is-rewound)", has_text=text)
    block.hover()
    block.get_by_role("button", name=name).click()


@BOTH
def test_message_and_answer_are_copied_as_they_were_written(
    serve: Serve, pages: Watched, path: str
) -> None:
    lines = [
        {"for": "Who is *there*?", "text": "Hello, **you**."},
        {"for": "Who?", "text": "Me."},
    ]
    page = pages.open(serve(*lines), path, CLIPBOARD)
    send(page, "Who is *there*?")
    answer(page, "Hello, you.")

    page.locator(".again").get_by_role("button", name="Copy answer").click()
    wait_until(page, "() => window.copied === 'Hello, **you**.'")
    message_button(page, "there", "Copy message")
    wait_until(page, "() => window.copied === 'Who is *there*?'")
    page.go_back()
    page.locator(".welcome").wait_for()
    send(page, "Who?")
    answer(page, "Me.")
    page.locator(".again").get_by_role("button", name="Copy answer").click()
    wait_until(page, "() => window.copied === 'Me.'")
    page.locator(".card", has_text="there").click()
    answer(page, "Hello, you.")
    page.locator(".again").get_by_role("button", name="Copy answer").click()

    wait_until(page, "() => window.copied === 'Hello, **you**.'")


@BOTH
def test_answer_again_rewinds_the_answer_and_sends_the_message_again(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "First."}, {"text": "Second."}), path)
    send(page, "Say something")
    answer(page, "First.")

    button(page, "Answer again").click()
    answer(page, "Second.")

    assert "First." in page.locator(".block-words.is-rewound").inner_text()
    assert page.locator(".block-heard:not(.is-rewound)").count() == 1


def test_answer_again_can_restore_changed_files(serve: Serve, pages: Watched) -> None:
    server = serve(WRITE, {"text": "Written."}, {"text": "Not this time."})
    page = pages.open(server)
    held_result = Held(page, "result")  # has the files, and may come late
    send(page, "Write a.txt")
    button(page, WORDS["/"]["yes"]).click()
    answer(page, "Written.")
    held_result.wait(page)
    page.locator(".block-turn_over").wait_for(state="attached")
    assert page.locator(".again").is_hidden()
    held_result.release()

    button(page, "Answer again").click()
    page.locator("dialog").get_by_role("button", name="Answer again").click()
    answer(page, "Not this time.")

    assert not (server.workspace / "a.txt").exists()


@BOTH
def test_a_failed_turn_is_tried_again_with_a_button(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve(REFUSED, {"text": "Now it works."}), path)
    send(page, "Hi")

    button(page, "Try again").click()

    answer(page, "Now it works.")
    assert page.locator(".block-heard").count() == 1


def test_the_user_page_says_in_plain_words_why_a_turn_failed(
    serve: Serve, pages: Watched
) -> None:
    page = pages.open(serve(REFUSED))
    send(page, "Hi")

    over = page.locator(".block-turn_over")
    over.get_by_text("does not accept its key").wait_for()
    assert "MINE_KEY" not in over.inner_text()
    over.get_by_text("The exact error").click()
    assert "mine refused the key in MINE_KEY (401)" in over.inner_text()


@BOTH
def test_an_edited_message_is_sent_in_a_copy_of_the_conversation(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "First."}, {"text": "Second."}), path)
    send(page, "Say one")
    answer(page, "First.")
    source = id_of(page)

    message_button(page, "Say one", "Edit and send again")
    wait_until(page, f"() => !location.href.includes({source!r})")
    wait_until(page, "() => document.querySelector('#message').value === 'Say one'")
    assert page.locator(".block-words").count() == 0
    assert page.locator(".composer .problem").is_hidden()
    send(page, "Say two")
    page.locator(".block-heard", has_text="Say two").wait_for()

    page.go_back()
    answer(page, "First.")


@BOTH
def test_going_back_to_a_message_puts_its_text_into_the_input(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "Hello."}), path)
    send(page, "Hi there")
    answer(page, "Hello.")

    message_button(page, "Hi there", "Go back to before this message")
    page.locator("dialog").get_by_role(
        "button", name="Go back to before this message"
    ).click()

    wait_until(page, "() => document.querySelector('#message').value === 'Hi there'")
