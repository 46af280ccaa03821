"""The bar of a conversation says what it has cost, and how full its context is."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from refold.config.paths import paths
from refold.journal.events.kinds import (
    Delivered,
    ModelAnswered,
    ModelAsked,
    Said,
    SessionStarted,
    SystemPromptSet,
    TurnEnded,
    TurnStarted,
)
from refold.journal.journal_directory import JournalDirectory
from refold.values.messages import Message, Text
from refold.values.usage import Usage
from tests.journal.shelves import put_journal
from tests.server.pages.conftest import Held, Server, Watched
from tests.server.pages.test_page_stories import BOTH, answer, send
from tests.server.pages.test_subagent_stories import PHONE

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
SIZES = pytest.mark.parametrize("options", [{}, PHONE], ids=["wide", "phone"])
FULL = {"/": "of what I can keep in mind", "/dev": "of the context window"}


@BOTH
@SIZES
def test_the_bar_shows_how_full_the_context_is_from_the_first_response_on(
    serve: Serve, pages: Watched, path: str, options: dict[str, Any]
) -> None:
    page = pages.open(serve({"text": "Hello."}), path, **options)
    response = Held(page, "assistant_message")
    send(page, "Who is there?")
    response.wait(page)
    before = page.locator(".meter").is_visible()
    response.release()
    answer(page, "Hello.")

    page.locator(".meter").wait_for()
    label = page.locator(".meter").get_attribute("aria-label") or ""

    assert not before
    assert FULL[path] in label
    assert page.locator(".bar").evaluate("e => e.scrollWidth <= e.clientWidth + 1")


@BOTH
@SIZES
def test_the_bar_shows_the_cost_and_opens_its_details(
    serve: Serve, pages: Watched, path: str, options: dict[str, Any]
) -> None:
    response = ModelAnswered(
        Message("assistant", (Text("Hello. " * 2000),)), Usage(fresh=70_000, output=4000),
        model="a/m", cost=1.234,
    )  # fmt: skip
    put_journal(
        JournalDirectory(paths(os.environ).data / "sessions"), "s1",
        SessionStarted("/work", "0.1"), Said("Who is there?"), TurnStarted(2), Delivered((2,)),
        SystemPromptSet("You help.", model="a/m", window=100_000), ModelAsked(), response,
        TurnEnded("answered"),
    )  # fmt: skip
    page = pages.open(serve(), path, **options)
    page.goto(f"{page.url.partition('#')[0]}?c=s1")
    meter = page.locator(".meter")
    meter.wait_for()

    label = meter.get_attribute("aria-label") or ""
    meter.click()

    assert "$1.23" in label
    assert FULL[path] in label
    page.locator(".panel-body", has_text="$1.23").wait_for()
