"""Reads a file of an untrusted folder, as text for a model.

Links are followed only within the folder, pipes and devices are refused, and size is limited.
Every failure is an `Unreadable`, whose text continues a sentence that begins with the file.
"""

import codecs
import os
import stat

from msgspec import Struct

from refold.errors import ToolFailed
from refold.place.openat import DirectoryDescriptors, error_text, kind_of, open_by_walking
from refold.place.port import Real
from refold.safe_open import read_regular
from refold.values.path_names import below
from refold.values.printable_names import escape_name
from refold.values.text import escape_marks, visible_text


class Unreadable(Exception):
    """Says why, as in "it is a directory"."""


class Content(Struct, frozen=True):
    """What was read of a file; `size` is that of the whole file, in bytes."""

    data: bytes
    size: int


class CleanText(Struct, frozen=True):
    """Text without invisible characters; `hidden` is how many were removed."""

    text: str
    hidden: int


def content(path: str, within: str, at_most: int) -> Content:
    """The first `at_most` bytes of a regular file in the folder `within`.

    Raises `FileNotFoundError`, and `Unreadable`.
    """
    return content_at(os.path.realpath(path) if "\0" not in path else path, within, at_most)


def content_at(real: str, within: str, at_most: int) -> Content:
    """Like `content`, for a path whose links were followed already: new links are refused."""
    try:
        if not below(real, within):
            raise Unreadable(f"it lies outside of {escape_name(within)}")
        with DirectoryDescriptors((), open_by_walking).open_parent(Real(real)) as (
            folder,
            last,
        ):
            odd = _refuse_odd
            return Content(
                *read_regular(last, at_most, follow=False, directory=folder, check=odd)
            )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(real) from error
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error_text(error)}") from error
    except (ToolFailed, ValueError) as error:  # a name that can be none
        raise Unreadable("its name is none that a file can have") from error


def text_of(file_content: Content) -> str:
    """The content as text; a character that was cut in two is left out. May raise."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        whole = file_content.size <= len(file_content.data)
        text = decoder.decode(file_content.data, final=whole)
    except UnicodeDecodeError as error:
        raise Unreadable("it is not UTF-8 text") from error
    if "\0" in text:
        raise Unreadable("it is not text: it contains zero bytes")
    return text.replace("\r\n", "\n")


def remove_invisible(text: str) -> CleanText:
    """Remove invisible characters: they may be meant for the model only."""
    shown = visible_text(text)
    return CleanText(escape_marks(shown), len(text) - len(shown))


def _refuse_odd(status: os.stat_result) -> None:
    match kind_of(status.st_mode):
        case "file":
            return
        case "directory":
            raise Unreadable("it is a directory")
        case "link":  # all others had been followed
            raise Unreadable("it is a link that goes round in a circle")
        case _ if stat.S_ISFIFO(status.st_mode):
            raise Unreadable("it is a pipe")
        case _:
            raise Unreadable("it is not a file")
