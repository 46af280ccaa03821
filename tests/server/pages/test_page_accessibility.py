"""The pages for a keyboard alone, a screen reader, a phone, a hostile model and a long session."""

import json
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
    bash,
    button,
    id_of,
    listen,
    send,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
AXE = Path(__file__).parents[3] / ".peers/axe/node_modules/axe-core/axe.min.js"
SERIOUS = ("serious", "critical")
TABLE = "| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1  # one\n```\n\n- [x] done\n- `code` and [a link](https://example.org)"


def problems(page: Any, *, rules: str = "") -> list[str]:
    """Return what axe-core finds that is serious; with `rules`, only by that rule."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: scripts/peers gets it")
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(AXE.read_text("utf-8"))
    options = {"resultTypes": ["violations"], **({"runOnly": [rules]} if rules else {})}
    value = page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in value["violations"]
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]


def problems_in_both_colours(page: Any) -> list[str]:
    """Return the same as `problems`, and contrast faults of the other colour scheme."""
    switch = "() => { const { dataset } = document.documentElement; dataset.theme = dataset.theme === 'dark' ? 'light' : 'dark'; }"
    result = problems(page)
    page.evaluate(switch)
    result += problems(page, rules="color-contrast")
    page.evaluate(switch)
    return result


def request_locator(page: Any) -> Any:
    """Return a locator of this request that matches no later one."""
    call = page.locator(".request").first.get_attribute("data-call")
    return page.locator(f".request[data-call='{call}']")


@BOTH
def test_axe_finds_no_serious_problem_on_the_pages(
    serve: Serve, pages: Watched, path: str
) -> None:
    data = {
        "calls": [
            {
                "tool": "ask_user",
                "arguments": {
                    "questions": [{"question": "Which?", "options": [{"label": "Moss"}]}]
                },
            }
        ]
    }
    server = serve(
        {"text": f"## Look\n\n{TABLE}", "thinking": "Hm."},
        bash("touch leaf"),
        WRITE,
        data,
        {"text": "Done."},
    )
    page = pages.open(server, path)
    texts = [("empty", problems_in_both_colours(page))]
    send(page, "Look")
    answer(page, "Look")
    texts.append(("answered", problems_in_both_colours(page)))
    send(page, "/model")
    page.locator(".command-list button").first.wait_for()
    texts.append(("command asks", problems_in_both_colours(page)))
    page.locator(".command-output").get_by_role("button", name="Close").click()
    send(page, "/context")
    page.locator(".command-rows").wait_for()
    texts.append(("command shows", problems_in_both_colours(page)))
    send(page, "Go on")
    for what in ("command", "change", "question"):
        page.locator(".request").wait_for()
        texts.append((what, problems_in_both_colours(page)))
        card = request_locator(page)
        button(page, "Answer" if what == "question" else WORDS[path]["yes"]).click()
        card.wait_for(state="detached")
    answer(page, "Done.")
    for summary in page.locator("article summary").all():
        summary.click()
    if page.locator(".panel").is_hidden():
        page.get_by_role("button", name="Show details").click()
    for tab in page.get_by_role("tab").all():
        tab.click()
        page.wait_for_timeout(300)
        texts.append((tab.inner_text(), problems_in_both_colours(page)))
    page.locator(".list").get_by_role("button", name="New chat").click()
    page.locator("dialog").wait_for()
    texts.append(("dialog", problems_in_both_colours(page)))

    assert [(where, what) for where, what in texts if what] == []


@BOTH
def test_a_phone_shows_the_page_without_horizontal_scrolling(
    serve: Serve, pages: Watched, path: str
) -> None:
    long = bash("touch " + "averylongwordwithoutanyblank" * 8)
    server = serve({"text": TABLE}, long, WRITE, {"text": "Done."})
    page = pages.open(
        server, path, viewport={"width": 360, "height": 640}, is_mobile=True, has_touch=True
    )

    def fits() -> bool:
        return page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")

    assert fits()
    send(page, "Look")
    answer(page, "code and a link")
    assert fits()
    send(page, "Go on")
    for _ in range(2):
        page.locator(".request").wait_for()
        request = request_locator(page)
        assert fits()
        for name in (WORDS[path]["yes"], WORDS[path]["no"]):
            button(page, name).scroll_into_view_if_needed()
            box = button(page, name).bounding_box()
            assert box
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 360
        button(page, WORDS[path]["yes"]).click()
        request.wait_for(state="detached")
    answer(page, "Done.")
    page.get_by_role("button", name="Show conversations").click()
    page.locator(".card").first.wait_for()
    page.get_by_role("button", name="Hide conversations").click()
    page.get_by_role("button", name="Show details").click()
    page.get_by_role("tab").first.wait_for()
    assert fits()


@BOTH
def test_the_page_is_usable_with_the_keyboard_alone(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(WRITE, bash("sleep 30"), {"text": "never"})
    page = pages.open(server, path)

    page.keyboard.type("Write a.txt")
    page.keyboard.press("Enter")
    page.locator(".request").wait_for()
    wait_until(page, "() => document.activeElement.matches('.request')")
    page.keyboard.press("Tab")
    while page.evaluate("() => document.activeElement.textContent") != WORDS[path]["yes"]:
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator(".request", has_text="sleep 30").wait_for()
    wait_until(page, "() => document.activeElement.matches('.request')")
    page.wait_for_timeout(800)  # keys count after a pause
    page.keyboard.press("y")
    page.locator(".request").wait_for(state="detached")
    wait_until(page, "() => document.activeElement.id === 'message'")
    page.keyboard.press("Control+.")

    page.locator(".block-turn_over").wait_for()
    assert (server.workspace / "a.txt").is_file()
    page.keyboard.press("Control+k")
    wait_until(page, "() => document.activeElement.type === 'search'")


def test_live_regions_announce_requests_and_answers_to_screen_readers(
    serve: Serve, pages: Watched
) -> None:
    page = pages.open(serve(WRITE, {"text": "All **written**."}), "/")
    listen(page)

    send(page, "Write a.txt")
    page.locator(".request").wait_for()
    button(page, "Yes").click()
    answer(page, "All written.")
    wait_until(page, "() => told.some((t) => t.includes('All written'))")

    announcements = page.evaluate("() => told")
    assert any(
        "I need your permission. May I create the file “a.txt”?" in item
        for item in announcements
    )
    assert page.locator(".request").count() == 0


HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\n\n[x](javascript:alert(3)) "
    "![p](https://evil.example/a.png) <iframe src=https://evil.example></iframe>\n\n"
    "<svg onload=alert(4)> <a href='data:text/html,<script>alert(5)</script>'>d</a>\n\n"
    "```html\n<img src=https://evil.example/b onerror=alert(6)>\n```\n"
)


@BOTH
def test_model_text_runs_no_script_and_loads_nothing(
    serve: Serve, pages: Watched, path: str
) -> None:
    name = "<img src=x onerror=alert(7)>.txt"
    call = {
        "calls": [{"tool": "write_file", "arguments": {"path": name, "content": HOSTILE}}]
    }
    server = serve({"text": HOSTILE, "thinking": HOSTILE}, call, {"text": "End."})
    page = pages.open(server, path)

    send(page, HOSTILE.split("\n")[0])
    answer(page, "alert(6)")
    send(page, "Write")
    page.locator(".request").wait_for()
    inner_text = page.locator(".request").inner_text()
    button(page, WORDS[path]["yes"]).click()
    answer(page, "End.")
    for summary in page.locator("article summary").all():
        summary.click()
    page.wait_for_timeout(300)

    assert name in inner_text
    value = page.evaluate(
        "() => [...document.querySelectorAll('script, iframe, svg[onload], img, [onerror], a')]"
        ".filter((e) => e.closest('article') && !e.matches('a:not([href])') && !/^(https?:|mailto:|blob:|data:image)/.test(e.href ?? e.src ?? '')"
        " || e.matches('article script, article iframe')).map((e) => e.outerHTML)"
    )
    assert value == []  # and `pages` saw no dialog and no request


@BOTH
def test_invisible_characters_in_a_request_are_escaped_and_counted(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(
        bash("echo safe \u202egnihtemos; rm\u200b -r x\u00a0y"), {"text": "End."}
    )
    page = pages.open(server, path)

    send(page, "Go")
    request = page.locator(".request")
    request.wait_for()

    assert "echo safe \\u202egnihtemos; rm\\u200b -r x\\xa0y" in request.inner_text()
    assert "3 hidden characters are written out." in request.inner_text()


def test_of_ten_thousand_blocks_only_a_few_are_in_the_dom(
    serve: Serve, pages: Watched
) -> None:
    server = serve({"text": "Hello."}, {"text": "Still quick."})
    page = pages.open(server, "/dev")
    send(page, "Hi")
    answer(page, "Hello.")
    documents = [
        {"type": "user_message", "seq": 100 + n, "text": f"message {n}", "sender": "person", "when": "now"}
        if n % 2
        else {"type": "assistant_message", "seq": 100 + n, "text": f"answer **{n}**", "thinking": "",
              "model": "a/m", "stop": "end", "partial": False, "usage": {}, "cost": 0.0}
        for n in range(10_000)
    ]  # fmt: skip
    frames = json.dumps([json.dumps(document) for document in documents])

    took = page.evaluate(
        f"""async () => {{
          const root = document.querySelector("script[type=module]").src.replace(/\\w+\\/page\\.js$/, "");
          const {{ emptyScreen, reduce }} = await import(root + "shared/reducer.js");
          const {{ Transcript }} = await import(root + "shared/transcript.js");
          const frames = {frames};
          const begun = performance.now();
          let screen = emptyScreen();
          for (const frame of frames) screen = reduce(screen, JSON.parse(frame));
          const scroller = document.querySelector(".scroller");
          const skin = {{ texts: {{ messages: "" }}, labelOf: () => "x", renderBlock: (b) => {{
            const p = document.createElement("p"); p.textContent = b.said ?? b.text; return p; }} }};
          window.big = new Transcript(scroller, skin, {{}});
          big.show(screen);
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
          await new Promise((done) => setTimeout(done, 300));
          return performance.now() - begun;
        }}"""
    )
    articles = page.evaluate("() => document.querySelectorAll('.scroller article').length")
    last = page.locator(".scroller article").last.inner_text()
    page.evaluate("() => { document.querySelector('.scroller').scrollTop = 0; }")
    page.locator(".scroller article", has_text="answer **0**").first.wait_for()
    after = page.evaluate("() => document.querySelectorAll('.scroller article').length")

    assert took < 20_000  # it ends at all; how fast it is, the bench says
    assert last == "message 9999"
    assert articles < 400
    assert after < 500


def test_streamed_markdown_is_parsed_incrementally(serve: Serve, pages: Watched) -> None:
    page = pages.open(serve({"text": "Hello."}), "/dev")
    paragraphs = [f"Paragraph {n} with *some* words and `code`.\n\n" for n in range(500)]

    parsed, text, whole = page.evaluate(
        """async (paragraphs) => {
          const root = document.querySelector("script[type=module]").src.replace(/\\w+\\/page\\.js$/, "");
          const { GrowingMarkdown, markdown } = await import(root + "shared/markdown.js");
          const labels = { copy: "c", code: "t", table: "t", done: "d" };
          const element = document.createElement("div");
          const growing = new GrowingMarkdown(element, labels);
          const text = paragraphs.join("");
          for (let at = 7; at <= text.length + 7; at += 7) growing.show(text.slice(0, at));
          const whole = document.createElement("div");
          whole.append(markdown(text, labels));
          return [growing.parsed, element.innerText ?? element.textContent, whole.textContent];
        }""",
        paragraphs,
    )

    size = sum(map(len, paragraphs))
    assert text.split() == whole.split()
    assert parsed < 20 * size  # all of it each time would be 1,600 times


GROWING = [
    "# Title\n\ntext with **bold** and\na second line\n\n- one\n- two\n\n  more of two\n\n3. three\n4. four\n\nend",
    "a\n\n```js\nlet x = 1;\n\nlet y;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nafter\n\n> quote\n> on\n\n---\n\nlast [x](https://e.org)",
    "- a\n\n- b\n\n    code in b\n\n1. x\n\n   y\n\n2. z\n",
]


def test_streamed_markdown_renders_like_the_complete_text(
    serve: Serve, pages: Watched
) -> None:
    page = pages.open(serve({"text": "Hello."}), "/dev")

    results = page.evaluate(
        """async (texts) => {
          const root = document.querySelector("script[type=module]").src.replace(/\\w+\\/page\\.js$/, "");
          const { GrowingMarkdown, markdown } = await import(root + "shared/markdown.js");
          const labels = { copy: "c", code: "t", table: "t", done: "d" };
          return texts.map((text) => {
            const element = document.createElement("div");
            const growing = new GrowingMarkdown(element, labels);
            for (let at = 1; at <= text.length; at += 1) growing.show(text.slice(0, at));
            const whole = document.createElement("div");
            whole.append(markdown(text, labels));
            return [element.innerHTML, whole.innerHTML];
          });
        }""",
        GROWING,
    )

    for grown, whole in results:
        assert remove_whitespace(grown) == remove_whitespace(whole)


def remove_whitespace(html: str) -> str:
    return "".join(html.split())


def test_the_address_of_a_conversation_opens_it_and_back_leads_to_the_start_page(
    serve: Serve, pages: Watched
) -> None:
    """The address of a conversation opens it, and Back leads to the empty page."""
    server = serve(*({"text": f"Answer {n}."} for n in range(3)))
    page = pages.open(server, "/")
    for n in range(3):
        send(page, f"Question {n}")
        answer(page, f"Answer {n}.")
    id_ = id_of(page)

    page.goto(server.address)
    page.locator(".welcome").wait_for()
    page.goto(f"{server.address}/?c={id_}")
    answer(page, "Answer 2.")
    page.go_back()

    page.locator(".welcome").wait_for()


def test_workspace_files_are_downloaded_and_never_executed(
    serve: Serve, pages: Watched
) -> None:
    server = serve({"text": "Hello."})
    active = '<html xmlns="http://www.w3.org/1999/xhtml"><script>alert(1)</script></html>'
    page = pages.open(server)
    send(page, "Hi")
    answer(page, "Hello.")
    id_ = id_of(page)

    for name in ("p.svg", "p.html", "p.xml", "p.js", "p"):
        (server.workspace / name).write_text(active)
        address = f"{server.address}/api/conversations/{id_}/files/{name}"
        with page.expect_download() as loading:
            page.evaluate(f"() => {{ location.href = '{address}'; }}")
        assert Path(loading.value.path()).read_text("utf-8") == active

    assert page.url.startswith(f"{server.address}/?c=")  # and `pages` saw no dialog
