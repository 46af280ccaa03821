"""Patterns match what git says, and none of them takes long."""

import re
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as some

from refold.values.path_globs import escape_pattern, literal_name, regex


def matches(pattern: str, path: str, *, across: bool = False) -> bool:
    return bool(re.compile(regex(pattern, across=across), re.DOTALL).fullmatch(path))


def match_by_definition(pattern: str, path: str, *, across: bool) -> bool:
    """Letter by letter, with every choice that there is."""

    @cache
    def match_rest(at: int, here: int) -> bool:
        if at == len(pattern):
            return here == len(path)
        char = pattern[at]
        if char != "*":
            fits = here < len(path) and path[here] != "/" if char == "?" else False
            return (fits or path[here : here + 1] == char) and match_rest(at + 1, here + 1)
        end = at + len(pattern[at:]) - len(pattern[at:].lstrip("*"))
        begins = at == 0 or pattern[at - 1] == "/"
        if end - at > 1 and begins and pattern[end : end + 1] == "/":
            starts = {here} | {n + 1 for n in range(here, len(path)) if path[n] == "/"}
            return any(match_rest(end + 1, n) for n in starts)
        deep = end - at > 1 and (across or (begins and end == len(pattern)))
        for n in range(here, len(path) + 1):
            if match_rest(end, n):
                return True
            if path[n : n + 1] == "/" and not deep:
                return False
        return False

    return match_rest(0, 0)


@given(
    some.text(some.sampled_from("ab/**?"), max_size=12),
    some.text(some.sampled_from("ab/"), max_size=12),
    some.booleans(),
)
def test_path_pattern_matches_like_an_exhaustive_search(
    pattern: str, path: str, across: bool
) -> None:
    assert matches(pattern, path, across=across) is match_by_definition(
        pattern, path, across=across
    )


@given(some.text(some.sampled_from("ab/*?[]{}\\!^-é\n"), min_size=1, max_size=8))
def test_escaped_name_as_path_pattern_matches_itself_only(name: str) -> None:
    pattern = escape_pattern(name)

    assert matches(pattern, name)
    assert not matches(pattern, f"{name}a")
    assert literal_name(pattern) == name


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("[a-c]", "abc", "d-/"),
        ("[!a-c]", "d-é", "abc/"),
        ("[^a]", "b", "a/"),
        ("[]a]", "]a", "b"),
        ("[!]a]", "b", "]a"),
        ("[a-]", "a-", "b"),
        ("[[:digit:]x]", "0x", "a:"),
        (r"[\]\\]", "]\\", "a"),
        ("[a/b]", "ab", "/"),
        (r"\[", "[", "a"),
        ("[&&|~^]", "&|~^", "a"),
    ],
)
def test_character_class_of_a_path_pattern_matches_one_character(
    pattern: str, yes: str, no: str
) -> None:
    assert [c for c in yes + no if matches(pattern, c)] == list(yes)


# A matcher that backtracks does not finish any of these.
HOSTILE = [
    "********x",
    "*a" * 20 + "y",
    "?*" * 60 + "y",
    "**/*a" * 12 + "/y",
    "**/" * 60 + "y",
    "**a" * 30 + "**y",
    "*[ab]" * 30 + "y",
    "a*" * 500 + "/" + "*a" * 500,
]


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("pattern", HOSTILE)
def test_matching_a_hostile_path_pattern_ends(pattern: str, across: bool) -> None:
    for path in ("a" * 255, "/".join(["a" * 60] * 15), "a/" * 500):
        assert not matches(pattern, path, across=across)


@pytest.mark.parametrize(
    "pattern", ["[", "[a", "[!]", "[[:no:]]", "[b-a]", "a\\", "x" * 5000]
)
def test_invalid_path_pattern_is_an_error(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        regex(pattern)


@pytest.mark.parametrize("pattern", ["**", "**/**", "**/**/**", "**/*", "**/**/*"])
@pytest.mark.parametrize("path", ["a", "a.txt", "a/b", "a/b/c.txt"])
def test_double_star_pattern_matches_every_file(pattern: str, path: str) -> None:
    assert matches(pattern, path, across=True)
