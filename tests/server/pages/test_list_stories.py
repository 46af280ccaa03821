"""The list of conversations on the pages: groups, pages, what each does, pins, notifications."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from refold.config.paths import paths
from refold.journal.journal_directory import JournalDirectory
from tests.journal.shelves import conversation_events, put_journal
from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_stories import (
    BOTH,
    WRITE,
    answer,
    button,
    id_of,
    send,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
# A browser without a screen shows no notifications.
NOTIFICATIONS = """
    window.notices = [];
    window.Notification = class {
        static permission = "granted";
        static async requestPermission() { return "granted"; }
        constructor(title, { body }) { window.notices.push(body); window.notice = this; }
        close() {}
    };
"""


def menu(page: Any, name: str) -> None:
    page.locator(".menu summary").click()
    page.locator(".menu-list").get_by_role("button", name=name, exact=True).click()


def card(page: Any, text: str) -> Any:
    return page.locator(".card", has_text=text)


@BOTH
def test_a_conversation_that_waits_elsewhere_is_marked_and_counted(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve(WRITE, {"text": "Written."}), path)
    send(page, "Write a.txt")
    waits = id_of(page)
    page.locator(".request").wait_for()

    page.goto(page.url.partition("?")[0])
    card(page, "Write a.txt").get_by_text("waits for you").wait_for()
    wait_until(page, "() => document.title.startsWith('(1) ')")
    page.locator(".request").wait_for(state="detached")
    card(page, "Write a.txt").click()
    page.locator(".request").wait_for()
    wait_until(page, "() => document.title.startsWith('(!) ')")
    assert id_of(page) == waits


def test_the_user_is_notified_once_when_a_conversation_begins_to_wait(
    serve: Serve, pages: Watched
) -> None:
    server = serve({**WRITE, "text": "I think about it for a while.", "pause": 0.4})
    page = pages.open(server, "/", NOTIFICATIONS)
    button(page, "Tell me when a chat waits for me").click()
    send(page, "Write a.txt")
    waits = id_of(page)
    page.locator(".coming").first.wait_for()

    page.evaluate("() => history.back()")
    wait_until(page, "() => window.notices.length === 1", 60.0)
    assert page.evaluate("() => window.notices") == ["“Write a.txt” waits for you."]
    page.evaluate("() => window.notice.onclick()")

    page.locator(".request").wait_for()
    assert id_of(page) == waits


@BOTH
def test_older_conversations_load_while_the_list_is_scrolled(
    serve: Serve, pages: Watched, path: str
) -> None:
    sessions = JournalDirectory(paths(os.environ).data / "sessions")
    for number in range(230):
        put_journal(
            sessions,
            f"s{number}",
            *conversation_events(f"Question {number} of many"),
            changed=1e9 + number,
        )
    page = pages.open(serve(), path)

    card(page, "Question 229 ").wait_for()
    assert page.locator(".card").count() < 230
    wait_until(page, """() => {
        const list = document.querySelector(".cards");
        list.scrollTop = list.scrollHeight;
        return document.querySelectorAll(".card").length === 230;
    }""")  # fmt: skip

    assert card(page, "Question 0 ").count() == 1


def test_a_conversation_created_while_the_list_loads_stays_in_the_list(
    serve: Serve, pages: Watched
) -> None:
    server = serve({"text": "Hello."})
    page = pages.open(server).context.new_page()
    held = list[Any]()
    page.route(
        "**/api/conversations?limit=40", lambda route: held.append((route, route.fetch()))
    )
    page.goto(server.address)
    send(page, "About moss")
    answer(page, "Hello.")
    card(page, "About moss").wait_for()

    route, response = held[0]
    route.fulfill(response=response)  # as it was before the message
    while len(held) < 2:  # the page has it, and reads the list again
        page.wait_for_timeout(20)

    assert response.json() == []
    assert card(page, "About moss").count() == 1


def test_conversations_are_grouped_by_day_and_by_folder(
    serve: Serve, pages: Watched
) -> None:
    sessions = JournalDirectory(paths(os.environ).data / "sessions")
    put_journal(
        sessions,
        "old",
        *conversation_events("An old one", directory="/home/ada/garden"),
        changed=1e9,
    )
    page = pages.open(serve({"text": "Hello."}))
    send(page, "A new one")
    answer(page, "Hello.")
    card(page, "A new one").wait_for()
    card(page, "An old one").wait_for()

    assert page.locator(".card-group").all_inner_texts() == ["Today", "September 2001"]
    page.get_by_label("Which conversations").select_option("folder")

    page.get_by_role("heading", name="garden").wait_for()
    groups = page.locator(".card-group").all_inner_texts()
    assert groups[1] == "…/ada/garden"
    assert groups[0].endswith("/work")


@BOTH
def test_a_conversation_is_pinned_and_archived_in_its_menu(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "Hello."}), path)
    send(page, "About moss")
    answer(page, "Hello.")
    card(page, "About moss").get_by_text("done").wait_for(state="attached")

    menu(page, "Pin")
    page.get_by_role("heading", name="Pinned").wait_for()
    menu(page, "Archive")
    card(page, "About moss").wait_for(state="detached")
    page.get_by_label("Which conversations").select_option("archived")
    card(page, "About moss").wait_for()
    menu(page, "Move out of the archive")
    card(page, "About moss").wait_for(state="detached")
