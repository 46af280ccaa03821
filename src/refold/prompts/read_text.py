"""Reads a file of an untrusted folder, as text for a model.

Links are followed only within the folder, pipes and devices are refused, and the size is
limited. Except for missing files, failures are raised as `Unreadable`; its text is the end of a
sentence that begins with the name of the file.
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
    """A file cannot be read. The text is the reason, for example "it is a directory"."""


class Content(Struct, frozen=True):
    """The bytes that were read from a file. `size` is the size of the whole file in bytes."""

    data: bytes
    size: int


class CleanText(Struct, frozen=True):
    """Text without invisible characters. `hidden` is the number of characters that were
    removed.
    """

    text: str
    hidden: int


def content(path: str, within: str, at_most: int) -> Content:
    """Return up to `at_most` bytes from the start of a regular file in the folder `within`.

    Raises `FileNotFoundError` if it is missing, otherwise `Unreadable` if it cannot be read.
    """
    # A path with a NUL cannot be resolved; `content_at` refuses it.
    real = os.path.realpath(path) if "\0" not in path else path
    return content_at(real, within, at_most)


def content_at(real: str, within: str, at_most: int) -> Content:
    """Return what `content` returns, for a path `real` in which all links are resolved.

    A link that has appeared in the path since then is refused.
    """
    try:
        if not below(real, within):
            raise Unreadable(f"it lies outside of {escape_name(within)}")
        descriptors = DirectoryDescriptors(roots=(), opening=open_by_walking)
        with descriptors.open_parent(Real(real)) as (folder, name):
            data, size = read_regular(
                name, at_most, follow=False, directory=folder, check=_refuse_irregular
            )
            return Content(data, size)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(real) from error
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error_text(error)}") from error
    except (ToolFailed, ValueError) as error:  # the name is invalid for a file
        raise Unreadable("its name is none that a file can have") from error


def text_of(file_content: Content) -> str:
    """Return the content as text, with LF as the line end.

    If the content ends within a character, that character is left out. Raises `Unreadable` if
    the content is not UTF-8 text.
    """
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
    """Return the text without invisible characters, which could be meant only for the model."""
    shown = visible_text(text)
    return CleanText(escape_marks(shown), len(text) - len(shown))


def _refuse_irregular(status: os.stat_result) -> None:
    """Raise `Unreadable` if the file is a directory, a link, a pipe or a device."""
    match kind_of(status.st_mode):
        case "file":
            return
        case "directory":
            raise Unreadable("it is a directory")
        case "link":  # all other links were resolved before
            raise Unreadable("it is a link that goes round in a circle")
        case _ if stat.S_ISFIFO(status.st_mode):
            raise Unreadable("it is a pipe")
        case _:
            raise Unreadable("it is not a file")
