"""The tool `read_file`: returns text files by lines, and other files as text where possible.

It stops at the end of a line before the output limit, which the engine enforces for all tools.
"""

from functools import partial
from hashlib import sha256
from typing import Annotated, Protocol

from anyio import to_thread
from msgspec import Meta

from refold.errors import BadInput, JournalError, ToolFailed
from refold.place.port import Files
from refold.tools.contract import ReadRange, Reply, tool
from refold.tools.text_files import decode_text, fold_lines, piece
from refold.values.display import Note
from refold.values.image_files import image_type
from refold.values.printable_names import escape_name
from refold.values.tools import Effect

BLOB_PREFIX = "blob:"


class BlobReader(Protocol):
    """Reads stored outputs of tools, which were too long to show, by their names."""

    async def get(self, name: str) -> bytes:
        """Return the stored output. Raises `JournalError` for a name that is not stored."""
        ...


@tool(Effect.LOOK, path="path")
async def read_file(
    path: str,
    first: Annotated[int, Meta(ge=1, description="first line, from 1")] = 1,
    count: Annotated[int, Meta(ge=1)] = 2000,
    *,
    files: Files,
    blobs: BlobReader,
) -> Reply:
    """Read a file as numbered lines. Also PDF, XLSX, notebooks, images, blob:… of cut output."""
    if path.startswith(BLOB_PREFIX):
        return await _blob(path, first, count, blobs)
    return await to_thread.run_sync(partial(_file, path, first, count, files))


def _file(path: str, first: int, count: int, files: Files) -> Reply:
    """Return the lines of a text, an image or a document, with the extent that was read."""
    real = files.real(path)
    name = files.display_name(real)
    if files.kind(real) == "nothing":
        from refold.tools.file_names import similar_names_text

        if names := similar_names_text(files, real):
            raise ToolFailed(f"Cannot read {name}: there is no such file. {names}")
    content = files.read(real)
    text, oddity = _text(content, name)
    ranges = (ReadRange(escape_name(real), sha256(content).hexdigest()),)
    if not content:
        return Reply(f"{name} is empty.", (Note(f"read {name}, empty"),), ranges)
    if kind := image_type(content):
        return _reply_with_image(content, name, kind, ranges)
    lines = piece(text, first, count)
    extent = f"{lines.extent}; {oddity}" if oddity else lines.extent
    text_with_extent = f"{lines.text}\n({extent})".lstrip("\n")
    return Reply(text_with_extent, (Note(f"read {name}, {lines.where}"),), ranges)


def _reply_with_image(
    content: bytes, name: str, kind: str, ranges: tuple[ReadRange, ...]
) -> Reply:
    """Return the reply with the image, or with the reason why it cannot be shown."""
    from refold.tools.images import image_data  # not needed at the start

    about = f"{name} is an image, {kind}, {len(content):,} bytes"
    note = (Note(f"looked at {name}, {kind}"),)
    try:
        return Reply(f"{about}.", note, ranges, images=(image_data(content, name),))
    except BadInput as error:
        return Reply(f"{about}, and cannot be shown: {error}", note, ranges)


def _text(content: bytes, name: str) -> tuple[str, str]:
    """Return the text of a file with LF as line end, and a note about its form, which may be
    "".

    An image has no text.
    """
    # Not needed at the start.
    from refold.tools.document_text import binary_kind, notebook_text, pdf_text

    if image_type(content):
        return "", ""
    if content.startswith(b"%PDF-"):
        return pdf_text(content, name), "the words of a PDF"
    if content.startswith(b"PK"):
        from refold.tools.spreadsheets import is_workbook, workbook_text

        if is_workbook(content, name):
            return workbook_text(content, name), "a workbook, as rows with their numbers"
    if name.endswith(".ipynb") and (cells := notebook_text(content)) is not None:
        return cells, "a notebook, as cells"
    decoded = decode_text(content)
    if decoded is None:
        raise ToolFailed(
            f"{name} is {binary_kind(content)} ({len(content):,} bytes), not text. "
            "Use bash with file, strings or xxd to look into it."
        )
    return decoded.plain, decoded.oddity


async def _blob(path: str, first: int, count: int, blobs: BlobReader) -> Reply:
    """Return lines of a stored output. `path` is its name after the prefix `blob:`."""
    try:
        content = await blobs.get(path.removeprefix(BLOB_PREFIX))
    except JournalError as error:
        raise ToolFailed(f"There is no {path!r}: use the name as it was given.") from error
    text = content.decode(errors="replace").replace("\r\n", "\n")
    lines = piece(fold_lines(text), first, count)
    return Reply(f"{lines.text}\n({lines.extent})", (Note(f"read on, {lines.where}"),))
