"""Files that are no plain text, told in words: notebooks, PDF, pictures, the rest."""

from typing import Any, cast

import msgspec

from refold.errors import ToolFailed

_PICTURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\1\0", "image/x-icon"),
)
_KINDS = (
    (b"\x7fELF", "a program"),
    (b"PK\x03\x04", "a zip archive or an office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"SQLite format 3\0", "an SQLite database"),
)


def picture_type(content: bytes) -> str:
    """The media type of a picture, or ""."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if content[:2] == b"BM" and content[6:10] == b"\0\0\0\0":  # two letters are too little
        return "image/bmp"
    return next((kind for start, kind in _PICTURES if content.startswith(start)), "")


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
