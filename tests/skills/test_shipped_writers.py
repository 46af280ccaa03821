"""The skills that write documents, up to a file that its own library opens."""

import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.skills.shipped import SKILLS, asset, run

pytestmark = pytest.mark.peer


def write_picture(path: Path, wide: int, high: int) -> None:
    """A grey PNG, written by hand."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        sum_ = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", sum_)

    rows = b"".join(b"\x00" + b"\x80" * wide for _ in range(high))
    head = struct.pack(">IIBBBBB", wide, high, 8, 0, 0, 0, 0)
    content = (
        chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)


def import_or_skip(*modules: str) -> Any:
    """Return the last of them, or the test is skipped with the reason."""
    return [pytest.importorskip(m, reason=f"{m} is not installed") for m in modules][-1]


# pdf-writer ---------------------------------------------------------------------------


def test_write_pdf_makes_a_pdf_with_the_text_of_the_report(tmp_path: Path) -> None:
    pypdf = import_or_skip("reportlab", "pypdf")
    source = str(asset("pdf-writer", "report.md"))

    result = run("pdf-writer", "write_pdf.py", source, "out.pdf", cwd=tmp_path)
    checked = run(
        "pdf-writer", "check_pdf.py", "out.pdf", "--pages", "2",
        "--contains", "August were averaged", cwd=tmp_path,
    )  # fmt: skip

    assert result == (0, "wrote out.pdf\n")
    assert checked[0] == 0, checked[1]
    reader = pypdf.PdfReader(tmp_path / "out.pdf")
    text = reader.pages[0].extract_text()
    assert (reader.metadata.title, reader.metadata.author) == (
        "Water use in 2025",
        "Facilities",
    )
    assert "We used 8 % less water than the year before." in text
    assert "Main 4,120 3,690 −10 %" in " ".join(text.split())
    assert [item["/Title"] for item in flatten(reader.outline)] == [
        "Water use in 2025", "What was measured", "What follows", "Notes",
    ]  # fmt: skip
    (link,) = [a.get_object()["/A"]["/URI"] for a in reader.pages[0]["/Annots"]]
    assert link == "https://example.org/method"


def flatten(outline: list[Any]) -> list[Any]:
    return [
        x for item in outline for x in (flatten(item) if isinstance(item, list) else [item])
    ]


def test_write_pdf_accepts_images_long_tables_and_long_code(tmp_path: Path) -> None:
    pypdf = import_or_skip("reportlab", "pypdf")
    write_picture(tmp_path / "p.png", 3000, 100)
    rows = "\n".join(f"| row {n} | {'word ' * (n % 9)} | {n} |" for n in range(120))
    (tmp_path / "a.md").write_text(
        f"# <Long> & wide\n\n![grey](p.png)\n\n| a | b | c |\n|---|---|--:|\n{rows}\n\n"
        f"```\n{'x' * 400}\n```\n\n---\n\n> Quoted *so* `<code>`.\n"
    )

    result = run("pdf-writer", "write_pdf.py", "a.md", "a.pdf", "--landscape", cwd=tmp_path)

    assert result == (0, "wrote a.pdf\n")
    reader = pypdf.PdfReader(tmp_path / "a.pdf")
    text = "".join(page.extract_text() for page in reader.pages)
    assert reader.metadata.title == "<Long> & wide"
    assert len(reader.pages) > 3
    assert all(f"row {n}" in text for n in range(120))
    assert text.count("x") >= 400
    assert "Quoted so <code>." in text
    assert reader.pages[0].mediabox.width > reader.pages[0].mediabox.height


def test_write_pdf_reports_characters_without_a_font_and_missing_images(
    tmp_path: Path,
) -> None:
    import_or_skip("reportlab")
    (tmp_path / "a.md").write_text("# Kanji \U00020000\n")
    (tmp_path / "b.md").write_text("# B\n\n![x](nothing.png)\n")

    fonts = run("pdf-writer", "write_pdf.py", "a.md", "a.pdf", cwd=tmp_path)
    pictures = run("pdf-writer", "write_pdf.py", "b.md", "b.pdf", cwd=tmp_path)

    assert fonts[0] == 1
    assert fonts[1].startswith("no font here has these characters: \U00020000")
    assert pictures[0] == 1
    assert pictures[1].startswith("the picture nothing.png cannot be used: ")
    assert list(tmp_path.glob("*.pdf")) == []


def test_check_pdf_reports_blank_pages_and_missing_text(tmp_path: Path) -> None:
    import_or_skip("reportlab", "pypdf")
    (tmp_path / "a.md").write_text(
        "Words, and no heading.\n\n\\newpage\n\n\\newpage\n\nEnd of it.\n"
    )
    run("pdf-writer", "write_pdf.py", "a.md", "a.pdf", cwd=tmp_path)

    code, text = run(
        "pdf-writer", "check_pdf.py", "a.pdf", "--contains", "nowhere", cwd=tmp_path
    )

    assert code == 1
    assert text.splitlines() == [
        "wrong: it has no title: add `title:` at the top of the text",
        "wrong: page 2 is blank",
        "wrong: the words 'nowhere' are not in it",
        "3 pages, 10 words, title: none",
    ]


# excel-writer -------------------------------------------------------------------------


def test_a_description_becomes_a_workbook_with_formulas_and_formats(tmp_path: Path) -> None:
    openpyxl = import_or_skip("openpyxl")
    source = str(asset("excel-writer", "sales.json"))

    result = run("excel-writer", "write_xlsx.py", source, "out.xlsx", cwd=tmp_path)
    checked = run("excel-writer", "check_xlsx.py", "out.xlsx", cwd=tmp_path)

    assert result == (0, "wrote out.xlsx: Sales\n")
    assert checked[0] == 0, checked[1]
    page = openpyxl.load_workbook(tmp_path / "out.xlsx")["Sales"]
    values = [[cell.value for cell in row] for row in page.iter_rows(min_row=2)]
    assert [str(row[0])[:10] for row in values] == [
        "2026-01-31", "2026-02-28", "2026-03-31", "Total",
    ]  # fmt: skip
    assert values[0][1:] == ["00417", 120, 19.9, "=C2*D2", "=E2/SUM(E$2:E$4)"]
    assert values[3] == ["Total", None, "=SUM(C2:C4)", None, "=SUM(E2:E4)", None]
    assert page["E2"].number_format == '#,##0.00 "EUR"'
    assert (page.freeze_panes, page.auto_filter.ref) == ("A2", "A1:F4")
    assert len(page._charts) == 1


def test_text_that_looks_like_a_formula_stays_text(tmp_path: Path) -> None:
    openpyxl = import_or_skip("openpyxl")
    book = {"sheets": [{
        "name": "A", "columns": [{"header": "X", "key": "x"}],
        "rows": [{"x": "=1+1"}, {"x": "@SUM(A1)"}],
    }]}  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(book))

    run("excel-writer", "write_xlsx.py", "a.json", "a.xlsx", cwd=tmp_path)

    page = openpyxl.load_workbook(tmp_path / "a.xlsx")["A"]
    assert [(c.value, c.data_type) for c in page["A"][1:]] == [
        ("=1+1", "s"),
        ("@SUM(A1)", "s"),
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "a/b"}, "the sheet name 'a/b'"),
        ({"rows": [{"n": "12"}]}, "A2: '12' is no number"),
        ({"rows": [{"d": "31.3.2026"}]}, "B2: '31.3.2026' is no date"),
        ({"rows": [{"z": 1}]}, "there is no column 'z'"),
        ({"columns": [{"header": "X", "key": "x", "formula": "={y}"}], "rows": [{}]}, "names no column"),
        ({"totals": {"n": "median"}, "rows": [{"n": 1}]}, "totals: 'n': 'median'"),
        ({"chart": {"type": "bar", "x": "n", "y": ["z"]}}, "chart of 'A'"),
        ({"columns": []}, "sheet 'A' has no `columns`"),
    ],
)  # fmt: skip
def test_invalid_workbook_description_is_reported(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    import_or_skip("openpyxl")
    columns = [
        {"header": "N", "key": "n", "type": "number"},
        {"header": "D", "key": "d", "type": "date"},
    ]
    sheet = {"name": "A", "columns": columns, "rows": [], **change}
    (tmp_path / "a.json").write_text(json.dumps({"sheets": [sheet]}))

    code, text = run("excel-writer", "write_xlsx.py", "a.json", "a.xlsx", cwd=tmp_path)

    assert (code, list(tmp_path.glob("*.xlsx"))) == (1, [])
    assert words in text


def test_check_xlsx_reports_missing_headers_broken_formulas_and_text_numbers(
    tmp_path: Path,
) -> None:
    openpyxl = import_or_skip("openpyxl")
    book = openpyxl.Workbook()
    page = book.active
    page.title = "A"
    for row in (
        ["X", "X", None, "D"], ["12", 123456789012, 3, "#REF!"],
        ["=A3", "=Gone!A1", "=SUM(H1:H9)", "=C2"],
    ):  # fmt: skip
        page.append(row)
    book.save(tmp_path / "a.xlsx")

    code, text = run("excel-writer", "check_xlsx.py", "a.xlsx", cwd=tmp_path)

    assert code == 1
    assert text.splitlines() == [
        "wrong: A: C1: a column without a header",
        "wrong: A: two columns are called 'X'",
        "wrong: A: A2: the number '12' is kept as text",
        "wrong: A: B2: column B is too narrow, it shows ####",
        "wrong: A: D2 holds #REF!",
        "wrong: A: A3 refers to itself (=A3)",
        "wrong: A: B3: there is no sheet 'Gone' (=Gone!A1)",
        "wrong: A: C3: H1:H9 is empty (=SUM(H1:H9))",
        "1 sheets: A; 4 formulas",
        "4 results are computed when a spreadsheet program opens it",
    ]


# docx-writer --------------------------------------------------------------------------


def test_minutes_become_a_word_document_with_styles(tmp_path: Path) -> None:
    docx = import_or_skip("docx")
    source = str(asset("docx-writer", "minutes.md"))

    result = run("docx-writer", "write_docx.py", source, "out.docx", "--toc", cwd=tmp_path)
    checked = run(
        "docx-writer",
        "check_docx.py",
        "out.docx",
        "--contains",
        "ten o'clock",
        cwd=tmp_path,
    )

    assert result == (0, "wrote out.docx\n")
    assert checked[0] == 0, checked[1]
    document = docx.Document(tmp_path / "out.docx")
    assert document.core_properties.title == "Minutes of the water group"
    assert [(p.style.name, p.text) for p in document.paragraphs if p.text][4:9] == [
        ("List Number", "The valve in the annex is repaired in March."),
        ("List Number", "The meters are read every week:"),
        ("List Bullet 2", "on Monday before nine;"),
        ("List Bullet 2", "by the porter."),
        ("Heading 2", "Who does what"),
    ]
    numbers = [
        p._p.pPr.numPr.numId.val
        for p in document.paragraphs
        if p.style.name == "List Number"
    ]
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3]  # each list begins again
    assert [cell.text for cell in document.tables[0].rows[2].cells] == [
        "Ask for a quotation on rain water", "Lena Novak", "30 June",
    ]  # fmt: skip
    assert 'TOC \\o "2-3"' in document.element.xml
    assert "PAGE" in document.sections[0].footer._element.xml


def test_write_docx_takes_styles_and_margins_but_no_text_from_a_template(
    tmp_path: Path,
) -> None:
    docx = import_or_skip("docx")
    firm = docx.Document()
    firm.add_paragraph("Words of the template")
    firm.sections[0].left_margin = docx.shared.Mm(50)
    firm.styles["Normal"].font.name = "Georgia"
    firm.save(tmp_path / "firm.docx")
    write_picture(tmp_path / "p.png", 4000, 40)
    (tmp_path / "a.md").write_text("# A\n\n![A grey bar](p.png)\n\n```\ncode\n```\n")

    result = run(
        "docx-writer",
        "write_docx.py",
        "a.md",
        "a.docx",
        "--template",
        "firm.docx",
        cwd=tmp_path,
    )
    checked = run("docx-writer", "check_docx.py", "a.docx", cwd=tmp_path)

    assert (result[0], checked[0]) == (0, 0), (result, checked)
    document = docx.Document(tmp_path / "a.docx")
    assert "Words of the template" not in document.element.xml
    assert round(document.sections[0].left_margin.mm) == 50
    assert document.styles["Normal"].font.name == "Georgia"
    (shape,) = document.inline_shapes
    assert shape._inline.docPr.get("descr") == "A grey bar"
    section = document.sections[0]
    assert shape.width == section.page_width - section.left_margin - section.right_margin


def test_check_docx_reports_headings_and_lists_without_a_style(tmp_path: Path) -> None:
    docx = import_or_skip("docx")
    document = docx.Document()
    document.add_paragraph().add_run("A heading").bold = True
    for text in ("- typed by hand", "", "", "Dear [Name],"):
        document.add_paragraph(text)
    document.add_heading("Deep", 3)
    document.add_table(2, 2)
    document.core_properties.title = ""
    document.save(tmp_path / "a.docx")

    code, result = run(
        "docx-writer", "check_docx.py", "a.docx", "--contains", "x y", cwd=tmp_path
    )

    assert code == 1
    assert result.splitlines()[:-1] == [
        "wrong: the document has no title among its properties",
        "wrong: the heading 'Deep' is of level 3 below one of level 0",
        "wrong: a heading typed in bold: 'A heading'",
        "wrong: a list typed by hand: '- typed by hand'",
        "wrong: empty paragraphs in a row: use the spacing of a style, or a page break",
        "wrong: table 1 has no header row",
        "wrong: table 1 is empty",
        "wrong: left for later: '[Name]'",
        "wrong: the words 'x y' are not in it",
    ]


# ppt-writer ---------------------------------------------------------------------------


def test_write_pptx_makes_slides_with_titles_notes_tables_and_charts(
    tmp_path: Path,
) -> None:
    pptx = import_or_skip("pptx")
    talk = asset("ppt-writer", "talk.md").read_text("utf-8")
    (tmp_path / "talk.md").write_text(talk.replace("Tom Ito", r"Tom \| Ito"), "utf-8")

    result = run("ppt-writer", "write_pptx.py", "talk.md", "out.pptx", cwd=tmp_path)
    checked = run("ppt-writer", "check_pptx.py", "out.pptx", cwd=tmp_path)

    assert result == (0, "wrote out.pptx: 4 slides\n")
    assert checked[0] == 0, checked[1]
    show = pptx.Presentation(tmp_path / "out.pptx")
    slides = list(show.slides)
    assert [slide.shapes.title.text_frame.text for slide in slides] == [
        "Less water in 2025",
        "One repaired pipe saved most of it",
        "Every quarter was below the year before",
        "Three things are next",
    ]
    body = slides[1].placeholders[1].text_frame
    assert [(p.level, p.text) for p in body.paragraphs][1:3] == [
        (0, "Main building: −430 m³"), (1, "the pipe below the kitchen"),
    ]  # fmt: skip
    assert slides[1].notes_slide.notes_text_frame.text.startswith("The offer promised 5 %")
    (chart,) = [s.chart for s in slides[2].shapes if s.has_chart]
    assert list(chart.plots[0].categories) == ["Q1", "Q2", "Q3", "Q4"]
    assert [tuple(s.values) for s in chart.plots[0].series][1] == (1480, 1430, 1460, 1426)
    (table,) = [s.table for s in slides[3].shapes if s.has_table]
    assert [table.cell(1, n).text for n in (0, 1)] == ["Repair the valve", "Tom | Ito"]
    assert show.slide_width / show.slide_height == pytest.approx(16 / 9)


def test_write_pptx_uses_a_template_without_its_slides(tmp_path: Path) -> None:
    pptx = import_or_skip("pptx")
    firm = pptx.Presentation()
    firm.slides.add_slide(firm.slide_layouts[0]).shapes.title.text = "Theirs"
    firm.save(tmp_path / "firm.pptx")
    write_picture(tmp_path / "p.png", 300, 900)
    (tmp_path / "a.md").write_text("## One\n\n- a **bold** point\n\n![A bar](p.png)\n")

    result = run(
        "ppt-writer",
        "write_pptx.py",
        "a.md",
        "a.pptx",
        "--template",
        "firm.pptx",
        cwd=tmp_path,
    )
    checked = run("ppt-writer", "check_pptx.py", "a.pptx", cwd=tmp_path)

    assert (result[0], checked[0]) == (0, 0), (result, checked)
    show = pptx.Presentation(tmp_path / "a.pptx")
    assert [s.shapes.title.text_frame.text for s in show.slides] == ["One"]
    assert show.slide_width / show.slide_height == pytest.approx(4 / 3)
    (bold,) = [
        run_.text for run_ in show.slides[0].placeholders[1].text_frame.paragraphs[0].runs
        if run_.font.bold
    ]  # fmt: skip
    assert bold == "bold"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("## Full\n" + "- many words that go on and on and on and on\n" * 12, "slide 1 (Full) holds too much"),
        ("## Two\n| a |\n\n| b |\n", "slide 1 (Two) has 2 tables, charts or pictures"),
        ("## C\n```chart pie\nA, B\nx, y\n```\n", "slide 1 (C): the chart has something that is no number"),
        ("Words first\n", "'Words first' stands before the first slide"),
        ("## P\n![x](no.png)\n", "slide 1 (P): the picture no.png cannot be used"),
    ],
)  # fmt: skip
def test_write_pptx_reports_an_invalid_slide(text: str, words: str, tmp_path: Path) -> None:
    import_or_skip("pptx")
    (tmp_path / "a.md").write_text(text)

    code, result = run("ppt-writer", "write_pptx.py", "a.md", "a.pptx", cwd=tmp_path)

    assert (code, list(tmp_path.glob("*.pptx"))) == (1, [])
    assert result.startswith(words)


def test_check_pptx_reports_small_overlapping_and_overflowing_text(tmp_path: Path) -> None:
    pptx = import_or_skip("pptx")
    from pptx.util import Inches, Pt

    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    for left in (1, 1.2, 9.5):
        box = slide.shapes.add_textbox(Inches(left), Inches(6), Inches(2), Inches(0.3))
        box.text_frame.text = "Very many words for so small a box, which runs over its end"
        box.text_frame.paragraphs[0].runs[0].font.size = Pt(8 if left == 1 else 20)
    show.save(tmp_path / "a.pptx")

    code, text = run("ppt-writer", "check_pptx.py", "a.pptx", cwd=tmp_path)

    assert code == 1
    kinds = [
        "it has no title", "the placeholder 'Content Placeholder 2' is empty",
        "'TextBox 3' and 'TextBox 4' lie over each other", "has letters of 8 points",
        "the text of 'TextBox 4' runs out of its box", "'TextBox 5' lies beyond the edge",
    ]  # fmt: skip
    assert [kind for kind in kinds if kind not in text] == []


# All of them --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("skill", "script", "package"),
    [
        ("pdf-writer", "write_pdf.py", "reportlab"),
        ("pdf-writer", "check_pdf.py", "pypdf"),
        ("excel-writer", "write_xlsx.py", "openpyxl"),
        ("excel-writer", "check_xlsx.py", "openpyxl"),
        ("docx-writer", "write_docx.py", "python-docx"),
        ("docx-writer", "check_docx.py", "python-docx"),
        ("ppt-writer", "write_pptx.py", "python-pptx"),
        ("ppt-writer", "check_pptx.py", "python-pptx"),
    ],
)
def test_a_missing_library_is_reported_with_its_install_command(
    skill: str, script: str, package: str, tmp_path: Path
) -> None:
    # -S: without the packages that are installed.
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(SKILLS / skill / "scripts" / script), "a", "b"][
            : 5 if script.startswith("check") else 6
        ],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (
        1,
        f"{script} needs {package}: python3 -m pip install {package}\n",
    )
