"""Files that are not plain text, as text: notebooks, PDF, a description of others."""

import sys
from tempfile import TemporaryFile
from typing import Any, cast

import msgspec

from refold import programs
from refold.errors import ToolFailed

_READ_PDF = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from refold.tools.document_text import print_pdf; print_pdf()"
)
_SECONDS = 20.0
_MEMORY = 1024 * 1024 * 1024  # bytes of address space
_LONGEST = 10_000_000  # characters
_CANNOT = 3

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
    del pypdfium2
    with TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        words = [sys.executable, "-I", "-c", _READ_PDF, *sys.path]
        try:
            done = programs.run(words, _SECONDS, stdin=file, env={}, memory=_MEMORY)
        except (OSError, programs.TimedOut) as error:
            raise ToolFailed(f"{name} is a PDF that takes too much to read.") from error
    if not done.returncode:
        return done.stdout.decode(errors="replace")
    why = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode == _CANNOT and why:
        raise ToolFailed(f"{name} is a PDF that cannot be opened: {why[-1]}.")
    raise ToolFailed(
        f"{name} is a PDF that takes more than {_MEMORY >> 20} MB of memory or {_SECONDS:.0f} s "
        "to read. Take out single pages with another program, and read those."
    )


def print_pdf() -> None:
    """The text of the PDF on standard input, page by page: in a process with bounds.

    A few kilobytes of a PDF can unpack to gigabytes.
    """
    import pypdfium2  # pyright: ignore[reportMissingTypeStubs] - it has none

    out = sys.stdout.buffer
    try:
        document = pypdfium2.PdfDocument(sys.stdin.buffer.read())
    except pypdfium2.PdfiumError as error:
        sys.stderr.write(str(error))
        sys.exit(_CANNOT)
    left = _LONGEST
    for number in range(len(document)):
        page = ("\n" if number else "") + _page(document, number)
        out.write(page[:left].encode(errors="replace"))
        left -= len(page)
        if left <= 0:
            out.write(f"\n(Only the first {_LONGEST:,} characters were read.)".encode())
            break


def notebook(content: bytes) -> str | None:
    """The cells of a Jupyter notebook with their outputs; None: it is none."""
    try:
        found = msgspec.json.decode(content)
        cells = [_cell(n, cell) for n, cell in enumerate(found["cells"], 1)]
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
            images = [kind for kind in others if kind.startswith("image/")]
            return _joined(text) + "".join(f"\n[an image: {kind}]" for kind in images)
        case {"ename": name, "evalue": value}:
            return f"{name}: {value}"
        case {"data": {**others}}:
            return f"[{', '.join(others)}]"
        case _:
            return ""


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
