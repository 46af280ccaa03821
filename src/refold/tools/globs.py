"""File patterns: `*.py`, `src/**/*.ts`, `{a,b}/?.c`, `[a-z]*`.

A pattern without a slash is matched on the name alone, at any depth; one with a
slash on the whole path below where the search began. `**` stands for any number of
directories where it is a whole part of the pattern, and for `*` elsewhere.

No pattern can make matching slow: each `*` takes the first place where what follows it
fits, which is right for patterns of this kind, and nothing is tried twice.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

from refold.errors import ToolFailed

_TOKEN = re.compile(r"(?s)\*+|\?|\[!?\]?[^\]/]*\]|\\.|.")
_BRACES = re.compile(r"(?s)\\.|\[!?\]?[^\]/]*\]|[{},]")
_MOST = 256  # patterns that braces stand for
_LONGEST = 4096  # characters, as of a path

_Matches = Callable[[str], object]


def matcher(pattern: str) -> Callable[[str], bool]:
    """A test on relative paths. Raises `ToolFailed` for a pattern with no sense."""
    if len(pattern) > _LONGEST:
        raise ToolFailed(
            f"The pattern is {len(pattern)} characters long; {_LONGEST} are most."
        )
    plain = pattern.removeprefix("./")
    whole = "/" in plain
    try:
        tests = [_of_path(each) for each in _alternatives(plain.lstrip("/"))]
    except re.error as error:
        raise ToolFailed(f"The pattern {pattern!r} makes no sense: {error}.") from error
    if len(tests) == 1 and whole:
        return lambda path: bool(tests[0](path))
    if len(tests) == 1:
        return lambda path: bool(tests[0](path.rpartition("/")[2]))
    if not whole:
        return lambda path: any(test(path.rpartition("/")[2]) for test in tests)
    return lambda path: any(test(path) for test in tests)


def _of_path(pattern: str) -> _Matches:
    parts = pattern.split("/")
    deep = [at for at, part in enumerate(parts) if part == "**"]
    if len(deep) > 1:
        tests = [None if part == "**" else _part(part) for part in parts]
        return partial(_fits, tests)
    # The usual case, in one look.
    if not deep:
        return re.compile("/".join(map(_regex, parts)), re.DOTALL).fullmatch
    if deep[0] == len(parts) - 1:
        before = "".join(f"{_regex(part)}/" for part in parts[:-1])
        return re.compile(f"{before}.*", re.DOTALL).fullmatch
    before = "".join(f"{_regex(part)}/" for part in parts[: deep[0]])
    after = "/".join(map(_regex, parts[deep[0] + 1 :]))
    return re.compile(f"{before}(?:[^/]+/)*{after}", re.DOTALL).fullmatch


def _fits(tests: Sequence[_Matches | None], path: str) -> bool:
    """Part by part; `reached` are the places in the pattern that the parts so far lead to."""
    reached = _passing({0}, tests)
    for part in path.split("/"):
        if tests[-1] is None and len(tests) - 1 in reached:
            return True  # a `**` at the end takes all that is left
        taken = {at for at in reached if at < len(tests) and tests[at] is None}
        for at in reached:
            if at < len(tests) and (test := tests[at]) is not None and test(part):
                taken.add(at + 1)
        reached = _passing(taken, tests)
    return len(tests) in reached


def _passing(reached: set[int], tests: Sequence[_Matches | None]) -> set[int]:
    """A `**` that is not the last part may stand for nothing."""
    found = set(reached)
    for at in sorted(reached):
        while at < len(tests) - 1 and tests[at] is None:
            at += 1
            found.add(at)
    return found


def _part(pattern: str) -> _Matches:
    return re.compile(_regex(pattern), re.DOTALL).fullmatch


def _regex(pattern: str) -> str:
    """Of one part. What stands between two `*` is looked for once, and kept."""
    runs = [""]
    for found in _TOKEN.finditer(pattern):
        if found[0].startswith("*"):
            runs.append("")
        else:
            runs[-1] += _one(found[0])
    first, *rest = runs
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>[^/]*?{run})" for run in middle if run) + f"[^/]*{last}"


def _one(token: str) -> str:
    """A regular expression for exactly one character."""
    if token == "?":
        return "[^/]"
    if token.startswith("[") and len(token) > 1:
        inner = token[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"(?!/)[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return re.escape(token[1:] if token.startswith("\\") and len(token) > 1 else token)


def _alternatives(pattern: str) -> Sequence[str]:
    """`a{b,c{d,e}}` is ab, acd and ace. Braces without a partner are letters."""
    waiting, found = [pattern], list[str]()
    while waiting:
        if len(waiting) + len(found) > _MOST:
            raise ToolFailed(
                f"The pattern {pattern!r} stands for more than {_MOST} patterns."
            )
        one = waiting.pop()
        if (choice := _first_choice(one)) is None:
            found.append(one)
        else:
            waiting += choice
    return found


def _first_choice(pattern: str) -> list[str] | None:
    depth, cuts = 0, list[int]()
    for token in _BRACES.finditer(pattern):
        match token[0]:
            case "{":
                depth += 1
                cuts += [token.start()] if depth == 1 else []
            case "," if depth == 1:
                cuts.append(token.start())
            case "}" if depth:
                depth -= 1
                if not depth:
                    return list(_chosen(pattern, [*cuts, token.start()]))
            case _:
                pass
    if depth:
        raise ToolFailed(f"The pattern {pattern!r} makes no sense: a brace is not closed.")
    return None


def _chosen(pattern: str, cuts: Sequence[int]) -> Iterator[str]:
    for start, end in pairwise(cuts):
        yield pattern[: cuts[0]] + pattern[start + 1 : end] + pattern[cuts[-1] + 1 :]
