"""Read a file of a folder that somebody else may have filled, as text for a model.

Links are followed only within a folder, no pipe is waited for, no device opened, and no
more is read than was asked for. Every failure is an `Unreadable` whose text goes on a
sentence that begins with the file. Which files are read is not decided here.
"""

import codecs
import os
import re
import stat

from msgspec import Struct

from refold.errors import ToolFailed
from refold.place.beneath import by_walking
from refold.place.folders import Folders
from refold.place.names import escaped
from refold.place.port import Real
from refold.place.regular import LOOK, kind_of, why
from refold.values.below import below

# What is neither a letter nor a line end or tab, in text that is ASCII.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# These shape emoji and Persian or Indic words, and are of no use after anything else.
_SHAPING = "\u200c\u200d\ufe0e\ufe0f"


class Unreadable(Exception):
    """Says why, as in "it is a directory"."""


class Content(Struct, frozen=True):
    """What was read of a file; `size` is that of the whole file, in bytes."""

    data: bytes
    size: int


class Clean(Struct, frozen=True):
    """Text without what nobody can see; `hidden` is how many letters that were."""

    text: str
    hidden: int


def content(path: str, within: str, at_most: int) -> Content:
    """The first `at_most` bytes of a regular file that lies in the folder `within`.

    Raises `FileNotFoundError`, and `Unreadable`.
    """
    try:
        real = os.path.realpath(path)
        if not below(real, within):
            raise Unreadable(f"it lies outside of {escaped(within)}")
        with Folders((), by_walking).of(Real(real)) as (folder, last):
            return _regular(folder, last, at_most)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(path) from error
    except OSError as error:
        raise Unreadable(f"it cannot be read: {why(error)}") from error
    except (ToolFailed, ValueError) as error:  # a name that can be none
        raise Unreadable("its name is none that a file can have") from error


def text_of(found: Content) -> str:
    """The content as text; a character that was cut in two is left out. May raise."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        whole = found.size <= len(found.data)
        text = decoder.decode(found.data, final=whole)
    except UnicodeDecodeError as error:
        raise Unreadable("it is no text in UTF-8") from error
    if "\0" in text:
        raise Unreadable("it is no text: it holds zero bytes")
    return text.replace("\r\n", "\n")


def cleaned(text: str) -> Clean:
    """Without what no reader of the file could see: it may be there for the model only."""
    if text.isascii():
        shown = _CONTROLS.sub("", text)
        return Clean(shown, len(text) - len(shown))
    letters, before = list[str](), " "
    for letter in text:
        if letter.isprintable() or letter in "\n\t":
            keeps = letter not in _SHAPING and not "\U000e0100" <= letter <= "\U000e01ef"
            keeps = keeps or (before > "\x7f" and before not in _SHAPING)
        elif letter in _SHAPING:
            keeps = before > "\x7f" and before not in _SHAPING
        else:
            keeps = letter.isspace()
            letter = " " if keeps else letter
        if keeps:
            letters.append(letter)
            before = letter
    return Clean("".join(letters), len(text) - len(letters))


def _regular(folder: int, last: str, at_most: int) -> Content:
    # Looked at before it is opened: opening a device can already do something.
    _refuse_odd(os.stat(last, dir_fd=folder, follow_symlinks=False))
    number = os.open(last, LOOK, dir_fd=folder)
    try:
        about = os.fstat(number)  # another file may have come under this name
        _refuse_odd(about)
        pieces, left = list[bytes](), at_most
        while left > 0 and (piece := os.read(number, min(left, 65536))):
            pieces.append(piece)
            left -= len(piece)
        data = b"".join(pieces)
        return Content(data, max(about.st_size, len(data)) if not left else len(data))
    finally:
        os.close(number)


def _refuse_odd(about: os.stat_result) -> None:
    match kind_of(about.st_mode):
        case "file":
            return
        case "directory":
            raise Unreadable("it is a directory")
        case "link":  # all others had been followed
            raise Unreadable("it is a link that goes round in a circle")
        case _ if stat.S_ISFIFO(about.st_mode):
            raise Unreadable("it is a pipe")
        case _:
            raise Unreadable("it is no file")
