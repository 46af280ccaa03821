"""The order of a conversation on the pages is that of time: a message stands where it was read."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_stories import answer, send
from tests.server.pages.test_subagent_stories import PHONE

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
SLOW = "A long answer, word by word, so that there is time to say something else meanwhile."


def words_of(page: Any) -> list[str]:
    """The messages and answers from top to bottom, by their first words."""
    blocks = page.locator(".feed :is(.heard, .words)").all_inner_texts()
    known = ("Tell me", "A long", "Be brief", "Brief.")
    return [next(k for k in known if k in text) for text in blocks]


@pytest.mark.parametrize(
    ("path", "options"), [("/", PHONE), ("/dev", {})], ids=["phone", "wide"]
)
def test_a_message_sent_during_a_turn_is_shown_as_unread_and_then_where_it_was_read(
    serve: Serve, pages: Watched, path: str, options: dict[str, Any]
) -> None:
    server = serve({"text": SLOW, "pause": 0.2}, {"text": "Brief."})
    page = pages.open(server, path, **options)
    send(page, "Tell me")
    page.locator(".coming", has_text="A long").wait_for()
    send(page, "Be brief")

    unread = page.locator(".waiting .block-heard", has_text="Be brief")
    unread.get_by_text("Not read yet", exact=True).wait_for()
    during = words_of(page)
    answer(page, "Brief.")
    after = words_of(page)
    page.reload()
    answer(page, "Brief.")

    assert during == ["Tell me", "A long", "Be brief"]
    assert after == ["Tell me", "A long", "Be brief", "Brief."]
    assert words_of(page) == after
    assert page.get_by_text("Not read yet").count() == 0
