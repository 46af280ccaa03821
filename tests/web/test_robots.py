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
def test_the_longest_matching_robots_rule_decides(path: str, allowed: bool) -> None:
    assert parse_robots(TEXT, "refold").allows(path) is allowed


def test_a_robots_group_for_refold_replaces_the_general_group() -> None:
    text = TEXT + "\nUser-Agent: Refold\nDisallow: /only-this\n"

    robots = parse_robots(text, "refold")

    assert [robots.allows(path) for path in ("/private", "/only-this/a")] == [True, False]


@pytest.mark.parametrize(
    "text", ["", "Disallow: /", "User-agent: *", "<html>", "\0\0:\n:::"]
)
def test_without_a_matching_robots_rule_every_path_is_allowed(text: str) -> None:
    assert parse_robots(text, "refold").allows("/a")


def test_matching_a_robots_rule_with_many_stars_ends() -> None:
    text = f"User-agent: *\nDisallow: /{'*a' * 2_000}b$\n"

    assert parse_robots(text, "refold").allows("/" + "a" * 4_000)
