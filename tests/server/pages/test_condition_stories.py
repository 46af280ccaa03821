"""What the pages say when something fails: the server, the network, the disk; and of unsent messages."""

import resource
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
from tests.server.pages.test_subagent_stories import PHONE

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
SIZES = pytest.mark.parametrize("options", [{}, PHONE], ids=["wide", "phone"])
SLOW = {"text": "A long answer, word by word, which takes a while to write.", "pause": 0.5}
SERVER = {
    "/": "the program that I run in does not answer",
    "/dev": "The server does not answer",
}
NETWORK = {"/": "not connected to a network", "/dev": "no network"}
CUT_OFF = {"/": "I was interrupted", "/dev": "The process that ran this turn is gone"}
GO_ON = {"/": "Go on", "/dev": "Continue"}
DISK = {"/": "I cannot write to the disk", "/dev": "The turn cannot continue: cannot"}


def wait_for_condition(page: Any, text: str) -> None:
    page.locator(".condition", has_text=text).wait_for()


@BOTH
@SIZES
def test_after_a_server_crash_nothing_is_shown_as_running_and_an_unsent_message_arrives_once(
    serve: Serve, pages: Watched, path: str, options: dict[str, Any]
) -> None:
    server = serve(SLOW)
    page = pages.open(server, path, **options)
    send(page, "Write")
    page.locator(".coming", has_text="A").wait_for()
    server.kill()

    wait_for_condition(page, SERVER[path])
    stop, busy = page.locator(".stop").is_visible(), page.locator(".is-busy").count()
    send(page, "Are you there?")
    unsent = page.locator(".outbox", has_text="Are you there?")
    unsent.get_by_text("Not sent yet").wait_for()
    fits = page.locator(".dock").evaluate("e => e.scrollWidth <= e.clientWidth + 1")
    server.write([{"text": "Here I am."}])
    server.start()
    unsent.wait_for(state="hidden")
    answer(page, "Here I am.")

    assert (stop, busy, fits) == (False, 0, True)
    assert page.locator(".condition").is_hidden()
    assert page.locator(".block-heard", has_text="Are you there?").count() == 1


@BOTH
def test_no_clock_and_no_conversation_is_shown_as_running_while_the_server_is_gone(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(bash("echo 1; sleep 60"), {"text": "Done."})
    page = pages.open(server, path)
    send(page, "Run")
    page.locator(".request").wait_for()
    button(page, WORDS[path]["yes"]).click()
    page.locator(".card-activity.is-running").wait_for()
    reason = "the database cannot be reached"
    address = f"**/api/conversations/{id_of(page)}"
    page.route(
        address, lambda route: route.fulfill(status=503, json={"kind": "JournalError", "reason": reason})
    )  # fmt: skip
    server.kill()
    wait_for_condition(page, f"this conversation now: {reason}.")
    page.unroute(address)
    wait_for_condition(page, SERVER[path])
    pages.wrong[:] = [line for line in pages.wrong if "status of 503" not in line]

    page.locator(".card-activity.is-unknown", has_text="not known now").wait_for()
    times = [page.locator(".running-time, .clock").all_inner_texts()]
    page.wait_for_timeout(2500)
    times.append(page.locator(".running-time, .clock").all_inner_texts())

    assert times[0] == times[1]
    assert page.locator(".card-activity.is-running").count() == 0


@BOTH
def test_a_turn_that_was_cut_off_is_shown_as_running_only_after_it_is_continued(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(SLOW, {"text": "The rest."})
    page = pages.open(server, path)
    send(page, "Write")
    page.locator(".coming", has_text="A").wait_for()
    server.kill()
    wait_for_condition(page, SERVER[path])
    server.write([{"text": "The rest."}])
    server.start()

    wait_for_condition(page, CUT_OFF[path])
    busy = page.locator(".is-busy").count()
    button(page, GO_ON[path]).click()
    answer(page, "The rest.")

    assert busy == 0
    assert page.locator(".condition").is_hidden()


@BOTH
def test_a_lost_network_is_named_and_an_unsent_message_can_be_taken_back(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": "Hello."})
    page = pages.open(server, path)
    send(page, "Who is there?")
    answer(page, "Hello.")
    page.context.set_offline(True)
    wait_for_condition(page, NETWORK[path])
    send(page, "Do you hear me?")
    page.locator(".outbox", has_text="Do you hear me?").wait_for()

    page.locator(".outbox").get_by_role("button").click()
    page.locator(".outbox").wait_for(state="hidden")
    draft = page.locator("#message").input_value()
    page.context.set_offline(False)
    wait_until(page, "() => document.querySelector('.condition').hidden")

    assert draft == "Do you hear me?"
    assert page.locator(".block-heard").count() == 1


@BOTH
def test_a_journal_that_cannot_be_written_is_named_until_it_can(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(SLOW, {"text": "Written at last."})
    page = pages.open(server, path)
    send(page, "Write")
    page.locator(".coming", has_text="A").wait_for()
    server.limit_files(2000)  # bytes of a file: less than the journal has

    wait_for_condition(page, DISK[path])
    busy = page.locator(".is-busy").count()
    page.reload()
    wait_for_condition(page, DISK[path])
    server.limit_files(resource.RLIM_INFINITY)
    button(page, GO_ON[path]).click()
    answer(page, "Written at last.")

    assert busy == 0
    assert page.locator(".condition").is_hidden()


@BOTH
def test_a_message_that_a_full_disk_rejects_stays_in_the_draft_with_the_reason(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": "Hello."})
    page = pages.open(server, path)
    send(page, "Hi")
    answer(page, "Hello.")
    server.limit_files(1000)  # bytes of a file: less than the journal has

    send(page, "Is there room?")
    page.get_by_text("Not sent: ").wait_for()
    problem = page.get_by_text("Not sent: ").inner_text()

    assert page.input_value("#message") == "Is there room?"
    assert ("events.jsonl" in problem) == (path == "/dev")
