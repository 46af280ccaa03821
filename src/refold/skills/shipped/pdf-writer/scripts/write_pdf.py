"""Turn simple Markdown into a PDF with reportlab.

    python3 write_pdf.py text.md out.pdf [--size a4|letter] [--landscape] [--font File.ttf]

Reads headings, paragraphs, lists, tables, quotes, code, pictures and \\newpage. Writes
nothing where something cannot be shown; then it says what. Checking is check_pdf.py's.
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
    found = parser.parse_args(arguments)
    if find_spec("reportlab") is None:
        sys.exit("write_pdf.py needs reportlab: python3 -m pip install reportlab")
    try:
        with open(found.source, encoding="utf-8-sig") as file:
            facts, lines = front(file.read().splitlines())
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{found.source} cannot be read: {error}")
    if not (parts := list(blocks(lines))):
        sys.exit(f"{found.source} is empty")
    if parts[0][0] == "heading":
        facts.setdefault("title", parts[0][1][1])
    write(parts, facts, found)
    sys.stdout.write(f"wrote {found.target}\n")
    return 0


def front(lines):
    """The facts between two lines ---, and the other lines."""
    if not lines or lines[0].strip() != "---" or "---" not in lines[1:]:
        return {}, lines
    end = lines.index("---", 1)
    pairs = (line.partition(":") for line in lines[1:end] if ":" in line)
    facts = {key.strip().lower(): value.strip().strip("\"'") for key, _, value in pairs}
    return facts, lines[end + 1 :]


def blocks(lines):
    """The text as pairs (kind, content)."""
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif line.startswith("```"):
            end = until(lines, at + 1, lambda text: text.startswith("```"))
            yield "code", "\n".join(lines[at + 1 : end])
            at = end + 1
        elif one := of_one_line(line):
            yield one
            at += 1
        else:
            kind, end = run_of(lines, at)
            yield kind, lines[at:end]
            at = end


def of_one_line(line):
    if found := re.match(r"(#{1,6}) +(.*?)\s*#*$", line):
        return "heading", (len(found[1]), found[2])
    if found := re.fullmatch(r"!\[(.*?)\]\((.+?)\)\s*", line):
        return "picture", (found[1], found[2])
    if line.strip() == "\\newpage":
        return "page", ""
    return ("rule", "") if re.fullmatch(r"-{3,}\s*", line) else None


def run_of(lines, at):
    """Which kind of lines begins here, and where it ends."""
    line = lines[at]
    if line.startswith("|"):
        kind, goes_on = "table", lambda text: text.startswith("|")
    elif line.startswith(">"):
        kind, goes_on = "quote", lambda text: text.startswith(">")
    elif ITEM.match(line):
        kind, goes_on = "list", lambda text: ITEM.match(text) or text.startswith("  ")
    else:
        kind, goes_on = "text", lambda text: not NEW_BLOCK.match(text)
    return kind, until(lines, at + 1, lambda text: not text.strip() or not goes_on(text))


def until(lines, at, over):
    return next((n for n in range(at, len(lines)) if over(lines[n])), len(lines))


def inline(text, mono):
    """The marks in a line as reportlab writes them; `mono` is the font of code."""
    return "".join(
        f'<font face="{mono}">{html.escape(piece[1:-1])}</font>'
        if piece.startswith("`") and len(piece) > 1
        else marked(html.escape(piece, quote=False))
        for piece in re.split(r"(`[^`]+`)", text)
    )


def marked(text):
    text = re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", link, text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    return re.sub(r"(?<![*\w])\*([^*\s][^*]*?)\*(?![*\w])", r"<i>\1</i>", text)


def link(found):
    address = found[2].replace('"', "%22")
    return f'<a href="{address}" color="#0b57d0">{found[1]}</a>'


def use_fonts(text, own):
    """The names of a font for text and one for code. Says which letters no font has."""
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
    """Say which font is used where a text in `face` is bold or slanted."""
    from reportlab.lib.fonts import addMapping

    bold, italic = bold or plain, italic or plain
    for style, name in enumerate((plain, italic, bold, bold)):
        addMapping(face, style >> 1, style & 1, name)


def families():
    """The files of each family that is here."""
    there = {}
    for top in FOLDERS:
        for folder, _, names in os.walk(os.path.expanduser(top)):
            there.update({name: os.path.join(folder, name) for name in names})
    for family in FAMILIES:
        if family[0] in there:
            yield [there[name] for name in family if name in there]


def styles_of(body, mono):
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
        made[f"{name}-right"] = Style(f"{name}-right", made[name], alignment=2)
    return made


def write(parts, facts, found):
    from reportlab.lib.pagesizes import A4, LETTER, landscape
    from reportlab.platypus.doctemplate import LayoutError

    body, mono = use_fonts(f"{parts}{facts}", found.font)
    styles = styles_of(body, mono)
    size = {"a4": A4, "letter": LETTER}[found.size]
    size = landscape(size) if found.landscape else size
    document = document_of(found.target, size, facts, body)
    folder = os.path.dirname(os.path.abspath(found.source))
    by = " · ".join(facts[key] for key in ("author", "date") if facts.get(key))
    if by and parts[0][0] == "heading":
        parts = [parts[0], ("quote", [by]), *parts[1:]]
    story = [each for part in parts for each in flowables(part, styles, document, folder)]
    try:
        document.build(story)
    except LayoutError as error:
        sys.exit(f"something is larger than a page: {str(error).splitlines()[0][:300]}")
    except OSError as error:
        sys.exit(f"{found.target} cannot be written: {error}")


def document_of(target, size, facts, body):
    from reportlab.lib.units import mm
    from reportlab.platypus import BaseDocTemplate, Frame, PageTemplate

    class Document(BaseDocTemplate):
        """Keeps an outline of the headings, which readers show at the side."""

        level, count = -1, 0

        def afterFlowable(self, flowable):
            name = getattr(getattr(flowable, "style", None), "name", "")
            if re.fullmatch("h[1-3]", name):
                self.level = min(int(name[1]) - 1, self.level + 1)
                self.count += 1
                self.canv.bookmarkPage(f"h{self.count}")
                self.canv.addOutlineEntry(
                    flowable.getPlainText(), f"h{self.count}", self.level
                )

    def foot(canvas, document):
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
    """What reportlab puts on pages for one block."""
    from reportlab.lib.colors import HexColor
    from reportlab.platypus import HRFlowable, PageBreak, Spacer, XPreformatted

    kind, content = part
    if kind == "heading":
        return [paragraph(content[1], styles, f"h{content[0]}")]
    if kind == "text":
        return [paragraph(" ".join(content), styles, "text")]
    if kind == "quote":
        said = " ".join(line.lstrip("> ") for line in content)
        return [paragraph(said, styles, "quote")]
    if kind == "code":
        width = int(document.width / (styles["code"].fontSize * 0.62))
        return [XPreformatted(html.escape(folded(content, width)), styles["code"])]
    if kind == "list":
        return [list_of(content, styles), Spacer(0, 6)]
    if kind == "table":
        return [table_of(content, styles, document.width), Spacer(0, 10)]
    if kind == "picture":
        return [picture(content, document, folder), Spacer(0, 8)]
    line = HRFlowable(width="100%", color=HexColor("#bbbbbb"), spaceBefore=4, spaceAfter=8)
    return [PageBreak() if kind == "page" else line]


def paragraph(text, styles, name):
    from reportlab.platypus import Paragraph

    return Paragraph(inline(text, styles["code"].fontName), styles[name])


def folded(code, width):
    """Lines that are too long go on in the next; nothing is cut off."""
    lines = code.expandtabs(4).splitlines()
    return "\n".join(
        line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)
    )


def list_of(lines, styles):
    """A list; lines that stand deeper are lists in its items."""
    from reportlab.platypus import ListFlowable, Spacer

    items, first = [], ITEM.match(lines[0])
    margin, numbered = len(first[1]), first[2][0].isdigit()
    for line in lines:
        found = ITEM.match(line)
        if found and len(found[1]) <= margin:
            items.append([found[3], []])
        elif found or items[-1][1]:
            items[-1][1].append(line)
        else:
            items[-1][0] += " " + line.strip()
    gap = Spacer(0, 7)
    made = [
        [paragraph(text, styles, "text"), *([list_of(more, styles), gap] if more else [])]
        for text, more in items
    ]
    kind = {"bulletType": "bullet", "start": "•"}
    if numbered:
        kind = {"bulletType": "1", "bulletFormat": "%s."}
    return ListFlowable(made, leftIndent=18, bulletFontSize=10.5, **kind)


def table_of(lines, styles, width):
    from reportlab.lib.colors import HexColor
    from reportlab.platypus import LongTable

    rows, rule = [cells(line) for line in lines], []
    if len(rows) > 1 and all(re.fullmatch(r":?-+:?", cell) for cell in rows[1]):
        rule = rows.pop(1)
    columns = max(map(len, rows))
    ends = ["-right" if mark.endswith(":") else "" for mark in rule] + [""] * columns
    made = [
        [
            paragraph(text, styles, ("head" if rule and not n else "cell") + ends[at])
            for at, text in enumerate([*row, *[""] * (columns - len(row))])
        ]
        for n, row in enumerate(rows)
    ]
    table = LongTable(made, widths(rows, columns, width), repeatRows=1 if rule else 0)
    table.setStyle([
        ("LINEBELOW", (0, 0), (-1, -1), 0.4, HexColor("#c7ccd1")),
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
        *([("BACKGROUND", (0, 0), (-1, 0), HexColor("#eef1f4"))] if rule else []),
    ])  # fmt: skip
    return table


def cells(line):
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def widths(rows, columns, width):
    """Room by what stands in a column; none gets so little that a word has to break."""
    texts = [[row[at] for row in rows if at < len(row)] for at in range(columns)]
    least = [
        max((len(word) for text in c for word in text.split()), default=1) for c in texts
    ]
    least = [letters * 5.2 + 14 for letters in least]
    wanted = [max(map(len, column), default=1) * 4.8 + 14 for column in texts]
    for sizes in (wanted, least):
        if (sum(sizes) > width) == (sizes is least):
            return [width * each / sum(sizes) for each in sizes]
    more = [max(w - n, 1) for w, n in zip(wanted, least, strict=True)]
    spare = (width - sum(least)) / sum(more)
    return [n + spare * m for n, m in zip(least, more, strict=True)]


def picture(content, document, folder):
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
