"""Decides which files a pattern in a rule matches.

Patterns are similar to those of a gitignore file: a name without a slash (`.env`, `*.md`)
matches at any depth, one with a slash (`src/**`, `./.env`) starts at the first root, `/x` and
`//x` at the root of the disk, `~/x` at the user's home. A slash at the end means everything
below. `values.path_globs` implements the wildcards.

A deny or ask rule matches more than an allow rule: everything below a folder that it names,
names in upper or lower case, and a name without a folder anywhere on the disk.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from refold.permissions.facts import Facts
from refold.permissions.shell.words import MARK_PATTERN, Certainty, may_match, with_gaps
from refold.values.path_globs import escape_pattern, literal_name, regex, split_loosely

_WILD_CHARACTERS = re.compile(r"[*?\[\\]")


def allows(pattern: str, real: str, facts: Facts) -> bool:
    """Whether an allow rule with this pattern covers `real`, an absolute path with links
    resolved.
    """
    return any(
        _regex(start, rest).fullmatch(real) for start, rest in _anchors(pattern, facts)
    )


def forbids(pattern: str, path: str, facts: Facts) -> Certainty:
    """Return whether a deny or ask rule with this pattern matches an absolute path.

    Marks in the path stand for text that is known only when a command runs. The answer is
    "maybe" if it depends on this text.
    """
    has_unknown_text = bool(MARK_PATTERN.search(path))
    answer = "no"
    for start, rest in _forbidding_anchors(pattern, facts):
        if not has_unknown_text:
            if _is_below(start, rest, path):
                return "yes"
            continue
        tokens = _tokens(start + "/" + rest)
        if may_match(tokens, with_gaps(path.casefold())):
            answer = "maybe"
    return answer


def literal_paths(pattern: str, facts: Facts) -> Iterator[str]:
    """Yield the files or folders that a pattern of a deny or ask rule names without wildcards.

    `/**` at the end is ignored, since the folder counts as a whole. Links are resolved.
    """
    for start, rest in _forbidding_anchors(pattern, facts):
        literal = rest
        if rest.endswith("/**"):
            literal = rest.removesuffix("**").rstrip("/")
        if name := literal_name(literal):
            yield facts.follow(f"{start}/{name}")


def start_folders(pattern: str, facts: Facts) -> Iterator[str]:
    """Yield the folders in which a deny or ask rule with wildcards can match files.

    The root of the disk is left out, because a whole disk cannot be searched.
    """
    for start, rest in _forbidding_anchors(pattern, facts):
        if literal_name(rest) is not None:
            continue
        before_wildcard = _WILD_CHARACTERS.split(rest)[0]
        path = f"{start}/{before_wildcard.rpartition('/')[0]}".rstrip("/")
        folder = facts.follow(path or "/")
        if folder != "/":
            yield folder


def problem(pattern: str) -> str:
    """Return why this is not a valid pattern for paths, or ""."""
    try:
        regex(pattern, across=True)
    except ValueError as error:
        return str(error)
    return ""


def _anchors(pattern: str, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield each way to read a pattern: a literal folder, and the pattern relative to it.

    The folder "" is the root of the disk.
    """
    rest = pattern + "**" if pattern.endswith("/") else pattern
    if rest.startswith("/"):
        yield "", rest.lstrip("/")
    elif rest == "~" or rest.startswith("~/"):
        yield facts.home, rest[2:]  # without "~/"; "" for the home itself
    elif "/" in pattern.rstrip("/"):
        yield facts.roots[0].rstrip("/"), re.sub(r"^(?:\./)+", "", rest)
    else:
        for root in facts.roots:
            yield root.rstrip("/"), "**/" + rest


def _forbidding_anchors(pattern: str, facts: Facts) -> Iterator[tuple[str, str]]:
    yield from _wide_anchors(pattern, facts)
    if "[" in pattern and "\\" not in pattern:
        # A folder may be called `[id]`, and an author who forbids it writes exactly that.
        yield from _wide_anchors(pattern.replace("[", "\\["), facts)


def _wide_anchors(pattern: str, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield each way to read a pattern of a deny or ask rule, as `_anchors` does for an allow
    rule.

    Here a name without a folder starts at the root of the disk, and links in folders are
    resolved.
    """
    stripped = pattern.rstrip("/")
    if stripped.startswith("**/") or "/" not in stripped:
        yield "", "**/" + stripped.removeprefix("**/")
        return
    for start, rest in _anchors(stripped, facts):
        yield start, rest
        yield from _anchor_of_links(start, rest, facts)


def _anchor_of_links(start: str, rest: str, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the folder and the pattern to which a link in `rest` leads, if it has a link."""
    if name := literal_name(rest):
        path = f"{start}/{name}"
        real = facts.follow(path)
        if real != path:
            real_folder, _, real_name = real.rpartition("/")
            yield real_folder, escape_pattern(real_name)
        return
    # Only the folders before the first wildcard can be links.
    before_wildcard = _WILD_CHARACTERS.split(rest)[0]
    folder = before_wildcard.rpartition("/")[0]
    path = f"{start}/{folder}" if folder else (start or "/")
    real = facts.follow(path).rstrip("/")
    if real != path.rstrip("/"):
        yield real, rest[len(folder) :].lstrip("/")


def _is_below(start: str, rest: str, path: str) -> bool:
    """Whether the pattern `rest` in the folder `start` matches `path` or a folder above it."""
    exact, wide = _wide_regexes(start, rest)
    # The slash is for `secret/**`, which matches the folder, too.
    return any(
        pattern.fullmatch(name) or pattern.fullmatch(f"{name}/")
        for pattern, name in ((exact, path), (wide, path.casefold()))
    )


@lru_cache(maxsize=512)
def _regex(start: str, rest: str) -> re.Pattern[str]:
    return re.compile(re.escape(start + "/") + regex(rest, across=True), re.DOTALL)


@lru_cache(maxsize=512)
def _wide_regexes(start: str, rest: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return a regular expression for a path, and one for the path with its case folded.

    Both also match all files below a match.
    """
    exact = f"{_regex(start, rest).pattern}(?:/.*)?"
    folded = re.escape(start.casefold() + "/") + regex(rest.casefold(), across=True)
    ignoring = re.DOTALL | re.IGNORECASE
    return re.compile(exact, re.DOTALL), re.compile(f"{folded}(?:/.*)?", ignoring)


@lru_cache(maxsize=512)
def _tokens(whole: str) -> tuple[str, ...]:
    return tuple(split_loosely(whole.casefold()))
