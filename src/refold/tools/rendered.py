"""Files that are no plain text, told in words: notebooks, PDF, the rest."""

from typing import Any, cast

import msgspec

from refold.errors import ToolFailed

_KINDS = (
    (b"\x7fELF", "a program"),
    (b"PK\x03\x04", "a zip archive or an office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"SQLite format 3\0", "an SQLite database"),
)


def binary_kind(content: bytes) -> str:
    return next(
        (kind for start, kind in _KINDS if content.startswith(start)), "binary data"
    )


def pdf(content: bytes, name: str) -> str:
    """The text of a PDF, page by page."""
    try:
        import pypdfium2  # pyright: ignore[reportMissingTypeStubs] - it has none
    except ImportError as error:
        raise ToolFailed(
            f"{name} is a PDF. Reading those needs: pip install 'refold[docs]'"
        ) from error
    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        raise ToolFailed(f"{name} is a PDF that cannot be opened: {error}.") from error
    try:
        pages = [_page(document, number) for number in range(len(document))]
    finally:
        document.close()
    return "\n".join(pages)


def notebook(content: bytes) -> str | None:
    """The cells of a Jupyter notebook with their outputs; None: it is none."""
    try:
        found = msgspec.json.decode(content)
        cells = [_cell(n, cell) for n, cell in enumerate(found["cells"], 1)]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return None
    return "\n".join(cells)


def _page(document: Any, number: int) -> str:
    page = document[number]
    words = page.get_textpage()
    try:
        text = cast("str", words.get_text_bounded())
    finally:
        words.close()
        page.close()
    return f"--- page {number + 1} ---\n{text.replace(chr(13), '').strip()}"


def _cell(number: int, cell: dict[str, Any]) -> str:
    parts = [f"--- cell {number}, {cell['cell_type']} ---", _joined(cell["source"])]
    for output in cell.get("outputs", ()):
        parts += ["--- output ---", _output(output)]
    return "\n".join(parts)


def _output(output: dict[str, Any]) -> str:
    match output:
        case {"text": text}:
            return _joined(text)
        case {"data": {"text/plain": text, **others}}:
            pictures = [kind for kind in others if kind.startswith("image/")]
            return _joined(text) + "".join(f"\n[a picture: {kind}]" for kind in pictures)
        case {"ename": name, "evalue": value}:
            return f"{name}: {value}"
        case {"data": {**others}}:
            return f"[{', '.join(others)}]"
        case _:
            return ""


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
