"""Both pages from 320 to 2,560 pixels, with a large zoom, and with text from right to left."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_accessibility import problems, request_locator
from tests.server.pages.test_page_stories import (
    BOTH,
    WORDS,
    WRITE,
    answer,
    bash,
    button,
    send,
    wait_for_rest,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
ROW = "| Müller & Söhne | Lange Straße 5 | Unterschleißheim | 1234.50 | 2026-11-11 | paid by bank transfer | yes | no |\n"
TABLE = f"| Name | Street | Town | Sum in euros | Date of the invoice | Remark | Paid | Due |\n{'|---' * 8}|\n{ROW * 3}"
# The window of 1440 by 900 pixels at 100, 200 and 400 %, phones, and a wide screen.
WINDOWS = [(1440, 900), (720, 450), (360, 225), (320, 640), (360, 640), (2560, 1440)]
ASK = {
    "calls": [
        {
            "tool": "ask_user",
            "arguments": {
                "questions": [
                    {
                        "question": "Which of these colours do you want for the leaves of the tree?",
                        "options": [
                            {"label": "Moss", "about": "a dark green"},
                            {"label": "Sand"},
                        ],
                    }
                ]
            },
        }
    ]
}
PLAN = {"calls": [{"tool": "exit_plan_mode", "arguments": {"title": "Two steps", "plan": f"1. Look\n2. Write\n\n{TABLE}"}}]}  # fmt: skip
OUTSIDE = """() => {
  const wide = document.documentElement.scrollWidth > innerWidth || visualViewport.scale !== 1;
  const out = [...document.querySelectorAll("button, input, select, textarea, a, summary")].filter((element) => {
    if (element.closest(".skip, .unseen, .table-room, .diff, pre, #suggestions") || element.matches(".skip, .unseen")) return false;
    if (!element.checkVisibility()) return false;
    const box = element.getBoundingClientRect();
    return box.width > 0 && (box.left < -1 || box.right > innerWidth + 1);
  });
  return [...(wide ? ["the page"] : []), ...out.map((element) => element.outerHTML.slice(0, 120))];
}"""


def options(window: tuple[int, int]) -> dict[str, Any]:
    width, height = window
    phone = {"is_mobile": True, "has_touch": True} if height == 640 else {}
    return {"viewport": {"width": width, "height": height}, **phone}


@pytest.mark.parametrize("window", WINDOWS)
@BOTH
def test_messages_requests_and_plans_fit_the_width_of_the_window(
    serve: Serve, pages: Watched, path: str, window: tuple[int, int]
) -> None:
    long = bash("touch " + "averylongwordwithoutanyblank" * 8)
    server = serve({"text": TABLE}, long, WRITE, ASK, {"text": "Done."}, PLAN)
    page = pages.open(server, path, **options(window))
    outside = list[str]()

    def collect_outside(where: str) -> None:
        page.wait_for_timeout(200)
        outside.extend(f"{where}: {faults}" for faults in page.evaluate(OUTSIDE))

    collect_outside("welcome")
    send(page, "Look")
    answer(page, "Unterschleißheim")
    collect_outside("table")
    send(page, "Go on")
    for where in ("command", "change", "question"):
        page.locator(".request").wait_for()
        request = request_locator(page)
        collect_outside(where)
        name = "Answer" if where == "question" else WORDS[path]["yes"]
        button(page, name).scroll_into_view_if_needed()
        button(page, name).click()
        request.wait_for(state="detached")
    answer(page, "Done.")
    wait_for_rest(page)
    page.fill("#message", "/plan Two steps")
    page.locator(".send").click()  # Enter would take a suggestion
    page.locator(".request-plan").wait_for()
    collect_outside("plan")

    assert outside == []


@BOTH
def test_list_and_panel_close_in_a_window_that_becomes_small_and_return_when_it_grows(
    serve: Serve, pages: Watched, path: str
) -> None:
    viewport = {"width": 1440, "height": 900}
    page = pages.open(serve({"text": "Hello."}), path, viewport=viewport)
    send(page, "Hi")
    answer(page, "Hello.")
    if page.locator("#panel").is_hidden():
        button(page, "Show details").click()
    sides = (
        "() => ['list', 'panel'].map((id) => document.getElementById(id).checkVisibility())"
    )
    wide = page.evaluate(sides)

    page.set_viewport_size({"width": 360, "height": 640})
    wait_until(page, f"() => String(({sides})()) === 'false,false'")
    button(page, "Show conversations").click()
    page.locator("#list").wait_for()
    page.set_viewport_size(viewport)

    wait_until(page, f"() => String(({sides})()) === 'true,true'")
    assert wide == [True, True]


@BOTH
def test_a_list_that_is_typed_into_stays_when_the_window_becomes_small(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(
        serve({"text": "Hello."}), path, viewport={"width": 1440, "height": 900}
    )
    search = page.locator("#list input[type=search]")
    search.click()

    page.set_viewport_size({"width": 360, "height": 640})
    wait_until(page, "() => innerWidth === 360")
    page.keyboard.type("pick")

    assert search.input_value() == "pick"
    assert search.is_visible()


@BOTH
def test_answers_of_a_request_are_in_sight_at_200_percent(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve(WRITE, {"text": "Written."}), path, **options((720, 450)))

    send(page, "Write a.txt")
    page.locator(".request").wait_for()
    wait_until(page, "() => document.activeElement.matches('.request')")

    for name in (WORDS[path]["yes"], WORDS[path]["no"]):
        box = button(page, name).bounding_box()
        assert box
        assert box["y"] + box["height"] <= 450
        assert page.evaluate(
            "([x, y]) => document.elementFromPoint(x, y).closest('button')?.textContent",
            [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2],
        ) == name  # fmt: skip


@BOTH
def test_words_of_a_table_are_not_broken_and_a_wide_table_uses_the_width_of_the_window(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": TABLE}), path, **options((360, 800)))
    send(page, "Look")
    answer(page, "Unterschleißheim")
    room = page.locator(".table-room")

    lines = page.evaluate(
        "() => { const cell = [...document.querySelectorAll('td')].find((c) => c.textContent === 'Unterschleißheim');"
        " const range = document.createRange(); range.selectNodeContents(cell); return range.getClientRects().length; }"
    )
    scrolls = room.evaluate("(e) => e.scrollWidth > e.clientWidth")
    page.set_viewport_size({"width": 2560, "height": 1440})
    wait_until(
        page,
        "() => { const e = document.querySelector('.table-room'); return e.scrollWidth <= e.clientWidth + 1; }",
    )

    assert lines == 1
    assert scrolls


@BOTH
def test_text_from_right_to_left_stands_at_the_right(
    serve: Serve, pages: Watched, path: str
) -> None:
    arabic = "شكرا جزيلا\n\n- واحد\n- اثنان\n\nplain words\n\n```sh\nls -l\n```"
    page = pages.open(serve({"text": arabic}), path)
    send(page, "مرحبا")
    answer(page, "شكرا")
    page.locator(".prose pre").wait_for()

    directions = page.evaluate(
        "() => ['.prose p', '.prose ul', '.prose p:last-of-type', '.prose pre'].map((s) =>"
        " getComputedStyle(document.querySelector(s)).direction)"
    )
    left, right = page.evaluate(
        "() => { const e = document.querySelector('.bubble, .block-heard .text'); const range = document.createRange();"
        " range.selectNodeContents(e); const t = range.getBoundingClientRect(), b = e.getBoundingClientRect();"
        " return [t.left - b.left, b.right - t.right]; }"
    )

    assert directions == ["rtl", "rtl", "ltr", "ltr"]
    assert right <= left


@BOTH
def test_axe_finds_no_serious_problem_on_a_small_screen(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": TABLE}, WRITE, ASK, {"text": "Done."})
    page = pages.open(server, path, **options((320, 640)))
    faults = list[str]()

    send(page, "Look")
    answer(page, "Unterschleißheim")
    faults += problems(page)
    send(page, "Go on")
    for name in (WORDS[path]["yes"], "Answer"):
        page.locator(".request").wait_for()
        request = request_locator(page)
        page.wait_for_timeout(300)
        faults += problems(page)
        button(page, name).click()
        request.wait_for(state="detached")

    assert faults == []


@BOTH
def test_a_screen_reader_reads_the_page_in_the_order_of_the_work(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "Hello."}, WRITE, {"text": "Written."}), path)
    send(page, "Hi")
    answer(page, "Hello.")
    send(page, "Write a.txt")
    page.locator(".request").wait_for()

    tree = page.locator("body").aria_snapshot()
    order = ["navigation", "heading", "feed", "article", "dialog", "textbox"]
    places = [tree.index(f"- {role}", tree.index("- main") if role != "navigation" else 0) for role in order]  # fmt: skip

    assert places == sorted(places)
    assert tree.index(f'button "{WORDS[path]["yes"]}"') < tree.rindex("textbox")
