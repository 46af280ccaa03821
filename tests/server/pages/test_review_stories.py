"""The review of changes on both pages: what it is compared with, comments, and undo."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import refold
from tests.place.repositories import git
from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_accessibility import problems
from tests.server.pages.test_page_stories import (
    BOTH,
    WORDS,
    answer,
    button,
    send,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
OLD = "".join(f"line {number}\n" for number in range(1, 41))
NEW = OLD.replace("line 7\n", "line seven\n").replace("line 30\n", "")
CHANGE = [
    {"calls": [{"tool": "read_file", "arguments": {"path": "src/app/a.py"}}]},
    {
        "calls": [
            {"tool": "write_file", "arguments": {"path": path, "content": content}}
            for path, content in (("src/app/a.py", NEW), ("src/app/sub/b.py", "one = 1\n"))
        ]
    },
    {"text": "I changed two files."},
    {"text": "I will."},
]
PAGES = Path(refold.__file__).parent / "server/pages/shared"
PURE = """
const { pairs } = await import(process.argv[1] + "/review_table.js");
const { nested } = await import(process.argv[1] + "/review.js");
const kinds = JSON.parse(process.argv[2]);
const show = ({ folders, files }) => [[...folders].map(([name, below]) => [name, show(below)]), files.map((f) => f.path)];
console.log(JSON.stringify([pairs(kinds.map((kind) => ({ kind }))), show(nested(JSON.parse(process.argv[3])))]));
"""


def change_files(server: Server, page: Any, path: str) -> None:
    """Have two files changed in the repository of the workspace."""
    file = server.workspace / "src/app/a.py"
    file.parent.mkdir(parents=True)
    file.write_text(OLD)
    git(server.workspace, "init", "-q")
    git(server.workspace, "add", ".")
    git(server.workspace, "commit", "-qm", "Begin")
    (server.workspace / "beside.txt").write_text("of somebody else\n")
    send(page, "Change them")
    for _ in range(2):
        page.locator(".request").first.wait_for()
        call = page.locator(".request").first.get_attribute("data-call")
        request = page.locator(f".request[data-call='{call}']")
        request.get_by_role("button", name=WORDS[path]["yes"], exact=True).click()
        request.wait_for(state="detached")
    answer(page, "I changed two files.")


def review(page: Any, selector: str = ".again") -> Any:
    page.locator(selector).get_by_role("button", name="Review changes").click()
    page.locator(".review-section").first.wait_for()
    return page.locator(".review")


def texts(page: Any, selector: str) -> list[str]:
    return [" ".join(text.split()) for text in page.locator(selector).all_inner_texts()]


@BOTH
def test_generated_files_in_a_review_are_one_line_until_they_are_opened(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(*CHANGE)
    page = pages.open(server, path)
    change_files(server, page, path)
    for name in ("src/__pycache__/a.pyc", "node_modules/x/index.js", "node_modules/y.js"):
        (server.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (server.workspace / name).write_text("made\n")
    dialog = review(page)
    before = texts(dialog, ".review-path")

    button(dialog, "Show 3 generated files in __pycache__, node_modules").click()

    wait_until(page, "() => document.querySelectorAll('.review-section').length === 5")
    assert sorted(before) == ["src/app/a.py", "src/app/sub/b.py"]
    assert problems(page) == []


@BOTH
def test_comments_on_changed_lines_become_the_next_message(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(*CHANGE)
    page = pages.open(server, path)
    change_files(server, page, path)
    review(page)

    assert texts(page, ".review-path") == ["src/app/sub/b.py", "src/app/a.py"]
    assert texts(page, ".review-sum") == ["2 files +2 −2"]
    expected = ["From line 4", "From line 27"] if path == "/" else ["@@ -0,0 +1,1 @@", "@@ -4,7 +4,7 @@", "@@ -27,7 +27,6 @@"]  # fmt: skip
    page.locator(".review-diff tr.hunk").nth(len(expected) - 1).wait_for()
    assert texts(page, ".review-diff tr.hunk") == expected
    button(page, "Side by side").click()
    page.locator(".review-diff.is-split").first.wait_for()
    page.get_by_role("button", name="Line 7: comment").last.click()
    page.keyboard.type("A number, please.")
    page.keyboard.press("Enter")
    page.locator(".review-note", has_text="A number, please.").wait_for()

    page.reload()
    page.locator(".again").wait_for()
    review(page)
    page.locator(".review-note", has_text="A number, please.").wait_for()
    button(page, "Put into the message").click()
    page.locator(".review").wait_for(state="detached")
    box = page.locator("#message").input_value()
    assert "src/app/a.py, line 7: `line seven`\nA number, please." in box
    page.keyboard.press("Enter")
    answer(page, "I will.")

    review(page, ".bar")
    assert page.locator(".review-note").count() == 0


@BOTH
def test_one_file_is_undone_in_a_review(serve: Serve, pages: Watched, path: str) -> None:
    server = serve(*CHANGE)
    page = pages.open(server, path)
    change_files(server, page, path)
    dialog = review(page)

    section = dialog.locator(".review-section", has_text="src/app/a.py")
    section.get_by_role("button", name="Undo").click()
    page.locator(".dialog").get_by_role("button", name="Undo", exact=True).click()
    section.wait_for(state="detached")

    assert (server.workspace / "src/app/a.py").read_text() == OLD
    assert (server.workspace / "src/app/sub/b.py").read_text() == "one = 1\n"


@BOTH
def test_a_review_compares_with_a_commit_or_a_message(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(*CHANGE)
    page = pages.open(server, path)
    change_files(server, page, path)
    dialog = review(page)
    since = dialog.get_by_label("Compare with")

    since.locator("option", has_text="Begin").wait_for(state="attached")
    since.select_option(label=since.locator("option").last.inner_text())
    page.locator(".review-path", has_text="beside.txt").wait_for()
    assert dialog.get_by_role("button", name="Undo").count() == 0
    git(server.workspace, "checkout", "-q", "--", ".")
    (server.workspace / "beside.txt").unlink()
    shutil.rmtree(server.workspace / "src/app/sub")
    button(page, "Read the changes again").click()

    page.get_by_text("Nothing has changed since then.").wait_for()
    since.select_option(label="Last message: Change them")
    page.locator(".review-path", has_text="beside.txt").wait_for()
    assert texts(page, ".review-path") == ["beside.txt"]  # it was there at that time


@pytest.mark.parametrize("width", [360, 1440])
@BOTH
def test_a_review_fits_the_window_and_axe_finds_no_serious_problem(
    serve: Serve, pages: Watched, path: str, width: int
) -> None:
    server = serve(*CHANGE)
    page = pages.open(server, path, viewport={"width": width, "height": 800})
    change_files(server, page, path)
    review(page)
    page.get_by_role("button", name="Line 7: comment").first.click()
    page.keyboard.type("Why?")
    page.keyboard.press("Enter")
    page.locator(".review-note").wait_for()

    assert problems(page) == []
    wait_until(
        page,
        "() => [...document.querySelectorAll('.review, .review button, .review select')]"
        ".every((each) => each.getBoundingClientRect().right <= innerWidth + 0.5)",
    )
    page.keyboard.press("Escape")
    page.locator(".review").wait_for(state="detached")
    wait_until(page, "() => document.activeElement.textContent.includes('Review changes')")


def test_removed_lines_stand_beside_added_ones_and_single_folders_are_joined() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    kinds = ["hunk", "same", "gone", "gone", "added", "same", "added"]
    files = [{"path": path} for path in ("a/b/c.py", "a/b/d/e.py", "f.txt")]
    command_line = [
        node,
        "--input-type=module",
        "-e",
        PURE,
        PAGES.as_uri(),
        json.dumps(kinds),
    ]
    done = subprocess.run(
        [*command_line, json.dumps(files)], check=True, capture_output=True
    )

    assert json.loads(done.stdout) == [
        [[0, 0], [1, 1], [2, 4], [3, None], [5, 5], [None, 6]],
        [[["a/b", [[["d", [[], ["a/b/d/e.py"]]]], ["a/b/c.py"]]]], ["f.txt"]],
    ]


@pytest.mark.parametrize(
    ("line_ends", "diff", "texts"),
    [
        (False, "@@ -1,1 +1,1 @@\n-a\r\n+b\r", ["a", "b"]),
        (True, "@@ -1,1 +1,1 @@\n-a\r\n+b\r", ["a\r", "b\r"]),
        (False, "@@ -1,1 +1,1 @@\n-a\n+a\r", ["a", "a\r"]),
    ],
    ids=["plain", "developer", "changed"],
)
def test_carriage_returns_in_a_diff_are_shown_to_developers_and_where_they_changed(
    line_ends: bool, diff: str, texts: list[str]
) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    program = """
const { labelledRows } = await import(process.argv[1] + "/diff.js");
const rows = labelledRows(process.argv[3], { lineEnds: process.argv[2] === "true" });
console.log(JSON.stringify(rows.slice(1).map((row) => row.text)));
"""
    command_line = [
        node,
        "--input-type=module",
        "-e",
        program,
        PAGES.as_uri(),
        str(line_ends).lower(),
    ]
    done = subprocess.run([*command_line, diff], check=True, capture_output=True)

    assert json.loads(done.stdout) == texts
