"""Turn simple Markdown into a Word document with python-docx.

    python3 write_docx.py text.md out.docx [--toc] [--size a4|letter] [--template own.docx]

All text gets styles of Word, so that a person can continue to edit it. If something is
missing, nothing is written, and one line says what. check_docx.py checks the document.
"""

import argparse
import os
import re
import sys
from importlib.util import find_spec

NEW_BLOCK = re.compile(r"#{1,6} |\s*([-*+]|\d+[.)]) |```|\||>|!\[|\\newpage\s*$")
ITEM = re.compile(r"(\s*)([-*+]|\d+[.)]) +(.*)")
INLINE = re.compile(
    r"`(?P<code>[^`]+)`|\*\*(?P<bold>.+?)\*\*|(?<![*\w])\*(?P<italic>[^*\s][^*]*?)\*(?![*\w])"
    r"|\[(?P<words>[^\]]+)\]\((?P<address>[^)\s]+)\)"
)
DEEPEST = 3  # lists in lists, as Word has styles for
FONT_OF_CODE = "Courier New"


def main(arguments):
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--toc", action="store_true", help="a table of contents on top")
    parser.add_argument("--size", choices=("a4", "letter"), default="")
    parser.add_argument(
        "--template", default="", help="take styles and margins from this one"
    )
    options = parser.parse_args(arguments)
    if find_spec("docx") is None:
        sys.exit("write_docx.py needs python-docx: python3 -m pip install python-docx")
    try:
        with open(options.source, encoding="utf-8-sig") as file:
            facts, lines = front(file.read().splitlines())
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{options.source} cannot be read: {error}")
    parts = list(blocks(lines))
    first = next((content[1] for kind, content in parts if kind == "heading"), "")
    document = empty_document(options, {"title": first, **facts})
    folder = os.path.dirname(os.path.abspath(options.source))
    top = next((part for part in parts if part[0] == "heading"), None)
    for part in parts:
        add(document, part, folder)
        if options.toc and part is top:
            contents(document)
    try:
        document.save(options.target)
    except OSError as error:
        sys.exit(f"{options.target} cannot be written: {error}")
    sys.stdout.write(f"wrote {options.target}\n")
    return 0


def front(lines):
    """Return the fields between two lines --- at the beginning, and the other lines."""
    if not lines or lines[0].strip() != "---" or "---" not in lines[1:]:
        return {}, lines
    end = lines.index("---", 1)
    pairs = (line.partition(":") for line in lines[1:end] if ":" in line)
    facts = {key.strip().lower(): value.strip().strip("\"'") for key, _, value in pairs}
    return facts, lines[end + 1 :]


def empty_document(options, facts):
    """Return an empty document with its page size, footer and properties set."""
    import docx
    from docx.shared import Mm

    try:
        document = docx.Document(options.template or None)
    except Exception as error:  # a damaged file raises many kinds of errors
        sys.exit(f"the template {options.template} cannot be opened: {error}")
    for element in list(document.element.body):
        if not element.tag.endswith("}sectPr"):
            document.element.body.remove(element)
    section = document.sections[0]
    if options.size or not options.template:
        wide, high = (216, 279) if options.size == "letter" else (210, 297)
        section.page_width, section.page_height = Mm(wide), Mm(high)
    if not options.template:
        section.left_margin = section.right_margin = Mm(25)
        foot = section.footer.paragraphs[0]
        foot.alignment = 1  # centered
        field(foot, "PAGE")
    document.core_properties.title = facts.get("title", "")
    document.core_properties.author = facts.get("author", "")
    document.core_properties.language = facts.get("lang", "")
    language(document, facts.get("lang", ""))
    return document


def language(document, name):
    """Set the document's language for the spelling checker."""
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    if name:
        properties = document.styles["Normal"].element.get_or_add_rPr()
        element = OxmlElement("w:lang")
        element.set(qn("w:val"), name)
        properties.append(element)


def field(paragraph, code, shown=""):
    """Add a field that Word computes, such as a page number or a table of contents.

    `shown` is its text until then.
    """
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    for kind, text in (
        ("begin", ""),
        ("", code),
        ("separate", ""),
        ("text", shown),
        ("end", ""),
    ):
        run = paragraph.add_run(text if kind == "text" else "")
        if kind == "text":
            continue
        element = OxmlElement("w:fldChar" if kind else "w:instrText")
        if kind:
            element.set(qn("w:fldCharType"), kind)
        else:
            element.text = f" {code} "
        run._r.append(element)


def contents(document):
    """Add a table of contents, which Word fills when it opens the document."""
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    shown = "Right-click here and choose Update Field."
    field(document.add_paragraph(), 'TOC \\o "2-3" \\h \\z \\u', shown)
    update = OxmlElement("w:updateFields")
    update.set(qn("w:val"), "true")
    document.settings.element.append(update)


def blocks(lines):
    """Yield the blocks of the Markdown text as pairs (kind, content)."""
    position = 0
    while position < len(lines):
        line = lines[position]
        if not line.strip():
            position += 1
        elif line.startswith("```"):
            end = next(
                (n for n in range(position + 1, len(lines)) if lines[n].startswith("```")),
                len(lines),
            )
            yield "code", lines[position + 1 : end]
            position = end + 1
        elif match := re.match(r"(#{1,6}) +(.*?)\s*#*$", line):
            yield "heading", (len(match[1]), match[2])
            position += 1
        elif match := re.fullmatch(r"!\[(.*?)\]\((.+?)\)\s*", line):
            yield "picture", (match[1], match[2])
            position += 1
        elif line.strip() == "\\newpage":
            yield "page", ()
            position += 1
        else:
            kind, end = run_of(lines, position)
            yield kind, lines[position:end]
            position = end


def run_of(lines, position):
    """Return the kind of the block at `position`, and the position after its last line."""
    line = lines[position]
    if line.startswith("|"):
        kind, goes_on = "table", lambda text: text.startswith("|")
    elif line.startswith(">"):
        kind, goes_on = "quote", lambda text: text.startswith(">")
    elif ITEM.match(line):
        kind, goes_on = "list", lambda text: ITEM.match(text) or text.startswith("  ")
    else:
        kind, goes_on = "text", lambda text: not NEW_BLOCK.match(text)
    end = position + 1
    while end < len(lines) and lines[end].strip() and goes_on(lines[end]):
        end += 1
    return kind, end


def add(document, part, folder):
    """Add a block, a pair of kind and content. Paths of images are relative to `folder`."""
    kind, content = part
    if kind == "heading":
        write_marked_text(document.add_heading("", min(content[0], 9)), content[1])
    elif kind == "text":
        write_marked_text(document.add_paragraph(), " ".join(content))
    elif kind == "quote":
        quote = " ".join(line.lstrip("> ") for line in content)
        write_marked_text(add_styled_paragraph(document, "Intense Quote"), quote)
    elif kind == "code":
        run = add_styled_paragraph(document, "No Spacing").add_run("\n".join(content))
        run.font.name = FONT_OF_CODE
    elif kind == "list":
        add_list(document, content)
    elif kind == "table":
        add_table(document, content)
    elif kind == "page":
        document.add_page_break()
    else:
        picture(document, content, folder)


def add_styled_paragraph(document, name):
    """Add a paragraph in the style `name`, or in the default style if that is missing."""
    names = {style.name for style in document.styles}
    return document.add_paragraph(style=name if name in names else None)


def write_marked_text(paragraph, text):
    """Write a line of Markdown, such as **bold**, into a paragraph."""
    position = 0
    for match in INLINE.finditer(text):
        paragraph.add_run(text[position : match.start()])
        position = match.end()
        if match["words"]:
            hyperlink(paragraph, match["words"], match["address"])
            continue
        run = paragraph.add_run(match["code"] or match["bold"] or match["italic"])
        run.bold, run.italic = bool(match["bold"]) or None, bool(match["italic"]) or None
        if match["code"]:
            run.font.name = FONT_OF_CODE
    paragraph.add_run(text[position:])
    for run in list(paragraph.runs):
        if not run.text and len(run._r) == 0:
            run._r.getparent().remove(run._r)


def hyperlink(paragraph, words, address):
    """Add a link to the paragraph, in XML: python-docx has no method for it."""
    from docx.opc.constants import RELATIONSHIP_TYPE
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn
    from docx.shared import RGBColor

    element = OxmlElement("w:hyperlink")
    id_ = paragraph.part.relate_to(address, RELATIONSHIP_TYPE.HYPERLINK, is_external=True)
    element.set(qn("r:id"), id_)
    run = paragraph.add_run(words)
    run.font.underline = True
    run.font.color.rgb = RGBColor(0x0B, 0x57, 0xD0)
    element.append(run._r)
    paragraph._p.append(element)


def add_list(document, lines):
    """Add a list. An indented line becomes an item of a list inside of the item above."""
    margins, numbers = [], {}
    paragraph = None
    for line in lines:
        match = ITEM.match(line)
        if not match:
            write_marked_text(paragraph, " " + line.strip())
            continue
        margin = len(match[1])
        while margins and margin < margins[-1]:
            numbers.pop(len(margins), None)
            margins.pop()
        if not margins or margin > margins[-1]:
            margins.append(margin)
        level = min(len(margins), DEEPEST)
        numbered = match[2][0].isdigit()
        name = (
            f"List {'Number' if numbered else 'Bullet'}{f' {level}' if level > 1 else ''}"
        )
        paragraph = add_styled_paragraph(document, name)
        write_marked_text(paragraph, match[3])
        if numbered:
            if len(margins) not in numbers:
                numbers[len(margins)] = restart_numbering(document, name)
            number(paragraph, numbers[len(margins)])


def restart_numbering(document, style):
    """Return the id of a numbering that starts at 1; None if the style has no numbers.

    Otherwise Word continues the numbers of the list before.
    """
    names = {each.name for each in document.styles}
    properties = document.styles[style].element.pPr if style in names else None
    if properties is None or properties.numPr is None:
        return None
    numbering = document.part.numbering_part.numbering_definitions._numbering
    of_style = numbering.num_having_numId(properties.numPr.numId.val)
    new_numbering = numbering.add_num(of_style.abstractNumId.val)
    new_numbering.add_lvlOverride(ilvl=0).add_startOverride(1)
    return new_numbering.numId


def number(paragraph, id_):
    """Number the paragraph by the numbering `id_`; if it is None, leave it as it is."""
    if id_ is not None:
        properties = paragraph._p.get_or_add_pPr().get_or_add_numPr()
        properties.get_or_add_ilvl().val = 0
        properties.get_or_add_numId().val = id_


def add_table(document, lines):
    """Add a table of Markdown. A second line of dashes marks a header, and aligns columns."""
    from docx.oxml import OxmlElement

    rows, rule = [cells(line) for line in lines], []
    if len(rows) > 1 and all(re.fullmatch(r":?-+:?", cell) for cell in rows[1]):
        rule = rows.pop(1)
    columns = max(map(len, rows))
    names = {style.name for style in document.styles}
    style = next((n for n in ("Light Grid Accent 1", "Table Grid") if n in names), None)
    table = document.add_table(len(rows), columns, style)
    for row_number, row in enumerate(rows):
        for position, text in enumerate(row):
            paragraph = table.cell(row_number, position).paragraphs[0]
            write_marked_text(paragraph, text)
            if position < len(rule) and rule[position].endswith(":"):
                paragraph.alignment = 2  # right
        # A row that is cut by the end of a page cannot be read.
        table.rows[row_number]._tr.get_or_add_trPr().append(OxmlElement("w:cantSplit"))
    if rule:
        table.rows[0]._tr.get_or_add_trPr().append(OxmlElement("w:tblHeader"))
    document.add_paragraph(style="No Spacing" if "No Spacing" in names else None)


def cells(line):
    """Return the cells of a line of a Markdown table. An escaped "|" belongs to a cell."""
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def picture(document, content, folder):
    """Add an image no wider than the text; `content` is its description and its path."""
    from docx.oxml.ns import qn

    section = document.sections[0]
    room = section.page_width - section.left_margin - section.right_margin
    try:
        shape = document.add_picture(os.path.join(folder, content[1]))
    except Exception as error:  # the library may reject it for any reason
        sys.exit(f"the picture {content[1]} cannot be used: {error!r}")
    if shape.width > room:
        shape.height, shape.width = int(shape.height * room / shape.width), room
    shape._inline.find(qn("wp:docPr")).set("descr", content[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
