"""A long conversation is there at once, at its end, and older parts come when they are needed."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Raw

from refold.journal.events import codec
from refold.journal.events.kinds import (
    Delivered,
    Ended,
    Entry,
    Event,
    Judged,
    ModelAnswered,
    ModelAsked,
    Said,
    SessionStarted,
    Started,
    SystemPromptSet,
    TurnEnded,
    TurnStarted,
)
from refold.journal.journal_directory import JournalDirectory
from refold.journal.store.file import FileStore
from refold.values.messages import Message, Text, ToolCall
from refold.values.usage import Usage
from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_stories import BOTH, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
ID = "20260101-000001-0001"
TURNS, CALLS = 40, 20
# The page while it opens: the text of the status, and whether Stop is shown.
WATCH = """
window.busy = [];
const look = () => {
  const status = document.querySelector(".status")?.textContent ?? "";
  const stop = document.querySelector(".stop");
  if (/Working|Thinking|thinking|running/.test(status) || (stop && stop.offsetParent)) busy.push(status || "Stop");
};
new MutationObserver(look).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
"""
BLOCKS = "() => document.querySelectorAll('article').length"
# Scroll up by hand, with the place of the block in the middle before and after.
UP = """async () => {
  const scroller = document.querySelector(".scroller");
  const middle = scroller.getBoundingClientRect().top + scroller.clientHeight / 2;
  let worst = 0;
  for (let n = 0; n < 400 && !/Question 0\\b/.test(scroller.textContent); n += 1) {
    const block = [...document.querySelectorAll("article")].find((a) => a.getBoundingClientRect().bottom > middle);
    const before = block.getBoundingClientRect().top;
    const at = scroller.scrollTop;
    scroller.scrollTop -= 500;
    const moved = at - scroller.scrollTop;
    await new Promise((done) => setTimeout(done, 40));
    if (block.isConnected) worst = Math.max(worst, Math.abs(block.getBoundingClientRect().top - before - moved));
  }
  return worst;
}"""


def story(directory: Path) -> Iterator[Event]:
    yield SessionStarted(str(directory), "0.1.0", id=ID)
    yield SystemPromptSet("You are a coding agent.", (), "openai-chat/mock-model", 128_000)
    seq = 2
    for number in range(TURNS):
        for event in turn(number, seq, CALLS):
            yield event
            seq += 1


def one_turn(directory: Path, steps: int) -> Iterator[Event]:
    yield SessionStarted(str(directory), "0.1.0", id=ID)
    yield SystemPromptSet("You are a coding agent.", (), "openai-chat/mock-model", 128_000)
    yield from turn(0, 2, steps)


def turn(number: int, seq: int, steps: int) -> Iterator[Event]:
    """Yield a turn behind event `seq`."""
    yield Said(f"Question {number}")
    yield TurnStarted(seq + 1)
    yield Delivered((seq + 1,))
    for step in range(steps):
        call = ToolCall(f"c{number}-{step}", "calc", Raw(b'{"expression":"1+1"}'))
        yield ModelAsked()
        yield response("calls", Text("The next step."), call)
        yield Judged(call.id, "allow", "bypass")
        yield Started(call.id)
        yield Ended(call.id, "done", "2")
    yield ModelAsked()
    yield response("end", Text(f"Answer {number}"))
    yield TurnEnded("answered")


def response(stop: Any, *parts: Any) -> ModelAnswered:
    return ModelAnswered(Message("assistant", parts), Usage(), stop, "mock-model")


async def write(path: Path, events: Iterator[Event]) -> None:
    store, head, lines = FileStore(path), codec.Head(), list[bytes]()
    lease = await store.lease()
    for seq, event in enumerate(events, start=1):
        line, head = codec.encode(
            Entry(seq, event, at=1.8e9 + seq, epoch=lease.epoch), head
        )
        lines.append(line)
    await store.append(lines, expect=0, epoch=lease.epoch, head=(head.seq, head.h))
    await store.keep()
    await store.release()


@pytest.fixture
def page(
    serve: Serve, pages: Watched, home: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Any:
    path = request.node.callspec.params["path"]
    sessions = JournalDirectory(home / "refold" / "sessions")
    with ThreadPoolExecutor() as pool:  # the event loop of this thread is the browser's
        pool.submit(anyio.run, write, sessions.path(ID), story(tmp_path / "work")).result()
    server = serve({"text": "Hello."})
    page = pages.open(server, path, script=WATCH)
    page.goto(f"{server.address}{path}?c={ID}")
    page.locator("article", has_text=f"Answer {TURNS - 1}").wait_for()
    return page


@BOTH
def test_a_long_conversation_opens_at_its_end_and_is_never_shown_as_running(
    page: Any, path: str
) -> None:
    assert page.evaluate(BLOCKS) < 300
    assert page.evaluate("() => window.busy") == []
    assert "Question 0" in page.locator("h1.title").inner_text()


@BOTH
def test_older_blocks_load_while_scrolling_without_moving_the_visible_text(
    page: Any, path: str
) -> None:
    worst = page.evaluate(UP)

    assert worst < 4
    wait_until(page, "() => document.querySelector('.older').hidden")
    assert page.locator("article", has_text="Question 0").count() == 1
    assert page.evaluate(BLOCKS) < 600


@pytest.mark.parametrize("path", ["/dev"])
def test_the_timeline_draws_rows_as_far_as_it_is_scrolled(page: Any, path: str) -> None:
    sizes = list[int]()

    def count_rows(response: Any) -> None:
        if "/timeline" in response.url:
            sizes.append(len(response.json()))

    page.on("response", count_rows)
    page.locator("#tab-timeline").click()
    page.locator(".timeline li button").first.wait_for()
    assert page.locator(".timeline button").count() < 700
    assert sizes == [500]  # rows, of those of the whole session

    wait_until(page, """() => {
      document.querySelector(".timeline > :last-child")?.scrollIntoView();
      return document.querySelectorAll(".timeline button").length === ROWS;
    }""".replace("ROWS", str(TURNS * (2 * CALLS + 1))))  # fmt: skip


@BOTH
def test_a_message_that_was_not_loaded_is_found_and_shown(page: Any, path: str) -> None:
    if page.locator(".app").get_attribute("data-panel") != "open":
        page.locator("[aria-controls=panel]").click()
    page.locator("#tab-history").click()
    page.locator(".history li", has_text="Question 1").first.get_by_role(
        "button"
    ).first.click()

    wait_until(page, "() => /Question 1$/m.test(document.activeElement.innerText)")
    assert page.locator("article", has_text="Question 1").first.is_visible()


def test_answer_again_works_for_a_message_that_is_not_loaded(
    serve: Serve, pages: Watched, home: Path, tmp_path: Path
) -> None:
    sessions = JournalDirectory(home / "refold" / "sessions")
    with ThreadPoolExecutor() as pool:
        long = one_turn(tmp_path / "work", steps=600)
        pool.submit(anyio.run, write, sessions.path(ID), long).result()
    server = serve({"text": "Another answer."})
    page = pages.open(server, "/")
    page.goto(f"{server.address}/?c={ID}")
    page.locator("article", has_text="Answer 0").wait_for()
    assert page.locator(".block-heard").count() == 0

    page.locator(".again").get_by_role("button", name="Answer again").click()

    page.locator(".block-words", has_text="Another answer.").wait_for()
    assert page.locator(".block-heard:not(.is-rewound)").count() == 1
