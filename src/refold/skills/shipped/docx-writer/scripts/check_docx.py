"""Open a Word document again and say what is wrong with it.

    python3 check_docx.py out.docx [--contains TEXT]...

The exit code is 0 if nothing is wrong. To check how it looks, convert it to a PDF.
"""

import argparse
import re
import sys
from importlib.util import find_spec

# In two halves, so that this line itself does not match.
LEFT = re.compile(
    r"\bTO" r"DO\b|\bTB" r"D\b|lorem ipsum|\[(insert|your|name|date)[^\]]*\]|\?\?\?",
    re.IGNORECASE,
)
TYPED = re.compile(r"\s*([-*•–]|\d{1,2}[.)])\s+\S")


def main(arguments):
    """Print what is wrong with a document. Return the exit code: 1 if something is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--contains", action="append", default=[], metavar="TEXT")
    options = parser.parse_args(arguments)
    if find_spec("docx") is None:
        sys.exit("check_docx.py needs python-docx: python3 -m pip install python-docx")
    import docx

    try:
        document = docx.Document(options.file)
    except Exception as error:  # a damaged file raises many kinds of errors
        sys.exit(f"{options.file} cannot be opened as a Word document: {error}")
    wrong = [
        *of_headings(document),
        *of_paragraphs(document),
        *of_things(document),
        *of_words(document, options.contains),
    ]
    for each in wrong:
        sys.stdout.write(f"wrong: {each}\n")
    words = len(whole(document).split())
    heads = sum(level(p) > 0 for p in document.paragraphs)
    sys.stdout.write(f"{words} words, {heads} headings, {len(document.tables)} tables\n")
    return 1 if wrong else 0


def level(paragraph):
    """Return the level of a heading; 0 if the paragraph is not a heading."""
    match = re.fullmatch(r"Heading (\d)", paragraph.style.name or "")
    return int(match[1]) if match else 0


def of_headings(document):
    """Report a missing title, missing or empty headings, and headings that skip a level."""
    before = 0
    if not document.core_properties.title:
        yield "the document has no title among its properties"
    if not any(level(p) or p.style.name == "Title" for p in document.paragraphs):
        yield "it has no headings"
    for paragraph in document.paragraphs:
        here = level(paragraph)
        if here > before + 1:
            yield f"the heading {paragraph.text!r} is of level {here} below one of level {before}"
        if here and not paragraph.text.strip():
            yield "a heading is empty"
        before = here or before


def of_paragraphs(document):
    """Report empty paragraphs in a row, and lists and headings that were typed by hand."""
    empty = 0
    for paragraph in document.paragraphs:
        text = paragraph.text
        blank = not text.strip() and not paragraph._p.xpath(
            ".//w:drawing|.//w:br|.//w:fldChar"
        )
        empty = empty + 1 if blank else 0
        if empty == 2:
            yield "empty paragraphs in a row: use the spacing of a style, or a page break"
        if TYPED.match(text) and not paragraph.style.name.startswith(("List", "Heading")):
            yield f"a list typed by hand: {text[:40]!r}"
        runs = [run for run in paragraph.runs if run.text.strip()]
        if (
            runs
            and all(r.bold for r in runs)
            and len(text) < 60
            and paragraph.style.name == "Normal"
        ):
            yield f"a heading typed in bold: {text[:40]!r}"


def of_things(document):
    """Report tables without a header or content, and images without a description."""
    for number, table in enumerate(document.tables, start=1):
        if len(table.rows) > 1 and not table.rows[0]._tr.xpath("./w:trPr/w:tblHeader"):
            yield f"table {number} has no header row"
        if not any(cell.text.strip() for row in table.rows for cell in row.cells):
            yield f"table {number} is empty"
    for number, shape in enumerate(document.inline_shapes, start=1):
        if not shape._inline.docPr.get("descr"):
            yield f"picture {number} has no description"


def of_words(document, wanted):
    """Report placeholders that were left in the text, and `wanted` texts that it lacks."""
    text = whole(document)
    for match in LEFT.finditer(text):
        yield f"left for later: {match[0]!r}"
    flat = " ".join(text.split())
    for each in wanted:
        if " ".join(each.split()) not in flat:
            yield f"the words {each!r} are not in it"


def whole(document):
    """Return the text of all paragraphs, and after it that of all cells of tables."""
    cells = (
        cell.text for table in document.tables for row in table.rows for cell in row.cells
    )
    return "\n".join((*(p.text for p in document.paragraphs), *cells))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
