"""The user page tells steps of one kind as one, and sums up what a turn did."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refold
from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_stories import answer, bash, button, send, wait_until

NODE = shutil.which("node")
HERE = Path(__file__).parent
MODULE = Path(refold.__file__).parent / "server/pages/shared/steps.js"
pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
KINDS = ["thought", "words", "heard", "turn_over"]
BLOCKS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"kind": "called", "tool": tool, "stage": stage} for tool in "ab" for stage in ("done", "failed")]
    + [{"kind": kind} for kind in KINDS]
)  # fmt: skip


def read_log(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    assert NODE
    items = [{"seq": seq, **block} for seq, block in enumerate(blocks, 1)]
    done = subprocess.run(
        [NODE, HERE / "plain_log.mjs"],
        input=json.dumps({"module": MODULE.as_uri(), "items": items}).encode(),
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@given(st.lists(BLOCKS, max_size=20))
def test_folded_steps_keep_every_block_in_its_order(blocks: list[dict[str, Any]]) -> None:
    log = read_log(blocks)

    assert log["order"] == log["joined"] == list(range(1, len(blocks) + 1))
    assert log["growing"] == log["whole"]
    assert log["kept"]  # unchanged parts are the same objects


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_failed_steps_and_steps_of_another_kind_are_not_folded() -> None:
    calls = [("a", "done"), ("a", "done"), ("a", "failed"), ("a", "done"), ("b", "done")]
    log = read_log(
        [{"kind": "called", "tool": tool, "stage": stage} for tool, stage in calls]
    )

    assert [len(block.get("blocks", [1])) for block in log["whole"]] == [2, 1, 1, 1]


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_folded_calls_stand_in_the_order_in_which_they_were_made() -> None:
    ids = ["call-9", "call-11", "call-10"]  # in the order in which they ended
    log = read_log(
        [
            {"kind": "called", "tool": "a", "stage": "done", "seq": 4, "id": id_}
            for id_ in ids
        ]
    )

    assert [call["id"] for call in log["whole"][0]["blocks"]] == ["call-9", "call-10", "call-11"]  # fmt: skip


def calc(count: int) -> dict[str, Any]:
    calls = [{"tool": "calc", "arguments": {"expression": f"{n}+1"}} for n in range(count)]
    return {"calls": calls}


def test_similar_steps_are_one_line_that_unfolds(serve: Serve, pages: Watched) -> None:
    page = pages.open(serve(calc(3), calc(2), {"text": "Done."}))

    send(page, "Work it out")
    answer(page, "Done.")
    page.locator(".block-turn_over .summary").wait_for()
    rows = page.locator(".block-steps, .block-called")

    assert rows.all_inner_texts() == ["Worked something out, 5 times"]
    assert page.locator(".summary").inner_text().startswith("5 steps in ")
    page.locator(".block-steps > .step > summary").click()
    assert page.locator(".inner-steps .step").count() == 5


def test_the_end_of_a_turn_counts_files_and_commands(serve: Serve, pages: Watched) -> None:
    files = [{"tool": "write_file", "arguments": {"path": name, "content": "x"}} for name in ("a.txt", "b.txt")]  # fmt: skip
    page = pages.open(serve({"calls": files}, bash("touch c.txt"), {"text": "Done."}))
    send(page, "Write")
    wait_until(page, "() => document.querySelectorAll('.request').length === 2")
    button(page, "Yes to all 2").click()
    page.locator(".request", has_text="touch").wait_for()
    button(page, "Yes").click()

    answer(page, "Done.")
    page.locator(".summary").wait_for()

    assert (
        page.locator(".summary")
        .inner_text()
        .startswith("3 files created, 1 command run in ")
    )
    assert page.locator(".block-steps .about").inner_text() == "a.txt, b.txt"


def test_a_running_command_shows_its_time_and_last_line(
    serve: Serve, pages: Watched
) -> None:
    page = pages.open(serve(bash("echo first; echo second; sleep 6"), {"text": "Done."}))
    send(page, "Run")
    page.locator(".request").wait_for()
    button(page, "Yes").click()

    page.locator(".block-called .about", has_text="second").wait_for()
    wait_until(
        page, "() => /^[3-9] s$/.test(document.querySelector('.running-time')?.textContent)"
    )

    answer(page, "Done.")
    assert page.locator(".running-time").count() == 0
