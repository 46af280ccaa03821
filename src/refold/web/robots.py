"""Reads robots.txt (RFC 9309): which paths of a site a program should leave alone. Pure.

The longest rule that matches a path decides, and of two that are equally long the one that
allows. `client` fetches the file.
"""

from collections.abc import Iterator, Sequence
from urllib.parse import unquote

from msgspec import Struct

_ANY = "*"
_MOST = 2_000  # rules of one site


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
        at = len(first)
        last = pieces.pop() if ends and pieces else ""
        for piece in pieces:
            found = path.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        if not ends:
            return True
        if "*" not in self.pattern:
            return at == len(path)
        return path.endswith(last) and len(path) - len(last) >= at


class Robots(Struct, frozen=True):
    """Without rules everything is allowed."""

    rules: tuple[PathRule, ...] = ()

    def allows(self, target: str) -> bool:
        path = unquote(target)
        found = [rule for rule in self.rules if rule.matches(path)]
        if not found:
            return True
        return max(found, key=lambda rule: (len(rule.pattern), rule.allows)).allows


def robots(text: str, agent: str) -> Robots:
    """The rules for `agent`: those of its own groups, or, if it has none, those for all."""
    groups = list(_groups(text))
    own = [rules for names, rules in groups if agent.lower() in names]
    found = own or [rules for names, rules in groups if _ANY in names]
    return Robots(tuple(rule for rules in found for rule in rules)[:_MOST])


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
