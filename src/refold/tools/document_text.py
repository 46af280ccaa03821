"""Converts notebooks, PDF and HTML to text, and describes other files that are not text.

PDF and HTML are parsed in separate processes with limits: some files of a few kilobytes take
gigabytes, or crash a library.
"""

import sys
from importlib.util import find_spec
from typing import Any, cast

import msgspec

from refold.errors import ToolFailed
from refold.tools.bounded_process import (
    CannotRead,
    LimitExceeded,
    exit_unreadable,
    run_bounded,
)

_MAX_TEXT_CHARS = 10_000_000

_BINARY_KINDS = (
    (b"\x7fELF", "a program"),
    (b"PK\x03\x04", "a zip archive or an office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"SQLite format 3\0", "an SQLite database"),
)


def binary_kind(content: bytes) -> str:
    return next(
        (kind for start, kind in _BINARY_KINDS if content.startswith(start)), "binary data"
    )


def pdf_text(content: bytes, name: str) -> str:
    """Return the text of a PDF, page by page. Raises `ToolFailed` if it cannot be read."""
    try:
        import pypdfium2  # pyright: ignore[reportMissingTypeStubs] - it has none
    except ImportError as error:
        raise ToolFailed(
            f"{name} is a PDF. Reading those needs: pip install 'refold[docs]'"
        ) from error
    del pypdfium2  # `print_pdf` imports it again, in another process
    try:
        return run_bounded(print_pdf, content, name)
    except LimitExceeded as error:
        raise ToolFailed(
            f"{name} is a PDF that takes {error} to read. Take out single pages with another "
            "program, and read those."
        ) from error
    except CannotRead as error:
        raise ToolFailed(
            f"{name} is a PDF that cannot be opened: {str(error).rstrip('.')}."
        ) from error


def html_text(text: str, url: str) -> str:
    """Convert a page to Markdown. Parts that a browser hides are left out.

    `url` is the address of the page, which makes its links absolute.
    """
    if find_spec("html_to_markdown") is None:
        raise ToolFailed(f"{url} is HTML. Reading that needs: pip install 'refold[web]'")
    try:
        return run_bounded(print_html, text.encode(errors="replace"), url)
    except (LimitExceeded, CannotRead) as error:
        raise ToolFailed(
            f"{url} is HTML that cannot be made Markdown: it takes {error} to read."
        ) from error


def print_html(url: str) -> None:
    """Print the HTML on standard input as Markdown. This runs in a process with limits."""
    import html_to_markdown

    options = html_to_markdown.ConversionOptions(
        base_url=url, inline_data_media="alt_text_only", compact_tables=True
    )
    page = html_to_markdown.convert(sys.stdin.buffer.read().decode(), options)
    text = page.content or ""  # many links that were made absolute can make it long
    sys.stdout.buffer.write(text[:_MAX_TEXT_CHARS].encode(errors="replace"))
    if len(text) > _MAX_TEXT_CHARS:
        note = f"\n(Only the first {_MAX_TEXT_CHARS:,} characters were read.)"
        sys.stdout.buffer.write(note.encode())


def print_pdf(_name: str) -> None:
    """Print the text of the PDF on standard input. This runs in a process with limits."""
    import pypdfium2  # pyright: ignore[reportMissingTypeStubs] - it has none

    output = sys.stdout.buffer
    try:
        document = pypdfium2.PdfDocument(sys.stdin.buffer.read())
    except pypdfium2.PdfiumError as error:
        exit_unreadable(str(error))
        return
    chars_left = _MAX_TEXT_CHARS
    for number in range(len(document)):
        page = ("\n" if number else "") + _page(document, number)
        output.write(page[:chars_left].encode(errors="replace"))
        chars_left -= len(page)
        if chars_left <= 0:
            output.write(
                f"\n(Only the first {_MAX_TEXT_CHARS:,} characters were read.)".encode()
            )
            break


def notebook_text(content: bytes) -> str | None:
    """Return the cells of a Jupyter notebook with their outputs as text, or None for another
    file.
    """
    try:
        book = msgspec.json.decode(content)
        cells = [_cell(n, cell) for n, cell in enumerate(book["cells"], 1)]
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ):
        return None
    return "\n".join(cells)


def _page(document: Any, number: int) -> str:
    """Return the text of a page with a heading. `number` counts from 0."""
    page = document[number]
    text_page = page.get_textpage()
    try:
        text = cast("str", text_page.get_text_bounded())
    finally:
        text_page.close()
        page.close()
    text = text.replace("\r", "").strip()
    return f"--- page {number + 1} ---\n{text}"


def _cell(number: int, cell: dict[str, Any]) -> str:
    """Return a notebook cell as text: its source, and then its outputs."""
    parts = [f"--- cell {number}, {cell['cell_type']} ---", _join_text(cell["source"])]
    for output in cell.get("outputs", ()):
        parts += ["--- output ---", _output(output)]
    return "\n".join(parts)


def _output(output: dict[str, Any]) -> str:
    """Return the output of a notebook cell as text, or only its kinds if it has no text."""
    match output:
        case {"text": text}:
            return _join_text(text)
        case {"data": {"text/plain": text, **others}}:
            images = [kind for kind in others if kind.startswith("image/")]
            return _join_text(text) + "".join(f"\n[an image: {kind}]" for kind in images)
        case {"ename": name, "evalue": value}:
            return f"{name}: {value}"
        case {"data": {**others}}:
            return f"[{', '.join(others)}]"
        case _:
            return ""


def _join_text(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
