"""Open a presentation again and say what is wrong with it.

    python3 check_pptx.py talk.pptx

Ends with 0 if nothing is. Room is estimated from the number of letters; how it looks has
to be seen: render it for that.
"""

import argparse
import math
import sys
from importlib.util import find_spec

POINT = 12700  # EMU
SMALLEST = 12  # points of letters that can be read from the back
MOST_WORDS = 100
USUAL = 18  # points, where neither the text nor its layout says


def main(arguments):
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file")
    found = parser.parse_args(arguments)
    if find_spec("pptx") is None:
        sys.exit("check_pptx.py needs python-pptx: python3 -m pip install python-pptx")
    import pptx

    try:
        show = pptx.Presentation(found.file)
    except Exception as error:  # a damaged file fails in many ways
        sys.exit(f"{found.file} cannot be opened as a presentation: {error}")
    count, titles = 0, {}
    for number, slide in enumerate(show.slides, start=1):
        title = (
            slide.shapes.title.text_frame.text.strip()
            if slide.shapes.title is not None
            else ""
        )
        problems = [*of_slide(slide, title, titles), *of_shapes(slide, show)]
        titles[title] = number
        count += len(problems)
        for each in problems:
            sys.stdout.write(f"wrong: slide {number}: {each}\n")
    if not len(show.slides):
        sys.exit(f"{found.file} has no slides")
    sys.stdout.write(f"{len(show.slides)} slides:\n")
    for title, number in titles.items():
        sys.stdout.write(f"  {number}  {title}\n")
    return 1 if count else 0


def of_slide(slide, title, titles):
    if not title:
        yield "it has no title"
    elif title in titles:
        yield f"it has the same title as slide {titles[title]}"
    shapes = [s for s in slide.shapes if s.has_text_frame]
    words = sum(len(s.text_frame.text.split()) for s in shapes)
    if words > MOST_WORDS:
        yield f"{words} words are too many to read while somebody speaks"
    for shape in slide.placeholders:
        if (
            shape.has_text_frame
            and not shape.text_frame.text.strip()
            and shape != slide.shapes.title
        ):
            yield f"the placeholder {shape.name!r} is empty"


def of_shapes(slide, show):
    placed = [s for s in slide.shapes if s.width is not None and s.left is not None]
    for at, shape in enumerate(placed):
        if beyond(shape, show):
            yield f"{shape.name!r} lies beyond the edge"
        for other in placed[at + 1 :]:
            if share_of(shape, other) > 0.1:
                yield f"{shape.name!r} and {other.name!r} lie over each other"
        if shape.has_text_frame:
            yield from of_text(shape)
        if shape.shape_type == 13 and not shape._element.nvPicPr.cNvPr.get("descr"):
            yield f"the picture {shape.name!r} has no description"


def beyond(shape, show):
    slack = 2 * POINT
    return (
        min(shape.left, shape.top) < -slack
        or shape.left + shape.width > show.slide_width + slack
        or shape.top + shape.height > show.slide_height + slack
    )


def share_of(one, other):
    """How much of the smaller one the other covers."""
    wide = min(one.left + one.width, other.left + other.width) - max(one.left, other.left)
    high = min(one.top + one.height, other.top + other.height) - max(one.top, other.top)
    least = min(one.width * one.height, other.width * other.height)
    return wide * high / least if wide > 0 and high > 0 and least else 0


def of_text(shape):
    room, high = max(shape.width / POINT - 15, 1), 0.0
    for paragraph in shape.text_frame.paragraphs:
        sizes = [run.font.size.pt for run in paragraph.runs if run.font.size]
        size = max(sizes, default=USUAL)
        if sizes and min(sizes) < SMALLEST:
            yield f"{paragraph.text[:30]!r} has letters of {min(sizes):g} points"
        letters = max(len(paragraph.text), 1)
        high += math.ceil(letters * size * 0.48 / room) * size * 1.2
    if high > shape.height / POINT * 1.1:
        yield f"the text of {shape.name!r} runs out of its box: cut words"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
