"""Open a PDF again and say what is wrong with it.

    python3 check_pdf.py out.pdf [--pages N] [--contains TEXT]...

The exit code is 0 if nothing is wrong. To check how it looks, render it.
"""

import argparse
import sys
from importlib.util import find_spec

LOST = "\ufffd\u25a0\u25a1"  # the sign for a letter that no font has


def main(arguments):
    """Print what is wrong with a PDF. Return the exit code: 1 if something is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--pages", type=int, default=0, help="so many are expected")
    parser.add_argument("--contains", action="append", default=[], metavar="TEXT")
    options = parser.parse_args(arguments)
    if find_spec("pypdf") is None:
        sys.exit("check_pdf.py needs pypdf: python3 -m pip install pypdf")
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        reader = PdfReader(options.file)
        if reader.is_encrypted:
            sys.exit(f"{options.file} is encrypted")
        texts = [page.extract_text() for page in reader.pages]
    except (OSError, PyPdfError) as error:
        sys.exit(f"{options.file} cannot be opened as a PDF: {error}")
    wrong = list(problems(reader, texts, options))
    for each in wrong:
        sys.stdout.write(f"wrong: {each}\n")
    words = sum(len(text.split()) for text in texts)
    title = (reader.metadata.title if reader.metadata else "") or "none"
    sys.stdout.write(f"{len(texts)} pages, {words} words, title: {title}\n")
    return 1 if wrong else 0


def problems(reader, texts, options):
    """Report what is wrong with a PDF. `texts` are the texts of its pages, in order."""
    if options.pages and len(texts) != options.pages:
        yield f"it has {len(texts)} pages, and {options.pages} were expected"
    if not (reader.metadata and reader.metadata.title):
        yield "it has no title: add `title:` at the top of the text"
    sizes = set()
    for number, (page, text) in enumerate(zip(reader.pages, texts, strict=True), start=1):
        sizes.add((round(float(page.mediabox.width)), round(float(page.mediabox.height))))
        # A page number alone is no content.
        if len(text.split()) < 3 and not has_picture(page):
            yield f"page {number} is blank"
        if any(letter in text for letter in LOST):
            yield f"page {number} has letters that its font does not have"
    if len(sizes) > 1:
        yield f"its pages have {len(sizes)} sizes"
    whole = " ".join(" ".join(texts).split())
    for text in options.contains:
        if " ".join(text.split()) not in whole:
            yield f"the words {text!r} are not in it"


def has_picture(page):
    """Return whether the page has resources of the kind that contains images."""
    resources = page.get("/Resources")
    return bool(resources and resources.get_object().get("/XObject"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
