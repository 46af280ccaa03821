"""Does a rule for commands match? Allow rules are narrow, deny and ask rules are wide.

An allow rule covers one simple command, and only what it spells, word by word. A last ` *`
or `:*` stands for further words, but for none that `dangerous_options` knows. A deny or ask
rule is held against each command that may run. Where the script hides its words, the answer
can be "maybe"; then the user must be asked.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from refold.permissions.shell.dangerous_options import dangerous
from refold.permissions.shell.nested_commands import running
from refold.permissions.shell.plain_script import SimpleCommand, plain
from refold.permissions.shell.words import MARKS, Held, Word, blurred, meets

_WILD = re.compile(r"[*?\[]")
_MOST_WORDS = 100
_SPLIT = re.compile(r"[;&|()<>{}`$\n]+")
_BRACES = re.compile(r"\{([^{}\s]*,[^{}\s]*)\}")
_QUOTES = str.maketrans("", "", "'\"\\")


def covers(pattern: str, part: SimpleCommand) -> bool:
    """`pattern` as in `npm run test:*`."""
    if not part.bare:
        return False
    wanted = pattern_words(pattern)
    given = part.values
    more = wanted[-1] == "*"
    fixed = wanted[:-1] if more else wanted
    if len(given) < len(fixed) or (len(given) > len(fixed) and not more):
        return False
    if any(word.loose for word in part.words):
        return False
    if not all(map(fnmatchcase, given, fixed)):
        return False
    free = next((at for at, want in enumerate(fixed) if _free(want)), len(fixed))
    return not dangerous(given, free)


@lru_cache(maxsize=512)
def pattern_words(pattern: str) -> tuple[str, ...]:
    """A pattern for each word. What stands in quotes in a rule means just itself."""
    spread = re.sub(r":\*$", " *", pattern)
    parts = plain(spread)
    if len(parts) != 1 or not parts[0].bare:
        return tuple(spread.split())
    return tuple(
        w.value if w.glob else _WILD.sub(r"[\g<0>]", w.value) for w in parts[0].words
    )


def _free(want: str) -> bool:
    return bool(_WILD.search(re.sub(r"\[[*?\[]\]", "", want)))


def holds(pattern: str, text: str) -> Held:
    """`pattern` as in `git push *`."""
    wanted = pattern_words(pattern)
    found = running(text)
    answers = {_matches(wanted, command) for command in found.commands}
    if "yes" in answers or (found.broken and _crudely(wanted, text)):
        return "yes"
    hides = "maybe" in answers or found.hidden or found.broken
    return "maybe" if hides else "no"


def _matches(wanted: Sequence[str], command: tuple[Word, ...]) -> Held:
    value = command[0].value
    if MARKS.search(value) and _without_name(wanted, command):
        # Its name is hidden, and all that is to be seen is as the rule says.
        return "yes"
    last = value.rsplit("/", 1)[-1]
    names = {value, last, last.casefold()}
    answers = {_words(wanted, (Word(n, many=command[0].many), *command[1:])) for n in names}
    return "yes" if "yes" in answers else "maybe" if "maybe" in answers else "no"


def _without_name(wanted: Sequence[str], command: tuple[Word, ...]) -> bool:
    if not could(wanted[0].removesuffix("*") or "*", command[0].value.rsplit("/", 1)[-1]):
        return False
    return (
        _words(("*x*", *wanted[1:]), (Word("x"), *command[1:]), more=_more(wanted)) == "yes"
    )


def _more(wanted: Sequence[str]) -> bool:
    return wanted[-1].endswith("*")


def _words(
    wanted: Sequence[str], given: tuple[Word, ...], *, more: bool | None = None
) -> Held:
    more = _more(wanted) if more is None else more
    pattern = wanted[:-1] if wanted[-1] == "*" else wanted
    sure = True
    for at, want in enumerate(pattern):
        if at >= len(given):
            return "no"
        if given[at].many:
            return "maybe"
        match = could(want, given[at].value)
        if not match:
            return "no"
        sure = sure and given[at].known
    if len(given) > len(pattern) and not more:
        return "maybe" if all(w.many for w in given[len(pattern) :]) else "no"
    return "yes" if sure else "maybe"


def could(pattern: str, value: str) -> bool:
    """Can `value`, whose marks stand for anything, be a text that `pattern` matches?"""
    if not MARKS.search(value):
        return fnmatchcase(value, pattern)
    return meets(
        tuple(re.findall(r"\*|\?|\[[^\]]+\]|.", pattern, re.DOTALL)), blurred(value)
    )


def _crudely(wanted: Sequence[str], text: str) -> bool:
    """For what the grammar cannot read: cut at whatever could cut, quotes ignored."""
    spread = _BRACES.sub(lambda m: m[1].replace(",", " "), text.replace("\\\n", ""))
    parts = (p.translate(_QUOTES).split() for p in _SPLIT.split(spread))
    return any(
        _matches(wanted, tuple(map(Word, part[at : at + _MOST_WORDS]))) == "yes"
        for part in parts
        for at in range(len(part))
    )
