"""What the variables in a plain command stand for: the home, the directory, a loop's words.

Nothing is judged here: each command becomes those that it will be when it runs, with
every word known.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import product

from msgspec import structs

from refold.permissions.facts import Facts
from refold.permissions.shell.plain import Loop, SimpleCommand
from refold.permissions.shell.spelling import ShellWord
from refold.permissions.shell.words import HERE, HOME

_MOST = 200  # commands that the loops around one may make of it
# One word for a shell that reads it again, and no other file's name.
_WHOLE = re.compile(r"[A-Za-z0-9_./:,@%+^-]+")


class Unknown(Exception):
    """Why it cannot be said what a command will be."""


def standing(
    part: SimpleCommand, here: Sequence[str], facts: Facts
) -> Iterator[SimpleCommand]:
    """What `part` may be when it runs in one of the directories `here`. Raises `Unknown`."""
    marked = "".join(word.value for word in (*part.words, *part.reads))
    known = [(HOME, _place(facts.home, "HOME"))] if HOME in marked else []
    if HERE in marked:
        if len(here) > 1:
            raise Unknown("it is not known what $PWD is after cd")
        known.append((HERE, _place(here[0], "PWD")))
    loops = [loop for loop in part.loops if loop.mark in marked]
    made = 1
    for loop in loops:
        made *= len(loop.words)
    if made > _MOST:
        raise Unknown(f"its loops go round more than {_MOST} times")
    if not loops and not known:
        yield part
        return
    for values in product(*(_words(loop) for loop in loops)):
        put = [*known, *zip((loop.mark for loop in loops), values, strict=True)]
        yield structs.replace(
            part,
            words=tuple(_put(word, put) for word in part.words),
            reads=tuple(_put(word, put) for word in part.reads),
        )


def _place(path: str, name: str) -> ShellWord:
    if not path.startswith("/"):
        raise Unknown(f"it is not known what ${name} stands for")
    return ShellWord(path)


def _words(loop: Loop) -> Sequence[ShellWord]:
    return loop.words


def _put(word: ShellWord, put: Sequence[tuple[str, ShellWord]]) -> ShellWord:
    value, glob, loose = word.value, word.glob, word.loose
    for mark, meant in put:
        if mark not in word.value:
            continue
        again = mark in word.split
        if meant.glob:
            if word.value != mark:
                raise Unknown("a file's name becomes a part of another word")
            # Outside of quotes a name with a blank in it becomes two.
            glob, loose = True, meant.loose or again
        elif again and not _WHOLE.fullmatch(meant.value):
            raise Unknown("a word without quotes may become several")
        value = value.replace(mark, meant.value)
    return ShellWord(value, glob, loose, word.split)
