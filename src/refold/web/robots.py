"""Reads robots.txt (RFC 9309): which paths of a site a program should leave alone. Pure.

The longest rule that matches a path decides, and of two that are equally long the one that
allows. `client` fetches the file.
"""

from collections.abc import Iterator, Sequence
from urllib.parse import unquote

from msgspec import Struct

_ANY_AGENT = "*"
_MAX_RULES = 2_000  # rules of one site


class PathRule(Struct, frozen=True):
    """`pattern` may hold `*`, and `$` at its end."""

    pattern: str
    allows: bool

    def matches(self, path: str) -> bool:
        # No regular expression: with many stars it could take for ever.
        ends = self.pattern.endswith("$")
        first, *pieces = self.pattern.removesuffix("$").split("*")
        if not path.startswith(first):
            return False
        offset = len(first)
        last = pieces.pop() if ends and pieces else ""
        for piece in pieces:
            index = path.find(piece, offset)
            if index < 0:
                return False
            offset = index + len(piece)
        if not ends:
            return True
        if "*" not in self.pattern:
            return offset == len(path)
        return path.endswith(last) and len(path) - len(last) >= offset


class Robots(Struct, frozen=True):
    """Without rules everything is allowed."""

    rules: tuple[PathRule, ...] = ()

    def allows(self, target: str) -> bool:
        path = unquote(target)
        matches = [rule for rule in self.rules if rule.matches(path)]
        if not matches:
            return True
        return max(matches, key=lambda rule: (len(rule.pattern), rule.allows)).allows


def parse_robots(text: str, agent: str) -> Robots:
    """The rules for `agent`: those of its own groups, or, if it has none, those for all."""
    groups = list(_groups(text))
    own = [rules for names, rules in groups if agent.lower() in names]
    rule_lists = own or [rules for names, rules in groups if _ANY_AGENT in names]
    return Robots(tuple(rule for rules in rule_lists for rule in rules)[:_MAX_RULES])


def _groups(text: str) -> Iterator[tuple[Sequence[str], Sequence[PathRule]]]:
    names, rules, ruled = list[str](), list[PathRule](), False
    for row in text.removeprefix("\ufeff").splitlines():
        key, _, value = row.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if key == "user-agent":
            if ruled:
                yield names, rules
                names, rules, ruled = [], [], False
            names.append(value.lower())
        elif key in ("allow", "disallow") and names:
            ruled = True
            if value:  # an empty path forbids nothing
                rules.append(PathRule(unquote(value), key == "allow"))
    yield names, rules
