"""What could stand at the cursor: a command, a model's name, a file after "@".

Pure but for one look into one directory.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

QUOTE = '"'
# A file that is being named at the end: @"with spaces", or @without.
_NAMED = re.compile(r"(?:^|[\s(\[])@(?:\"([^\"]*)|([^\s\"]*))$")
_MOST = 50  # names offered at once


class Offer(Struct, frozen=True):
    """`text` instead of the last `instead_of` letters."""

    text: str
    instead_of: int
    about: str = ""


Complete = Callable[[str], Iterator[Offer]]


def completing(
    commands: Sequence[tuple[str, str]], words: dict[str, Sequence[str]], directory: str
) -> Complete:
    """`commands` are (name, meaning); `words` what may follow one of them."""

    def complete(before: str) -> Iterator[Offer]:
        head, _, rest = before.partition(" ")
        if before.startswith("/") and "\n" not in before:
            if " " not in before:
                yield from (
                    Offer(f"/{name}", len(before), about)
                    for name, about in commands
                    if name.startswith(before[1:])
                )
                return
            for word in words.get(head[1:], ()):
                if rest.lower() in word.lower():
                    yield Offer(word, len(rest))
            return
        if named := _NAMED.search(before):
            quoted, plain = named[1], named[2]
            name = quoted if quoted is not None else plain
            yield from _files(name, directory, quoted=quoted is not None)

    return complete


def _files(begun: str, directory: str, *, quoted: bool) -> Iterator[Offer]:
    folder, name = os.path.split(begun)
    try:
        with os.scandir(os.path.join(directory, os.path.expanduser(folder))) as found:
            items = sorted(found, key=lambda item: item.name)
    except (OSError, ValueError):
        return
    left = _MOST
    for item in items:
        if not item.name.lower().startswith(name.lower()) or not item.name.isprintable():
            continue
        if item.name.startswith(".") and not name.startswith("."):
            continue
        end = "/" if item.is_dir() else ""
        if " " in begun + item.name and not quoted:  # else it would end at the space
            yield Offer(f'"{os.path.join(folder, item.name)}{end or QUOTE}', len(begun))
        else:
            closed = end or (QUOTE if quoted else "")
            yield Offer(item.name + closed, len(name))
        left -= 1
        if not left:
            return
