"""Pictures that a person names in words, as @screenshot.png: found, read, sent along.

What looks like the name of a picture and cannot be shown is told and not sent;
the words go out all the same.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from refold.errors import BadInput
from refold.tools.contract import Picture
from refold.tools.pictures import picture_file

_NAMED = re.compile(r"(?<![^\s(\[])@(?:\"([^\"]+)\"|(\S+))")
_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class Attached(NamedTuple):
    pictures: tuple[Picture, ...] = ()
    problems: tuple[str, ...] = ()


def attached(words: str, directory: str, unread: Callable[[str], str]) -> Attached:
    """The pictures that `words` name, relative to `directory`.

    `unread` says why a file may not be read, or "": a rule holds behind this door, too.
    """
    pictures: list[Picture] = []
    problems: list[str] = []
    for quoted, plain in _NAMED.findall(words):
        name = quoted or plain.rstrip(".,;:!?)")
        path = Path(directory, Path(name).expanduser())
        if not name.lower().endswith(_ENDINGS) or not path.is_file():
            continue
        if why := unread(str(path)):
            problems.append(f"{name!r} was not sent: {why}")
            continue
        try:
            pictures.append(picture_file(path, name))
        except BadInput as error:
            problems.append(str(error))
    return Attached(tuple(pictures), tuple(problems))
