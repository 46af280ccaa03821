"""What could stand at the cursor: a command, a model's name, a file after "@".

Pure but for one look into one directory.
"""

import os
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

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
        last = before.split()[-1] if before and not before[-1].isspace() else ""
        if last.startswith("@"):
            yield from _files(last[1:], directory)

    return complete


def _files(begun: str, directory: str) -> Iterator[Offer]:
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
        yield Offer(item.name + ("/" if item.is_dir() else ""), len(name))
        left -= 1
        if not left:
            return
