"""Turn simple Markdown into a PDF with reportlab.

    python3 write_pdf.py text.md out.pdf [--size a4|letter] [--landscape] [--font File.ttf]

The text may have headings, paragraphs, lists, tables, quotes, code, images and \\newpage. If
something cannot be shown, nothing is written, and one line says what. check_pdf.py checks
the PDF.
"""

import argparse
import html
import os
import re
import sys
from importlib.util import find_spec

FOLDERS = (
    "/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts",
    "/Library/Fonts", "/System/Library/Fonts/Supplemental", "C:/Windows/Fonts",
)  # fmt: skip
# Plain, bold, slanted. The first family with all letters is taken.
FAMILIES = (
    ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSans-Oblique.ttf"),
    ("NotoSans-Regular.ttf", "NotoSans-Bold.ttf", "NotoSans-Italic.ttf"),
    ("LiberationSans-Regular.ttf", "LiberationSans-Bold.ttf", "LiberationSans-Italic.ttf"),
    ("arial.ttf", "arialbd.ttf", "ariali.ttf"),
    ("Arial Unicode.ttf",),
)
NEW_BLOCK = re.compile(r"#{1,6} |\s*([-*+]|\d+[.)]) |```|\||>|!\[|\\newpage\s*$|-{3,}\s*$")
ITEM = re.compile(r"(\s*)([-*+]|\d+[.)]) +(.*)")


def main(arguments):
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--size", choices=("a4", "letter"), default="a4")
    parser.add_argument("--landscape", action="store_true")
    parser.add_argument("--font", default="", help="a TrueType font with all the letters")
    options = parser.parse_args(arguments)
    if find_spec("reportlab") is None:
        sys.exit("write_pdf.py needs reportlab: python3 -m pip install reportlab")
    try:
        with open(options.source, encoding="utf-8-sig") as file:
            facts, lines = front(file.read().splitlines())
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{options.source} cannot be read: {error}")
    if not (parts := list(blocks(lines))):
        sys.exit(f"{options.source} is empty")
    if parts[0][0] == "heading":
        facts.setdefault("title", parts[0][1][1])
    write(parts, facts, options)
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


def blocks(lines):
    """Yield the blocks of the Markdown text as pairs (kind, content)."""
    position = 0
    while position < len(lines):
        line = lines[position]
        if not line.strip():
            position += 1
        elif line.startswith("```"):
            end = until(lines, position + 1, lambda text: text.startswith("```"))
            yield "code", "\n".join(lines[position + 1 : end])
            position = end + 1
        elif one := of_one_line(line):
            yield one
            position += 1
        else:
            kind, end = run_of(lines, position)
            yield kind, lines[position:end]
            position = end


def of_one_line(line):
    """Return kind and content of a block that is this one line; None if it is not one."""
    if match := re.match(r"(#{1,6}) +(.*?)\s*#*$", line):
        return "heading", (len(match[1]), match[2])
    if match := re.fullmatch(r"!\[(.*?)\]\((.+?)\)\s*", line):
        return "picture", (match[1], match[2])
    if line.strip() == "\\newpage":
        return "page", ""
    return ("rule", "") if re.fullmatch(r"-{3,}\s*", line) else None


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
    return kind, until(
        lines, position + 1, lambda text: not text.strip() or not goes_on(text)
    )


def until(lines, position, over):
    return next((n for n in range(position, len(lines)) if over(lines[n])), len(lines))


def inline(text, mono):
    """Return a line of Markdown as reportlab's markup. `mono` is the font for code."""
    pieces = []
    for number, piece in enumerate(re.split(r"`([^`]+)`", text)):
        if number % 2:  # what the group of the pattern has matched
            pieces.append(f'<font face="{mono}">{html.escape(piece)}</font>')
        else:
            pieces.append(marked(html.escape(piece, quote=False)))
    return "".join(pieces)


def marked(text):
    """Return a line with reportlab's markup for links, bold and italic words."""
    text = re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", link, text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    return re.sub(r"(?<![*\w])\*([^*\s][^*]*?)\*(?![*\w])", r"<i>\1</i>", text)


def link(match):
    """Return reportlab markup for a link of Markdown; the match has its text and address."""
    address = match[2].replace('"', "%22")
    return f'<a href="{address}" color="#0b57d0">{match[1]}</a>'


def use_fonts(text, own):
    """Return the font for the text and the font for code; `own` is a font file to use.

    If no font has all characters of the text, the script exits.
    """
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFError, TTFont

    def lacks(font):
        return [c for c in letters if ord(c) not in font.face.charToGlyph]

    letters = sorted({c for c in text if c.isprintable() and c != " "})
    western = all(c.encode("cp1252", "ignore") for c in letters)
    if western and not own:
        return "Helvetica", "Courier"
    lacking = letters
    for files in [[own]] if own else families():
        try:
            fonts = [TTFont(f"body{n}", file) for n, file in enumerate(files)]
        except (TTFError, OSError) as error:
            if not own:
                continue
            sys.exit(f"the font {files[0]} cannot be used: {error}")
        lacking = min(lacking, lacks(fonts[0]), key=len)
        if lacks(fonts[0]):
            continue
        for font in fonts:
            pdfmetrics.registerFont(font)
        names = [f.fontName for f in fonts]
        map_all("body0", *names)
        mono = os.path.join(os.path.dirname(files[0]), "DejaVuSansMono.ttf")
        if os.path.isfile(mono) and not lacks(TTFont("code", mono)):
            pdfmetrics.registerFont(TTFont("code", mono))
            names = ["code"]
        map_all(names[0], names[0])
        return "body0", names[0]
    shown = " ".join(lacking[:8])
    sys.exit(f"no font here has these characters: {shown} (--font File.ttf names one)")


def map_all(face, plain, bold="", italic=""):
    """Register the fonts for bold and italic text of the font `face`."""
    from reportlab.lib.fonts import addMapping

    addMapping(face, 0, 0, plain)
    addMapping(face, 0, 1, italic or plain)
    addMapping(face, 1, 0, bold or plain)
    addMapping(face, 1, 1, bold or plain)


def families():
    """Yield the font files of each installed family."""
    path_by_name = {}
    for top in FOLDERS:
        for folder, _, names in os.walk(os.path.expanduser(top)):
            path_by_name.update({name: os.path.join(folder, name) for name in names})
    for family in FAMILIES:
        if family[0] in path_by_name:
            yield [path_by_name[name] for name in family if name in path_by_name]


def styles_of(body, mono):
    """Return the paragraph styles by name, with these fonts for text and for code."""
    from reportlab.lib.colors import HexColor
    from reportlab.lib.fonts import tt2ps
    from reportlab.lib.styles import ParagraphStyle as Style

    text = Style("text", fontName=body, fontSize=10.5, leading=15, spaceAfter=7)
    made = {"text": text}
    bold = tt2ps(body, 1, 0)
    for level, size in enumerate((20, 14.5, 12, 10.5, 10.5, 10.5), start=1):
        made[f"h{level}"] = Style(
            f"h{level}", text, fontName=bold, fontSize=size, leading=size * 1.25,
            spaceBefore=0 if level == 1 else size * 0.8, spaceAfter=size * 0.4, keepWithNext=1,
        )  # fmt: skip
    made["quote"] = Style("quote", text, leftIndent=12, textColor=HexColor("#444444"))
    made["code"] = Style(
        "code", text, fontName=mono, fontSize=8.5, leading=11.5, backColor=HexColor("#f3f4f6"),
        borderPadding=6, spaceBefore=6, spaceAfter=12,
    )  # fmt: skip
    made["cell"] = Style("cell", text, fontSize=9, leading=12, spaceAfter=0)
    made["head"] = Style("head", made["cell"], fontName=bold)
    for name in ("cell", "head"):
        made[f"{name}-right"] = Style(f"{name}-right", made[name], alignment=2)  # right
    return made


def write(parts, facts, options):
    """Write the PDF with all blocks; author and date, if known, follow a first heading."""
    from reportlab.lib.pagesizes import A4, LETTER, landscape
    from reportlab.platypus.doctemplate import LayoutError

    body, mono = use_fonts(f"{parts}{facts}", options.font)
    styles = styles_of(body, mono)
    size = {"a4": A4, "letter": LETTER}[options.size]
    size = landscape(size) if options.landscape else size
    document = document_of(options.target, size, facts, body)
    folder = os.path.dirname(os.path.abspath(options.source))
    by = " · ".join(facts[key] for key in ("author", "date") if facts.get(key))
    if by and parts[0][0] == "heading":
        parts = [parts[0], ("quote", [by]), *parts[1:]]
    story = [each for part in parts for each in flowables(part, styles, document, folder)]
    try:
        document.build(story)
    except LayoutError as error:
        sys.exit(f"something is larger than a page: {str(error).splitlines()[0][:300]}")
    except OSError as error:
        sys.exit(f"{options.target} cannot be written: {error}")


def document_of(target, size, facts, body):
    """Return an empty document with margins, page numbers, and the title on later pages."""
    from reportlab.lib.units import mm
    from reportlab.platypus import BaseDocTemplate, Frame, PageTemplate

    class Document(BaseDocTemplate):
        """A document that also has an outline of its headings, which PDF readers show."""

        level, count = -1, 0

        def afterFlowable(self, flowable):
            """Add a heading to the outline, at most one level below the entry before it."""
            name = getattr(getattr(flowable, "style", None), "name", "")
            if re.fullmatch("h[1-3]", name):
                self.level = min(int(name[1]) - 1, self.level + 1)
                self.count += 1
                self.canv.bookmarkPage(f"h{self.count}")
                self.canv.addOutlineEntry(
                    flowable.getPlainText(), f"h{self.count}", self.level
                )

    def foot(canvas, document):
        """Write the page number, and the title at the top of all pages but the first."""
        canvas.setFont(body, 8)
        canvas.drawCentredString(size[0] / 2, 12 * mm, str(document.page))
        if document.page > 1 and facts.get("title"):
            canvas.drawString(22 * mm, size[1] - 14 * mm, facts["title"][:100])

    made = Document(
        target, pagesize=size, title=facts.get("title", ""), author=facts.get("author", ""),
        lang=facts.get("lang", "en"), leftMargin=22 * mm, rightMargin=22 * mm,
        topMargin=22 * mm, bottomMargin=22 * mm,
    )  # fmt: skip
    frame = Frame(made.leftMargin, made.bottomMargin, made.width, made.height, 0, 0, 0, 0)
    made.addPageTemplates([PageTemplate("page", [frame], onPage=foot)])
    return made


def flowables(part, styles, document, folder):
    """Return the reportlab objects for one block."""
    from reportlab.lib.colors import HexColor
    from reportlab.platypus import HRFlowable, PageBreak, Spacer, XPreformatted

    kind, content = part
    if kind == "heading":
        return [paragraph(content[1], styles, f"h{content[0]}")]
    if kind == "text":
        return [paragraph(" ".join(content), styles, "text")]
    if kind == "quote":
        quote = " ".join(line.lstrip("> ") for line in content)
        return [paragraph(quote, styles, "quote")]
    if kind == "code":
        width = int(document.width / (styles["code"].fontSize * 0.62))
        return [XPreformatted(html.escape(fold_lines(content, width)), styles["code"])]
    if kind == "list":
        return [list_of(content, styles), Spacer(0, 6)]
    if kind == "table":
        return [table_of(content, styles, document.width), Spacer(0, 10)]
    if kind == "picture":
        return [picture(content, document, folder), Spacer(0, 8)]
    line = HRFlowable(width="100%", color=HexColor("#bbbbbb"), spaceBefore=4, spaceAfter=8)
    return [PageBreak() if kind == "page" else line]


def paragraph(text, styles, name):
    """Return a reportlab paragraph of a line of Markdown, in the style of this name."""
    from reportlab.platypus import Paragraph

    return Paragraph(inline(text, styles["code"].fontName), styles[name])


def fold_lines(code, width):
    """Return the code with long lines broken at `width`; no text is cut off."""
    lines = code.expandtabs(4).splitlines()
    return "\n".join(
        line[position : position + width]
        for line in lines
        for position in range(0, max(len(line), 1), width)
    )


def list_of(lines, styles):
    """Return a reportlab list. Indented lines become lists inside of its items."""
    from reportlab.platypus import ListFlowable, Spacer

    items = []  # the text of each item, and the lines of the list inside of it
    first = ITEM.match(lines[0])
    margin, is_numbered = len(first[1]), first[2][0].isdigit()
    for line in lines:
        match = ITEM.match(line)
        if match and len(match[1]) <= margin:
            items.append([match[3], []])
            continue
        inner_lines = items[-1][1]
        if match or inner_lines:
            inner_lines.append(line)
        else:  # the text continues
            items[-1][0] += " " + line.strip()
    gap = Spacer(0, 7)
    flowables_by_item = []
    for text, inner_lines in items:
        flowables_of_item = [paragraph(text, styles, "text")]
        if inner_lines:
            flowables_of_item += [list_of(inner_lines, styles), gap]
        flowables_by_item.append(flowables_of_item)
    kind = {"bulletType": "bullet", "start": "•"}
    if is_numbered:
        kind = {"bulletType": "1", "bulletFormat": "%s."}
    return ListFlowable(flowables_by_item, leftIndent=18, bulletFontSize=10.5, **kind)


def table_of(lines, styles, width):
    """Return a table of Markdown. A second line of dashes marks a header and alignment."""
    from reportlab.lib.colors import HexColor
    from reportlab.platypus import LongTable

    rows, rule = [cells(line) for line in lines], []
    if len(rows) > 1 and all(re.fullmatch(r":?-+:?", cell) for cell in rows[1]):
        rule = rows.pop(1)
    columns = max(map(len, rows))
    alignments = ["-right" if mark.endswith(":") else "" for mark in rule]
    alignments += [""] * (columns - len(rule))
    paragraphs = []
    for row_number, row in enumerate(rows):
        style = "head" if rule and row_number == 0 else "cell"
        texts = [*row, *[""] * (columns - len(row))]
        paragraphs.append([
            paragraph(text, styles, style + alignment)
            for text, alignment in zip(texts, alignments, strict=False)
        ])  # fmt: skip
    column_widths = widths(rows, columns, width)
    table = LongTable(paragraphs, column_widths, repeatRows=1 if rule else 0)
    table.setStyle([
        ("LINEBELOW", (0, 0), (-1, -1), 0.4, HexColor("#c7ccd1")),
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
        *([("BACKGROUND", (0, 0), (-1, 0), HexColor("#eef1f4"))] if rule else []),
    ])  # fmt: skip
    return table


def cells(line):
    """Return the cells of a line of a Markdown table. An escaped "|" belongs to a cell."""
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def widths(rows, columns, width):
    """Return the width of each column by its texts, which add up to `width`.

    If there is room, no word has to break.
    """
    texts = [
        [row[position] for row in rows if position < len(row)]
        for position in range(columns)
    ]
    # Estimates in points: a letter of a long word, or of a text, and the space around.
    least, wanted = [], []
    for column in texts:
        longest_word = max(
            (len(word) for text in column for word in text.split()), default=1
        )
        least.append(longest_word * 5.2 + 14)
        wanted.append(max(map(len, column), default=1) * 4.8 + 14)
    if sum(wanted) <= width:  # no text has to break
        return [width * each / sum(wanted) for each in wanted]
    if sum(least) > width:  # some words have to break
        return [width * each / sum(least) for each in least]
    lacking = [max(w - n, 1) for w, n in zip(wanted, least, strict=True)]
    share = (width - sum(least)) / sum(lacking)
    return [n + share * each for n, each in zip(least, lacking, strict=True)]


def picture(content, document, folder):
    """Return an image, made smaller if it does not fit; `content` has its path second."""
    from reportlab.platypus import Image

    path = os.path.join(folder, content[1])
    try:
        image = Image(path)
        high = document.height * 0.9
        scale = min(1, document.width / image.imageWidth, high / image.imageHeight)
    except Exception as error:  # whatever the picture library thinks of it
        sys.exit(f"the picture {content[1]} cannot be used: {error}")
    image.drawWidth, image.drawHeight = image.imageWidth * scale, image.imageHeight * scale
    return image


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
