"""Approvals on the pages: a wider yes, a written rule, a mode, several at once, words with a yes."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_stories import (
    BOTH,
    WORDS,
    answer,
    bash,
    button,
    id_of,
    send,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
EASIER = {"/": "Yes, and change files without asking from now on", "/dev": "Allow, and accept edits from here on"}  # fmt: skip
WRITE_RULE = {"/": "Change what I may do", "/dev": "Write a rule"}
SESSION = {"/": "Yes, for this chat", "/dev": "Allow for this session"}
ALL = {"/": ("Answer all 3 at once", "Yes to all 3", "No to all 3"),
       "/dev": ("Decide all 3", "Allow all 3, once", "Deny all 3")}  # fmt: skip


def write(*names: str) -> dict[str, Any]:
    calls = [
        {"tool": "write_file", "arguments": {"path": name, "content": "x\n"}}
        for name in names
    ]
    return {"calls": calls}


def ask_for(page: Any, count: int) -> None:
    send(page, "Write")
    wait_until(page, f"() => document.querySelectorAll('.request').length === {count}")


@BOTH
def test_accepting_edits_ends_the_questions_about_files(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(write("a.txt", "b.txt"), write("c.txt"), {"text": "Written."})
    page = pages.open(server, path)
    ask_for(page, 2)

    button(page, EASIER[path]).first.click()

    answer(page, "Written.")
    assert page.locator(".request").count() == 0
    assert sorted(file.name for file in server.workspace.glob("*.txt")) == ["a.txt", "b.txt", "c.txt"]  # fmt: skip


@BOTH
def test_a_typed_rule_allows_the_next_file_and_one_that_does_not_cover_the_call_is_refused(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(write("a.txt"), write("b.txt"), {"text": "Written."})
    page = pages.open(server, path)
    ask_for(page, 1)

    button(page, WRITE_RULE[path]).click()
    field = page.locator(".rule-edit")
    assert field.input_value() == "write_file(./a.txt)"
    field.fill("write_file(./b.txt)")
    button(page, SESSION[path]).click()
    page.locator(".request .problem").wait_for()
    refused = page.locator(".request .problem").inner_text()
    assert not (server.workspace / "a.txt").exists()
    field.fill("write_file(./*.txt)")
    button(page, SESSION[path]).click()

    answer(page, "Written.")
    assert "does not cover this call" in refused
    assert (server.workspace / "b.txt").is_file()


@BOTH
def test_several_requests_are_allowed_with_one_answer(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(write("a.txt", "b.txt", "c.txt"), {"text": "Written."})
    page = pages.open(server, path)
    ask_for(page, 3)
    decide, yes, _ = ALL[path]

    button(page, decide).first.click()
    wait_until(page, "() => document.activeElement.matches('.together button')")
    assert button(page, yes).bounding_box()
    page.keyboard.press("Enter")

    answer(page, "Written.")
    assert len(list(server.workspace.glob("*.txt"))) == 3


@BOTH
def test_a_rename_does_not_take_the_focus_from_the_answer_to_several_requests(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(write("a.txt", "b.txt", "c.txt"), {"text": "Written."})
    page = pages.open(server, path)
    ask_for(page, 3)
    button(page, ALL[path][0]).first.click()

    rename(page, server, "Three files")
    page.keyboard.press("Enter")

    answer(page, "Written.")
    assert len(list(server.workspace.glob("*.txt"))) == 3


def rename(page: Any, server: Server, name: str) -> None:
    """Change something that the page shows, from outside of it."""
    page.request.patch(
        f"{server.address}/api/conversations/{id_of(page)}",
        data={"name": name}, headers={"Origin": server.address},
    )  # fmt: skip
    page.locator("h1.title", has_text=name).wait_for()


def test_the_focus_stays_on_a_step_that_continues(serve: Serve, pages: Watched) -> None:
    page = pages.open(serve(bash("echo 1; sleep 2; echo 2; sleep 1"), {"text": "Done."}))
    ask_for(page, 1)
    button(page, WORDS["/"]["yes"]).click()
    step = page.locator(".block-called summary")
    page.locator(".block-called .about", has_text="1").wait_for()

    step.focus()
    answer(page, "Done.")

    assert step.evaluate("each => each === document.activeElement")


@BOTH
def test_several_requests_are_refused_with_one_reason(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(write("a.txt", "b.txt", "c.txt"), {"text": "Then not."})
    page = pages.open(server, path)
    ask_for(page, 3)

    page.locator(".together .why").fill("one folder up")
    button(page, ALL[path][2]).click()

    answer(page, "Then not.")
    events = page.request.get(
        f"{server.address}/api/conversations/{id_of(page)}/events?after=0"
    ).json()
    results = [each for each in events if each["type"] == "tool_approval_result"]
    assert [each["verdict"] for each in results] == ["deny"] * 3
    assert all("one folder up" in each["reason"] for each in results)
    assert not list(server.workspace.glob("*.txt"))


@BOTH
def test_text_typed_with_an_approval_is_sent_as_a_message(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(write("a.txt"), {"text": "Written."})
    page = pages.open(server, path)
    ask_for(page, 1)

    page.locator(".request .why").fill("and use tabs")
    button(page, WORDS[path]["yes"]).click()

    answer(page, "Written.")
    page.locator(".block-heard", has_text="and use tabs").wait_for()
    assert (server.workspace / "a.txt").is_file()


@BOTH
def test_a_command_is_shown_with_the_way_it_would_run(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve(bash("touch a.txt"), {"text": "Done."}), path)
    ask_for(page, 1)

    shown = page.locator(".request .conditions").inner_text()

    assert any(text in shown for text in ("sandbox", "safe place", "without protection"))


@BOTH
def test_a_digit_highlights_a_choice_of_a_request_and_enter_takes_it(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(write("a.txt"), write("b.txt"), {"text": "Written."})
    page = pages.open(server, path)
    ask_for(page, 1)
    wait_until(page, "() => document.activeElement.matches('.request')")
    page.wait_for_timeout(800)  # keys count after a pause

    chosen = page.locator(".request .is-chosen")
    page.keyboard.press("5")
    wait_until(page, "() => document.querySelector('.is-chosen')?.dataset.digit === '5'")
    assert chosen.inner_text() == EASIER[path]
    page.keyboard.press("Enter")

    answer(page, "Written.")
    assert (server.workspace / "b.txt").is_file()
