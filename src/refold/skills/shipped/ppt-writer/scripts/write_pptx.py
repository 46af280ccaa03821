"""Turn Markdown into a presentation with python-pptx.

    python3 write_pptx.py talk.md talk.pptx [--template own.pptx]

Titles and bullets go in the placeholders of the layout, tables and charts are native.
Where a slide holds too much, nothing is written and one line says which. Checking is
check_pptx.py's.
"""

import argparse
import math
import os
import re
import sys
from importlib.util import find_spec

WIDE = (12192000, 6858000)  # 16:9, in EMU, of which 12,700 are a point
SIZES = (24, 22, 20, 18)  # points, of which the first that fits is taken
INLINE = re.compile(r"\*\*(.+?)\*\*|(?<![*\w])\*([^*\s][^*]*?)\*(?![*\w])|`([^`]+)`")
ITEM = re.compile(r"( *)[-*+] +(.*)")
CHARTS = ("bar", "column", "line", "pie")


def main(arguments):
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument(
        "--template", default="", help="take look and layouts from this one"
    )
    found = parser.parse_args(arguments)
    if find_spec("pptx") is None:
        sys.exit("write_pptx.py needs python-pptx: python3 -m pip install python-pptx")
    try:
        with open(found.source, encoding="utf-8-sig") as file:
            facts, lines = front(file.read().splitlines())
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{found.source} cannot be read: {error}")
    show = begun(found.template)
    folder = os.path.dirname(os.path.abspath(found.source))
    slides = list(slides_of(lines))
    if not slides:
        sys.exit(f"{found.source} has no slide: begin one with ## and its title")
    show.core_properties.title = facts.get("title", slides[0]["title"])
    show.core_properties.author = facts.get("author", "")
    for number, slide in enumerate(slides, start=1):
        add(show, slide, folder, f"slide {number} ({slide['title']})")
    try:
        show.save(found.target)
    except OSError as error:
        sys.exit(f"{found.target} cannot be written: {error}")
    sys.stdout.write(f"wrote {found.target}: {len(slides)} slides\n")
    return 0


def front(lines):
    """The facts between two lines ---, and the other lines."""
    if not lines or lines[0].strip() != "---" or "---" not in lines[1:]:
        return {}, lines
    end = lines.index("---", 1)
    pairs = (line.partition(":") for line in lines[1:end] if ":" in line)
    facts = {key.strip().lower(): value.strip().strip("\"'") for key, _, value in pairs}
    return facts, lines[end + 1 :]


def slides_of(lines):
    """Each slide as a dictionary: level, title, lines, notes."""
    slide, part, fenced = None, "lines", False
    for line in lines:
        fenced ^= line.startswith("```")
        found = None if fenced else re.match(r"(#{1,2}) +(.*?)\s*#*$", line)
        if found:
            if slide:
                yield slide
            slide = {"level": len(found[1]), "title": found[2], "lines": [], "notes": []}
            part = "lines"
        elif line.strip().lower() == "notes:":
            part = "notes"
        elif slide:
            slide[part].append(line)
        elif line.strip():
            sys.exit(f"{line[:40]!r} stands before the first slide: begin with # or ##")
    if slide:
        yield slide


def begun(template):
    """A presentation without slides, as wide as screens are."""
    import pptx

    try:
        show = pptx.Presentation(template or None)
    except Exception as error:  # a damaged file fails in many ways
        sys.exit(f"the template {template} cannot be opened: {error}")
    ids = show.slides._sldIdLst
    for each in list(ids):
        show.part.drop_rel(each.rId)
        ids.remove(each)
    if not template:
        before = show.slide_width, show.slide_height
        show.slide_width, show.slide_height = WIDE
        for page in (show.slide_master, *show.slide_layouts):
            for shape in page.placeholders:
                # Those that take their place from the master move with it.
                if shape._element.spPr.find(".//{*}xfrm") is not None:
                    shape.left = int(shape.left * WIDE[0] / before[0])
                    shape.width = int(shape.width * WIDE[0] / before[0])
                    shape.top = int(shape.top * WIDE[1] / before[1])
                    shape.height = int(shape.height * WIDE[1] / before[1])
    return show


def add(show, slide, folder, called):
    layouts = show.slide_layouts
    made = show.slides.add_slide(
        layouts[0 if slide["level"] == 1 else min(1, len(layouts) - 1)]
    )
    if made.shapes.title is None:
        sys.exit("the first layouts of the template have no title: use another template")
    written(made.shapes.title.text_frame.paragraphs[0], slide["title"])
    body = next((p for p in made.placeholders if p.placeholder_format.idx == 1), None)
    bullets, things = content_of(slide["lines"], called)
    if slide["level"] == 1:
        bullets = [(0, text.strip()) for text in slide["lines"] if text.strip()]
        things = []
    if len(things) > 1:
        sys.exit(f"{called} has {len(things)} tables, charts or pictures: one a slide")
    area = area_of(show, body)
    if things:
        left, right = halved(area) if bullets else (area, area)
        THINGS[things[0][0]](made, things[0][1], right, folder, called)
        area = left
    if body is not None and bullets:
        fill(body, bullets, area, called, plain=slide["level"] == 1)
    elif body is not None:
        body._element.getparent().remove(body._element)
    if notes := "\n".join(slide["notes"]).strip():
        made.notes_slide.notes_text_frame.text = notes


def area_of(show, body):
    if body is not None:
        return body.left, body.top, body.width, body.height
    return (
        int(show.slide_width * 0.06), int(show.slide_height * 0.27),
        int(show.slide_width * 0.88), int(show.slide_height * 0.63),
    )  # fmt: skip


def halved(area):
    left, top, width, height = area
    gap = width // 30
    half = (width - gap) // 2
    return (left, top, half, height), (left + half + gap, top, half, height)


def content_of(lines, called):
    """Bullets with their level, and the tables, charts and pictures."""
    bullets, things, at = [], [], 0
    while at < len(lines):
        line = lines[at]
        end = at + 1
        if found := re.match(r"```chart +(\w+)", line):
            while end < len(lines) and not lines[end].startswith("```"):
                end += 1
            things.append(("chart", (found[1], lines[at + 1 : end])))
            end += 1
        elif line.startswith("|"):
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            things.append(("table", lines[at:end]))
        elif found := re.fullmatch(r"!\[(.*?)\]\((.+?)\)\s*", line):
            things.append(("picture", (found[1], found[2])))
        elif found := ITEM.match(line):
            bullets.append((1 if len(found[1]) > 1 else 0, found[2].strip()))
        elif line.startswith("```"):
            sys.exit(f"{called}: code has no place on a slide; ```chart begins a chart")
        elif line.strip():
            bullets.append((0, line.strip()))
        at = end
    return bullets, things


def fill(body, bullets, area, called, *, plain):
    from pptx.util import Pt

    body.left, body.top, body.width, body.height = area
    words = sum(len(text.split()) for _, text in bullets)
    size = next((s for s in SIZES if lines_high(bullets, area[2], s) <= area[3] / 12700), 0)
    if not size or words > 90 or len(bullets) > 9:
        sys.exit(
            f"{called} holds too much ({len(bullets)} points, {words} words): split it"
        )
    frame = body.text_frame
    for at, (level, text) in enumerate(bullets):
        paragraph = frame.paragraphs[0] if at == 0 else frame.add_paragraph()
        paragraph.level = level
        written(paragraph, text)
        if not plain:
            paragraph.space_after = Pt(6)
            for run in paragraph.runs:
                run.font.size = Pt(size - 2 * level)


def lines_high(bullets, width, size):
    """How many points high the text is, by the usual width of letters."""
    room = width / 12700 - 40
    return sum(
        math.ceil(len(text) * size * 0.5 / room) * size * 1.2 + 6 for _, text in bullets
    )


def written(paragraph, text):
    """Write a line with its marks into a paragraph."""
    at = 0
    for found in INLINE.finditer(text):
        if found.start() > at:
            paragraph.add_run().text = text[at : found.start()]
        run = paragraph.add_run()
        run.text = found[1] or found[2] or found[3]
        run.font.bold, run.font.italic = bool(found[1]) or None, bool(found[2]) or None
        at = found.end()
    if at < len(text):
        paragraph.add_run().text = text[at:]


def add_table(slide, lines, area, _folder, called):
    from pptx.util import Pt

    rows = [[c.strip() for c in line.strip().strip("|").split("|")] for line in lines]
    rows = [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    columns = max(map(len, rows))
    size = 18 if len(rows) <= 7 else 14
    height = int(len(rows) * size * 2.1 * 12700)
    if height > area[3] or columns > 7:
        sys.exit(
            f"{called}: a table of {len(rows)} rows and {columns} columns is too large"
        )
    shape = slide.shapes.add_table(len(rows), columns, area[0], area[1], area[2], height)
    shape.name = "Table"
    for n, row in enumerate(rows):
        for at, text in enumerate(row):
            paragraph = shape.table.cell(n, at).text_frame.paragraphs[0]
            written(paragraph, text)
            for run in paragraph.runs:
                run.font.size = Pt(size)


def add_chart(slide, content, area, _folder, called):
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE, XL_LEGEND_POSITION
    from pptx.util import Pt

    kind, lines = content
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]
    if kind not in CHARTS or len(rows) < 2 or any(len(row) != len(rows[0]) for row in rows):
        sys.exit(
            f"{called}: a chart is one of {', '.join(CHARTS)}, with rows of one length"
        )
    data = CategoryChartData()
    data.categories = [row[0] for row in rows[1:]]
    for at, name in enumerate(rows[0][1:], start=1):
        try:
            data.add_series(name, [float(row[at]) for row in rows[1:]])
        except ValueError as error:
            sys.exit(f"{called}: the chart has something that is no number: {error}")
    types = {
        "bar": XL_CHART_TYPE.BAR_CLUSTERED, "column": XL_CHART_TYPE.COLUMN_CLUSTERED,
        "line": XL_CHART_TYPE.LINE_MARKERS, "pie": XL_CHART_TYPE.PIE,
    }  # fmt: skip
    shape = slide.shapes.add_chart(types[kind], *area, data)
    shape.name = "Chart"
    shape.chart.font.size = Pt(14)
    shape.chart.has_title = False  # the slide's title says it
    if len(rows[0]) > 2 or kind == "pie":
        shape.chart.has_legend = True
        shape.chart.legend.position = XL_LEGEND_POSITION.BOTTOM
        shape.chart.legend.include_in_layout = False


def add_picture(slide, content, area, folder, called):
    left, top, width, height = area
    try:
        shape = slide.shapes.add_picture(os.path.join(folder, content[1]), left, top)
    except Exception as error:  # whatever the library thinks of it
        sys.exit(f"{called}: the picture {content[1]} cannot be used: {error}")
    scale = min(width / shape.width, height / shape.height)
    shape.width, shape.height = int(shape.width * scale), int(shape.height * scale)
    shape.left, shape.top = (
        left + (width - shape.width) // 2,
        top + (height - shape.height) // 2,
    )
    shape._element.nvPicPr.cNvPr.set("descr", content[0])


THINGS = {"table": add_table, "chart": add_chart, "picture": add_picture}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
