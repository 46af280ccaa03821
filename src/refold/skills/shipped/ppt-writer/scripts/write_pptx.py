"""Turn Markdown into a presentation with python-pptx.

    python3 write_pptx.py talk.md talk.pptx [--template own.pptx]

Titles and bullets are written into placeholders of the layout; tables and charts are native
objects. If a slide holds too much, nothing is written, and one line says which.
check_pptx.py checks the presentation.
"""

import argparse
import math
import os
import re
import sys
from importlib.util import find_spec

WIDE = (12192000, 6858000)  # 16:9, in EMU, of which 12,700 are a point
SIZES = (24, 22, 20, 18)  # points, of which the first that fits is taken
CELL_BORDER = re.compile(r"(?<!\\)\|")
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
    options = parser.parse_args(arguments)
    if find_spec("pptx") is None:
        sys.exit("write_pptx.py needs python-pptx: python3 -m pip install python-pptx")
    try:
        with open(options.source, encoding="utf-8-sig") as file:
            facts, lines = split_front_matter(file.read().splitlines())
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{options.source} cannot be read: {error}")
    show = empty_presentation(options.template)
    folder = os.path.dirname(os.path.abspath(options.source))
    slides = list(slides_of(lines))
    if not slides:
        sys.exit(f"{options.source} has no slide: begin one with ## and its title")
    show.core_properties.title = facts.get("title", slides[0]["title"])
    show.core_properties.author = facts.get("author", "")
    for number, slide in enumerate(slides, start=1):
        add_slide_to(show, slide, folder, f"slide {number} ({slide['title']})")
    try:
        show.save(options.target)
    except OSError as error:
        sys.exit(f"{options.target} cannot be written: {error}")
    sys.stdout.write(f"wrote {options.target}: {len(slides)} slides\n")
    return 0


def split_front_matter(lines):
    """Return the fields between two lines --- at the beginning, and the other lines."""
    if not lines or lines[0].strip() != "---" or "---" not in lines[1:]:
        return {}, lines
    end = lines.index("---", 1)
    pairs = (line.partition(":") for line in lines[1:end] if ":" in line)
    facts = {key.strip().lower(): value.strip().strip("\"'") for key, _, value in pairs}
    return facts, lines[end + 1 :]


def slides_of(lines):
    """Yield each slide as a dictionary: level, title, lines, notes."""
    slide, part, fenced = None, "lines", False
    for line in lines:
        fenced ^= line.startswith("```")
        match = None if fenced else re.match(r"(#{1,2}) +(.*?)\s*#*$", line)
        if match:
            if slide:
                yield slide
            slide = {"level": len(match[1]), "title": match[2], "lines": [], "notes": []}
            part = "lines"
        elif line.strip().lower() == "notes:":
            part = "notes"
        elif slide:
            slide[part].append(line)
        elif line.strip():
            sys.exit(f"{line[:40]!r} stands before the first slide: begin with # or ##")
    if slide:
        yield slide


def empty_presentation(template):
    """Return a presentation without slides.

    Without a template, it is as wide as screens.
    """
    import pptx

    try:
        show = pptx.Presentation(template or None)
    except Exception as error:  # a damaged file raises many kinds of errors
        sys.exit(f"the template {template} cannot be opened: {error}")
    slide_ids = show.slides._sldIdLst
    for slide_id in list(slide_ids):
        show.part.drop_rel(slide_id.rId)
        slide_ids.remove(slide_id)
    if not template:
        old_width, old_height = show.slide_width, show.slide_height
        show.slide_width, show.slide_height = width, height = WIDE
        for page in (show.slide_master, *show.slide_layouts):
            for shape in page.placeholders:
                # Placeholders that inherit their place from the master move with it.
                if shape._element.spPr.find(".//{*}xfrm") is not None:
                    shape.left = int(shape.left * width / old_width)
                    shape.width = int(shape.width * width / old_width)
                    shape.top = int(shape.top * height / old_height)
                    shape.height = int(shape.height * height / old_height)
    return show


def add_slide_to(show, slide, folder, title):
    """Add a slide to the presentation. `title` names the slide in messages."""
    layouts = show.slide_layouts
    new_slide = show.slides.add_slide(
        layouts[0 if slide["level"] == 1 else min(1, len(layouts) - 1)]
    )
    if new_slide.shapes.title is None:
        sys.exit("the first layouts of the template have no title: use another template")
    write_marked_text(new_slide.shapes.title.text_frame.paragraphs[0], slide["title"])
    body = next((p for p in new_slide.placeholders if p.placeholder_format.idx == 1), None)
    bullets, things = content_of(slide["lines"], title)
    if slide["level"] == 1:
        bullets = [(0, text.strip()) for text in slide["lines"] if text.strip()]
        things = []
    if len(things) > 1:
        sys.exit(f"{title} has {len(things)} tables, charts or pictures: one a slide")
    area = area_of(show, body)
    if things:
        left, right = halve(area) if bullets else (area, area)
        ADD_FUNCTIONS[things[0][0]](new_slide, things[0][1], right, folder, title)
        area = left
    if body is not None and bullets:
        fill(body, bullets, area, title, plain=slide["level"] == 1)
    elif body is not None:
        body._element.getparent().remove(body._element)
    if notes := "\n".join(slide["notes"]).strip():
        new_slide.notes_slide.notes_text_frame.text = notes


def area_of(show, body):
    """Return left, top, width and height of the body.

    If `body` is None, return those of most of the slide.
    """
    if body is not None:
        return body.left, body.top, body.width, body.height
    return (
        int(show.slide_width * 0.06), int(show.slide_height * 0.27),
        int(show.slide_width * 0.88), int(show.slide_height * 0.63),
    )  # fmt: skip


def halve(area):
    """Return the left half and the right half of an area, with a gap between them."""
    left, top, width, height = area
    gap = width // 30
    half = (width - gap) // 2
    return (left, top, half, height), (left + half + gap, top, half, height)


def content_of(lines, title):
    """Return a list of bullets as (level, text), and one of objects as (kind, content).

    An object is a table, a chart or an image.
    """
    bullets, things, at = [], [], 0
    while at < len(lines):
        line = lines[at]
        end = at + 1
        if match := re.match(r"```chart +(\w+)", line):
            while end < len(lines) and not lines[end].startswith("```"):
                end += 1
            things.append(("chart", (match[1], lines[at + 1 : end])))
            end += 1
        elif line.startswith("|"):
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            things.append(("table", lines[at:end]))
        elif match := re.fullmatch(r"!\[(.*?)\]\((.+?)\)\s*", line):
            things.append(("picture", (match[1], match[2])))
        elif match := ITEM.match(line):
            bullets.append((1 if len(match[1]) > 1 else 0, match[2].strip()))
        elif line.startswith("```"):
            sys.exit(f"{title}: code has no place on a slide; ```chart begins a chart")
        elif line.strip():
            bullets.append((0, line.strip()))
        at = end
    return bullets, things


def fill(body, bullets, area, title, *, plain):
    """Write bullets into a slide's body. With `plain`, its text size stays unchanged.

    If they do not fit into `area`, the script exits.
    """
    from pptx.util import Pt

    body.left, body.top, body.width, body.height = area
    words = sum(len(text.split()) for _, text in bullets)
    _, _, width, height = area
    points_high = height / 12700  # EMU, 12700 to a point
    fitting = (size for size in SIZES if lines_high(bullets, width, size) <= points_high)
    size = next(fitting, 0)
    if not size or words > 90 or len(bullets) > 9:
        sys.exit(f"{title} holds too much ({len(bullets)} points, {words} words): split it")
    frame = body.text_frame
    for at, (level, text) in enumerate(bullets):
        paragraph = frame.paragraphs[0] if at == 0 else frame.add_paragraph()
        paragraph.level = level
        write_marked_text(paragraph, text)
        if not plain:
            paragraph.space_after = Pt(6)
            for run in paragraph.runs:
                run.font.size = Pt(size - 2 * level)


def lines_high(bullets, width, size):
    """Return the estimated height of the text in points, for a body of this width."""
    room = width / 12700 - 40
    return sum(
        math.ceil(len(text) * size * 0.5 / room) * size * 1.2 + 6 for _, text in bullets
    )


def write_marked_text(paragraph, text):
    """Write a line of Markdown, such as **bold**, into a paragraph."""
    at = 0
    for match in INLINE.finditer(text):
        if match.start() > at:
            paragraph.add_run().text = text[at : match.start()]
        run = paragraph.add_run()
        run.text = match[1] or match[2] or match[3]
        run.font.bold, run.font.italic = bool(match[1]) or None, bool(match[2]) or None
        at = match.end()
    if at < len(text):
        paragraph.add_run().text = text[at:]


def add_table(slide, lines, area, _folder, title):
    """Add a table of Markdown in `area`: left, top, width, height. Exit if it is too large."""
    from pptx.util import Pt

    rows = [
        [
            cell.strip().replace(r"\|", "|")
            for cell in CELL_BORDER.split(line.strip().strip("|"))
        ]
        for line in lines
    ]
    rows = [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    columns = max(map(len, rows))
    size = 18 if len(rows) <= 7 else 14
    height = int(len(rows) * size * 2.1 * 12700)  # EMU, 12700 to a point
    if height > area[3] or columns > 7:
        sys.exit(f"{title}: a table of {len(rows)} rows and {columns} columns is too large")
    shape = slide.shapes.add_table(len(rows), columns, area[0], area[1], area[2], height)
    shape.name = "Table"
    for n, row in enumerate(rows):
        for at, text in enumerate(row):
            paragraph = shape.table.cell(n, at).text_frame.paragraphs[0]
            write_marked_text(paragraph, text)
            for run in paragraph.runs:
                run.font.size = Pt(size)


def add_chart(slide, content, area, _folder, title):
    """Add a chart. `content` is its kind, and lines of CSV: names of series, then values."""
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE, XL_LEGEND_POSITION
    from pptx.util import Pt

    kind, lines = content
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]
    if kind not in CHARTS or len(rows) < 2 or any(len(row) != len(rows[0]) for row in rows):
        sys.exit(f"{title}: a chart is one of {', '.join(CHARTS)}, with rows of one length")
    data = CategoryChartData()
    data.categories = [row[0] for row in rows[1:]]
    for at, name in enumerate(rows[0][1:], start=1):
        try:
            data.add_series(name, [float(row[at]) for row in rows[1:]])
        except ValueError as error:
            sys.exit(f"{title}: the chart has something that is no number: {error}")
    types = {
        "bar": XL_CHART_TYPE.BAR_CLUSTERED, "column": XL_CHART_TYPE.COLUMN_CLUSTERED,
        "line": XL_CHART_TYPE.LINE_MARKERS, "pie": XL_CHART_TYPE.PIE,
    }  # fmt: skip
    shape = slide.shapes.add_chart(types[kind], *area, data)
    shape.name = "Chart"
    shape.chart.font.size = Pt(14)
    shape.chart.has_title = False  # the title of the slide has it already
    if len(rows[0]) > 2 or kind == "pie":
        shape.chart.has_legend = True
        shape.chart.legend.position = XL_LEGEND_POSITION.BOTTOM
        shape.chart.legend.include_in_layout = False


def add_picture(slide, content, area, folder, title):
    """Add an image as large as fits, in the middle of `area`: left, top, width, height."""
    left, top, width, height = area
    try:
        shape = slide.shapes.add_picture(os.path.join(folder, content[1]), left, top)
    except Exception as error:  # the library may reject it for any reason
        sys.exit(f"{title}: the picture {content[1]} cannot be used: {error}")
    scale = min(width / shape.width, height / shape.height)
    shape.width, shape.height = int(shape.width * scale), int(shape.height * scale)
    shape.left, shape.top = (
        left + (width - shape.width) // 2,
        top + (height - shape.height) // 2,
    )
    shape._element.nvPicPr.cNvPr.set("descr", content[0])


ADD_FUNCTIONS = {"table": add_table, "chart": add_chart, "picture": add_picture}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
