"""robots.txt is read as RFC 9309 says."""

import pytest

from refold.web.robots import parse_robots

TEXT = """\ufeff# a comment
User-agent: other
Disallow: /

User-agent: *
User-agent: third
Disallow: /private   # and this
Allow: /private/open
Disallow: /*.pdf$
Disallow: /a*b*c
Disallow:
Sitemap: https://example.org/map
"""


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", True),
        ("/private", False),
        ("/private/x?y", False),
        ("/private/open/x", True),
        ("/%70rivate", False),
        ("/x.pdf", False),
        ("/x.pdf?a", True),
        ("/a-b-c-d", False),
        ("/a-c-b", True),
    ],
)
def test_the_longest_rule_for_everybody_decides(path: str, allowed: bool) -> None:
    assert parse_robots(TEXT, "refold").allows(path) is allowed


def test_a_group_of_our_own_replaces_the_one_for_everybody() -> None:
    text = TEXT + "\nUser-Agent: Refold\nDisallow: /only-this\n"

    found = parse_robots(text, "refold")

    assert [found.allows(path) for path in ("/private", "/only-this/a")] == [True, False]


@pytest.mark.parametrize(
    "text", ["", "Disallow: /", "User-agent: *", "<html>", "\0\0:\n:::"]
)
def test_without_a_rule_everything_is_allowed(text: str) -> None:
    assert parse_robots(text, "refold").allows("/a")


def test_a_rule_full_of_stars_takes_no_time() -> None:
    text = f"User-agent: *\nDisallow: /{'*a' * 2_000}b$\n"

    assert parse_robots(text, "refold").allows("/" + "a" * 4_000)
