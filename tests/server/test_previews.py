"""Files that a page shows: what each address sends, and with which policy."""

import io
from pathlib import Path

import pytest

from tests.server.serving import Answer, open_server
from tests.tools.workbooks import cells, text_row, workbook

pytestmark = pytest.mark.anyio
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cfc0"
    "f01f0005000180e5d0a5d80000000049454e44ae426082"
)
HTML = b"<h1>Hello</h1><script>alert(1)</script>"


def pdf(*texts: str) -> bytes:
    why = "reportlab is not installed: `scripts/setup peers`"
    pages = pytest.importorskip("reportlab.pdfgen.canvas", reason=why)
    file = io.BytesIO()
    canvas = pages.Canvas(file, pagesize=(200, 100))
    for text in texts:
        canvas.drawString(20, 50, text)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


async def previews(
    directory: Path, files: dict[str, bytes], *addresses: str, route: str = "previews"
) -> list[Answer]:
    for name, data in files.items():
        (directory / name).write_bytes(data)
    async with open_server(directory, "Hello.") as client:
        path = f"/api/conversations/{await client.begin()}/{route}/"
        return [await client.ask("GET", path + address) for address in addresses]


async def preview(directory: Path, name: str, data: bytes, query: str = "") -> Answer:
    (answer,) = await previews(directory, {name: data}, name + query)
    return answer


def policy(answer: Answer) -> set[str]:
    return set(answer.headers["content-security-policy"].split("; "))


async def test_a_page_of_a_pdf_is_drawn_as_an_image(tmp_path: Path) -> None:
    files = {"a.pdf": pdf("one", "two words")}
    first, second = await previews(tmp_path, files, "a.pdf", "a.pdf?page=2")

    assert (first.headers["content-type"], first.headers["x-pages"]) == ("image/png", "2")
    assert first.body.startswith(b"\x89PNG")
    assert int.from_bytes(first.body[16:20]) == 300  # pixels of 200 points
    assert second.body.startswith(b"\x89PNG")
    assert second.body != first.body


@pytest.mark.parametrize(
    ("data", "query", "reason"),
    [
        (pdf("one"), "?page=2", "it has 1 pages"),
        (b"%PDF-1.7 nothing", "", "cannot be drawn"),
    ],
)
async def test_a_pdf_page_that_cannot_be_drawn_is_an_error_with_the_reason(
    tmp_path: Path, data: bytes, query: str, reason: str
) -> None:
    answer = await preview(tmp_path, "a.pdf", data, query)

    assert answer.status == 404
    assert reason in answer.json["reason"]


async def test_html_gets_an_opaque_origin_and_loads_nothing(tmp_path: Path) -> None:
    answer = await preview(tmp_path, "a.html", HTML)

    assert answer.body == HTML
    assert {"sandbox", "default-src 'none'", "connect-src 'none'", "frame-ancestors 'self'"} <= policy(answer)  # fmt: skip
    assert not any(part.startswith("script-src") for part in policy(answer))


async def test_scripts_of_html_run_only_if_that_is_asked_for(tmp_path: Path) -> None:
    answer = await preview(tmp_path, "a.html", HTML, "?run=true")

    assert {"sandbox allow-scripts", "script-src 'unsafe-inline'", "connect-src 'none'", "default-src 'none'"} <= policy(answer)  # fmt: skip
    assert "allow-same-origin" not in answer.headers["content-security-policy"]


async def test_scripts_of_html_run_in_a_frame_and_not_in_a_tab_of_their_own(
    tmp_path: Path,
) -> None:
    """In a tab a script could open any address, and put data into it."""
    (tmp_path / "a.html").write_bytes(HTML)
    async with open_server(tmp_path, "Hello.") as client:
        path = f"/api/conversations/{await client.begin()}/previews/a.html?run=true"
        tab, frame = [
            await client.ask("GET", path, headers={**client.token, "Sec-Fetch-Dest": kind})
            for kind in ("document", "iframe")
        ]

    assert {"sandbox", "default-src 'none'"} <= policy(tab)
    assert "sandbox allow-scripts" in policy(frame)


async def test_a_preview_recognizes_an_image_by_its_first_bytes(tmp_path: Path) -> None:
    files = {"a.png": PIXEL, "b.png": b"<svg onload='alert(1)'/>"}
    image, other = await previews(tmp_path, files, *files)

    assert image.headers["content-type"] == "image/png"
    assert {"sandbox", "default-src 'none'"} <= policy(image)
    assert other.status == 404


@pytest.mark.parametrize("path", ["../a.png", ".%2e/a.png", "no.pdf"])
async def test_previews_show_nothing_outside_the_workspace(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "a.png").write_bytes(PIXEL)
    inside = tmp_path / "in"
    inside.mkdir()
    async with open_server(inside, "Hello.") as client:
        id_ = await client.begin()
        answer = await client.ask("GET", f"/api/conversations/{id_}/previews/{path}")

    assert answer.status == 404


async def test_a_sheet_of_a_workbook_is_sent_as_rows(tmp_path: Path) -> None:
    content = workbook(Open=cells(text_row("a")), Paid=cells(text_row("Name", "Sum")))
    files = {"a.xlsx": content, "b.xlsx": b"PK\x03\x04"}
    table, none, damaged = await previews(
        tmp_path, files, "a.xlsx?sheet=2", "a.xlsx?sheet=3", "b.xlsx", route="sheets"
    )

    assert table.json == {
        "sheets": ["Open", "Paid"], "rows": [["Name", "Sum"]], "more_rows": False,
        "more_columns": False,
    }  # fmt: skip
    assert (none.status, damaged.status) == (404, 404)
    assert "it has 2 sheets" in none.json["reason"]
    assert "damaged" in damaged.json["reason"]
