"""Open a presentation again and say what is wrong with it.

    python3 check_pptx.py talk.pptx

The exit code is 0 if nothing is wrong. The size of texts is estimated from their letters. To
check how the slides look, render them.
"""

import argparse
import math
import sys
from importlib.util import find_spec

POINT = 12700  # EMU
SMALLEST = 12  # points; smaller letters cannot be read from the back of a room
MAX_WORDS = 100
USUAL = 18  # points, if neither the text nor its layout has a size


def main(arguments):
    """Print what is wrong, and all titles. Return the exit code: 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file")
    options = parser.parse_args(arguments)
    if find_spec("pptx") is None:
        sys.exit("check_pptx.py needs python-pptx: python3 -m pip install python-pptx")
    import pptx

    try:
        show = pptx.Presentation(options.file)
    except Exception as error:  # a damaged file raises many kinds of errors
        sys.exit(f"{options.file} cannot be opened as a presentation: {error}")
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
        sys.exit(f"{options.file} has no slides")
    sys.stdout.write(f"{len(show.slides)} slides:\n")
    for title, number in titles.items():
        sys.stdout.write(f"  {number}  {title}\n")
    return 1 if count else 0


def of_slide(slide, title, titles):
    """Report what is wrong with a slide. `titles` maps the titles before it to slides."""
    if not title:
        yield "it has no title"
    elif title in titles:
        yield f"it has the same title as slide {titles[title]}"
    shapes = [s for s in slide.shapes if s.has_text_frame]
    words = sum(len(s.text_frame.text.split()) for s in shapes)
    if words > MAX_WORDS:
        yield f"{words} words are too many to read while somebody speaks"
    for shape in slide.placeholders:
        if (
            shape.has_text_frame
            and not shape.text_frame.text.strip()
            and shape != slide.shapes.title
        ):
            yield f"the placeholder {shape.name!r} is empty"


def of_shapes(slide, show):
    """Report shapes beyond the edge or over each other, and images without a description."""
    placed = [s for s in slide.shapes if s.width is not None and s.left is not None]
    for at, shape in enumerate(placed):
        if beyond(shape, show):
            yield f"{shape.name!r} lies beyond the edge"
        for other in placed[at + 1 :]:
            if share_of(shape, other) > 0.1:  # of the smaller one
                yield f"{shape.name!r} and {other.name!r} lie over each other"
        if shape.has_text_frame:
            yield from of_text(shape)
        # 13 is the type of images.
        if shape.shape_type == 13 and not shape._element.nvPicPr.cNvPr.get("descr"):
            yield f"the picture {shape.name!r} has no description"


def beyond(shape, show):
    """Return whether the shape is more than two points outside of the slide."""
    slack = 2 * POINT
    return (
        min(shape.left, shape.top) < -slack
        or shape.left + shape.width > show.slide_width + slack
        or shape.top + shape.height > show.slide_height + slack
    )


def share_of(one, other):
    """Return which share of the smaller shape the other shape covers."""
    right = min(one.left + one.width, other.left + other.width)
    bottom = min(one.top + one.height, other.top + other.height)
    width = right - max(one.left, other.left)
    height = bottom - max(one.top, other.top)
    smaller = min(one.width * one.height, other.width * other.height)
    if width <= 0 or height <= 0 or not smaller:
        return 0
    return width * height / smaller


def of_text(shape):
    """Report letters that are too small, and text that is too long by an estimate."""
    room, high = max(shape.width / POINT - 15, 1), 0.0  # points, without margins
    for paragraph in shape.text_frame.paragraphs:
        sizes = [run.font.size.pt for run in paragraph.runs if run.font.size]
        size = max(sizes, default=USUAL)
        if sizes and min(sizes) < SMALLEST:
            yield f"{paragraph.text[:30]!r} has letters of {min(sizes):g} points"
        letters = max(len(paragraph.text), 1)
        # A letter is about 0.48 of its size wide, and a line 1.2 of it high.
        high += math.ceil(letters * size * 0.48 / room) * size * 1.2
    if high > shape.height / POINT * 1.1:
        yield f"the text of {shape.name!r} runs out of its box: cut words"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
