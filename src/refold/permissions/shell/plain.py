"""Scripts so plain that there is only one way to read them.

Words, quotes around literal text, `|`, `&&`, `||`, `;` and lines; the only
redirections are to and from /dev/null and between the two outputs. Whatever else a
shell knows makes a script not plain: it may be fine, but nobody here vouches for it.
What the words do is not judged here.
"""

import re

from msgspec import Struct

LONGEST = 10_000  # characters that are still looked at

_BLANKS = re.compile(r"[ \t]*(?:#[^\n]*)?")
_SPACE = re.compile(r"[ \t]+")
_HARMLESS = re.compile(
    r"(?:2>&1|1>&2|>&2|(?:[12]|&)?>>?[ \t]*/dev/null|<[ \t]*/dev/null)(?=[ \t\n;|&]|$)"
)
_OPERATOR = re.compile(r"&&|\|\||\||;|\n")
_BARE = re.compile(r"[A-Za-z0-9_./:,@%+=^#~*?\[\]-]+")
_SINGLE = re.compile(r"'([^']*)'")
# A `$` before these is nothing but itself; `$?` is a number.
_DOUBLE = re.compile(r'"((?:[^"\\$`]|\\[^\n]|\$(?=[ \t\n"|)\\.,;:/%^+?]))*)"')
_ESCAPED = re.compile(r'\\([$`"\\])|\$\?')
_ALONE = re.compile(r"\\[()!](?=[ \t\n;]|$)|!(?=[ \t])")
_RELATIVE = re.compile(r"(?<=@)\{[A-Za-z0-9-]+\}")  # as in `HEAD@{1}`
_STATUS = re.compile(r"\$\?")
_ENDED = "\0"
_PRINTERS = ("echo", "printf")
_ASSIGNS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=")
# Only after a letter is a tilde certain to be itself, and a `#` no comment.
_UNSURE = re.compile(r"(?<![A-Za-z0-9_^])~|[=:][^/]*~|^#")
_GLOB = re.compile(r"[*?\[]")

KEYWORDS = frozenset({
    "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "for", "in",
    "case", "esac", "select", "function", "time", "coproc", "[[", "]]", "!", "(", ")",
})  # fmt: skip


class Word(Struct, frozen=True):
    """A word that the shell hands on as it stands, but for globs if `glob`.

    With `loose` a glob stands first: the name of a file could look like an option. A
    NUL stands for how the last command ended, and only in what is printed.
    """

    value: str
    glob: bool = False
    loose: bool = False


class Part(Struct, frozen=True):
    """A simple command, and the operator before it ("" for the first)."""

    words: tuple[Word, ...]
    after: str = ""

    @property
    def values(self) -> list[str]:
        return [word.value for word in self.words]


def plain(text: str) -> tuple[Part, ...]:
    """The simple commands of a plain script; none at all if it is not plain."""
    if len(text) > LONGEST or not _printable(text):
        return ()
    parts: list[Part] = []
    words: list[Word] = []
    after, at, end = "", 0, len(text)
    while (at := _blanks(text, at)) < end:
        if found := _HARMLESS.match(text, at):
            at = found.end()
        elif found := _OPERATOR.match(text, at):
            at = found.end()
            if words:
                parts.append(Part(tuple(words), after))
                words, after = [], found[0]
            elif found[0] != "\n":
                return ()
        else:
            word, at = _word(text, at)
            if word is None:
                return ()
            words.append(word)
    if words:
        parts.append(Part(tuple(words), after))
    elif after not in ("", ";", "\n"):
        return ()
    return tuple(parts) if all(map(_simple, parts)) else ()


def _blanks(text: str, at: int) -> int:
    """Past blanks, and past a comment where one can begin."""
    if at and text[at - 1] not in " \t\n;|&":
        found = _SPACE.match(text, at)
    else:
        found = _BLANKS.match(text, at)
    if found is None:
        return at
    at = found.end()
    again = _BLANKS.match(text, at) if found[0] else None
    return again.end() if again else at


def _word(text: str, at: int) -> tuple[Word | None, int]:
    value, bare, glob, start = "", "", False, at
    while True:
        if found := _BARE.match(text, at):
            value += found[0]
            bare += found[0]
            glob = glob or bool(_GLOB.search(found[0]))
        elif found := _SINGLE.match(text, at):
            value += found[1]
            bare += "q"
        elif found := _DOUBLE.match(text, at):
            value += _ESCAPED.sub(lambda m: m[1] or _ENDED, found[1])
            bare += "q"
        elif at == start and (found := _ALONE.match(text, at)):
            return Word(found[0][-1]), found.end()
        elif found := _STATUS.match(text, at) or _RELATIVE.match(text, at):
            value += _ENDED if found[0] == "$?" else found[0]
            bare += "q"
        else:
            break
        at = found.end()
    if at == start or _UNSURE.search(bare) or not _ascii_outside_quotes(bare):
        return None, at
    loose = glob and bare[0] in "*?["
    return Word(value, glob and bare not in ("[", "]"), loose and bare != "["), at


def _ascii_outside_quotes(bare: str) -> bool:
    return bare.isascii()


def _simple(part: Part) -> bool:
    first = part.words[0]
    return not (
        first.glob
        or _ASSIGNS.match(first.value)
        or first.value in KEYWORDS
        or not first.value.isascii()
        or (first.value not in _PRINTERS and any(_ENDED in w.value for w in part.words))
    )


def _printable(text: str) -> bool:
    return text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()
