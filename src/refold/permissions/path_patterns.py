"""Which files a pattern in a rule matches.

As in a gitignore file: a name without a slash (`.env`, `*.md`) matches at any depth, one with a
slash (`src/**`, `./.env`) starts at the first root, `/x` and `//x` at the root of the disk, `~/x` at
the user's home. `*` and `?` match within a name, `**` across folders, and a slash at the end stands
for everything below.

Deny and ask rules match widely: everything below a folder they name, in any case, and a name without
a folder anywhere on the disk.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from refold.permissions.facts import Facts
from refold.permissions.shell.words import MARKS, Held, blurred, meets

_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|[^*?]+")
_UNSURE = re.compile(r"[*?]")
_MEANS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def allows(pattern: str, real: str, facts: Facts) -> bool:
    """`real` is absolute, links followed."""
    return any(
        _regex(start, rest).fullmatch(real) for start, rest in _anchored(pattern, facts)
    )


def forbids(pattern: str, path: str, facts: Facts) -> Held:
    """`path` is absolute and may contain marks for unknown text."""
    found = "no"
    for start, rest in _anywhere(pattern, facts):
        if not MARKS.search(path):
            # A slash at the end: `secret/**` speaks of the folder too.
            wide, small = _wide_regex(start, rest), path.casefold()
            if wide.fullmatch(small) or wide.fullmatch(small + "/"):
                return "yes"
        elif meets(_tokens(start + "/" + rest), blurred(path.casefold())):
            found = "maybe"
    return found


def whole(pattern: str, facts: Facts) -> Iterator[str]:
    """The file or folder that a forbidding pattern covers as a whole, if it names one."""
    for start, rest in _anywhere(pattern, facts):
        literal = rest.removesuffix("**").rstrip("/") if rest.endswith("/**") else rest
        if literal and not _UNSURE.search(literal):
            yield facts.follow(f"{start}/{literal}")


def beginnings(pattern: str, facts: Facts) -> Iterator[str]:
    """The folders that a forbidding pattern begins in, if it is no one file.

    None for a pattern that applies anywhere: a whole disk cannot be searched.
    """
    for start, rest in _anywhere(pattern, facts):
        literal, unsure, _ = rest.partition("*")
        literal = min(literal, rest.partition("?")[0], key=len)
        if unsure or "?" in rest:
            folder = facts.follow(
                f"{start}/{literal.rpartition('/')[0]}".rstrip("/") or "/"
            )
            if folder != "/":
                yield folder


def _anchored(pattern: str, facts: Facts) -> Iterator[tuple[str, str]]:
    """The literal beginning of a pattern, and the rest."""
    rest = pattern + "**" if pattern.endswith("/") else pattern
    if rest.startswith("/"):
        yield "", rest.lstrip("/")
    elif rest == "~" or rest.startswith("~/"):
        yield facts.home, rest[2:]
    elif "/" in pattern.rstrip("/"):
        yield facts.roots[0].rstrip("/"), re.sub(r"^(?:\./)+", "", rest)
    else:
        for root in facts.roots:
            yield root.rstrip("/"), "**/" + rest


def _anywhere(pattern: str, facts: Facts) -> Iterator[tuple[str, str]]:
    stripped = pattern.rstrip("/")
    if stripped.startswith("**/") or "/" not in stripped:
        yield "", "**/" + stripped.removeprefix("**/")
        return
    for start, rest in _anchored(stripped, facts):
        yield start, rest
        # A link in the pattern leads to the files that are meant.
        literal, found, more = re.match(r"([^*?]*)(/|$)?(.*)", rest, re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess]
        folder, _, last = (literal + (found or "")).rpartition("/")
        real = facts.follow(f"{start}/{folder}" if folder else start or "/").rstrip("/")
        if not more and last:
            real = facts.follow(f"{start}/{rest}")
            if real != f"{start}/{rest}":
                yield real.rpartition("/")[0], real.rpartition("/")[2]
        elif real != f"{start}/{folder}".rstrip("/"):
            yield real, last + more


@lru_cache(maxsize=512)
def _regex(start: str, rest: str) -> re.Pattern[str]:
    wanted = "".join(_MEANS.get(t[0]) or re.escape(t[0]) for t in _TOKEN.finditer(rest))
    return re.compile(re.escape(start + "/") + wanted, re.DOTALL)


@lru_cache(maxsize=512)
def _wide_regex(start: str, rest: str) -> re.Pattern[str]:
    whole = _regex(start.casefold(), rest.casefold()).pattern
    return re.compile(f"{whole}(?:/.*)?", re.DOTALL)


@lru_cache(maxsize=512)
def _tokens(whole: str) -> tuple[str, ...]:
    wide = re.sub(r"\*\*/|\*+", "*", whole.casefold())
    return tuple("[[]" if c == "[" else c for c in wide)
