"""What is in sight: the end of a conversation, the whole of a request, lists and tables."""

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
    send,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
LONG = "\n\n".join(f"Paragraph {n}, which is read before." for n in range(40))
PHONE: dict[str, Any] = {
    "viewport": {"width": 360, "height": 640},
    "is_mobile": True,
    "has_touch": True,
}
AT_END = (
    "() => { const s = document.querySelector('.scroller');"
    " return s.scrollHeight - s.scrollTop - s.clientHeight < 60; }"
)


@pytest.mark.parametrize("phone", [False, True])
@BOTH
def test_the_page_stays_scrolled_to_the_end_while_requests_appear_and_close(
    serve: Serve, pages: Watched, path: str, phone: bool
) -> None:
    server = serve({"text": LONG}, WRITE, {"text": f"{LONG}\n\nThe end."})
    page = pages.open(server, path, **(PHONE if phone else {}))
    send(page, "Look")
    answer(page, "Paragraph 39")

    send(page, "Write a.txt")
    page.locator(".request").wait_for()
    wait_until(page, AT_END)
    button(page, WORDS[path]["yes"]).click()
    answer(page, "The end.")
    page.locator(".request").wait_for(state="detached")

    wait_until(page, AT_END)
    assert page.locator(".latest").is_hidden()


def scroll_end(page: Any) -> float:
    """Return where the conversation is scrolled to, once it moves no more."""
    tops = list[float]()
    while len(tops) < 2 or tops[-1] != tops[-2]:
        page.wait_for_timeout(150)
        tops.append(page.evaluate("() => document.querySelector('.scroller').scrollTop"))
    return tops[-1]


@BOTH
def test_a_page_scrolled_up_keeps_its_position(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": LONG}, {"text": LONG})
    page = pages.open(server, path)
    send(page, "Look")
    answer(page, "Paragraph 39")
    wait_until(page, AT_END)

    page.locator(".scroller").hover()
    page.mouse.wheel(0, -600)
    page.locator(".latest").wait_for()
    before = scroll_end(page)
    page.set_viewport_size({"width": 1280, "height": 700})
    page.wait_for_timeout(300)

    assert page.evaluate("() => document.querySelector('.scroller').scrollTop") == before
    page.locator(".latest").click()
    wait_until(page, AT_END)


@BOTH
def test_the_content_of_a_request_is_visible_on_a_phone(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve(WRITE, {"text": "Written."}), path, **PHONE)

    send(page, "Write a.txt")
    page.locator(".request").wait_for()

    in_sight = page.evaluate(
        "() => [...document.querySelectorAll('.request tr.added .text, .request .button')]"
        ".filter((e) => e.offsetParent).map((e) => {"
        " const b = e.getBoundingClientRect();"
        " const top = document.elementFromPoint(b.x + b.width / 2, b.y + b.height / 2);"
        " return e === top || e.contains(top); })"
    )
    assert in_sight == [True] * 7  # two lines and five buttons


@BOTH
def test_task_lists_numbered_lists_and_table_alignment_are_rendered(
    serve: Serve, pages: Watched, path: str
) -> None:
    text = "- [x] read\n- [ ] write\n\n7. seven\n\n| a | b |\n|:-:|--:|\n| 1 | 2 |"
    page = pages.open(serve({"text": text}), path)
    send(page, "Look")
    answer(page, "seven")

    value = page.evaluate(
        "() => [[...document.querySelectorAll('.prose input')].map((i) => [i.type, i.checked, i.disabled]),"
        " document.querySelector('.prose ol').start,"
        " [...document.querySelectorAll('.prose td')].map((c) => getComputedStyle(c).textAlign)]"
    )
    assert value == [
        [["checkbox", True, True], ["checkbox", False, True]],
        7,
        ["center", "end"],
    ]
