"""Parses robots.txt (RFC 9309), which lists the paths that programs should not read. Pure.

The longest rule that matches a path decides. Of two rules of the same length, the one that
allows the path decides. `client` fetches the file.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from urllib.parse import unquote

from msgspec import Struct

_ANY_AGENT = "*"
_MAX_RULES = 2_000  # rules of one site


class PathRule(Struct, frozen=True):
    """One Allow or Disallow rule. `pattern` may contain `*`, and `$` at its end."""

    pattern: str
    allows: bool

    def matches(self, path: str) -> bool:
        """Whether the pattern matches the beginning of `path`.

        A pattern that ends with `$` must match all of `path`.
        """
        # No regular expression is used: with many stars, one could take for ever.
        must_end = self.pattern.endswith("$")
        pattern = self.pattern.removesuffix("$")
        if must_end and "*" not in pattern:
            return path == pattern
        first, *pieces = pattern.split("*")
        if not path.startswith(first):
            return False
        offset = len(first)
        last = pieces.pop() if must_end else ""
        # Each piece must occur after the piece before it.
        for piece in pieces:
            index = path.find(piece, offset)
            if index < 0:
                return False
            offset = index + len(piece)
        return path.endswith(last) and len(path) - len(last) >= offset


class Robots(Struct, frozen=True):
    """The rules of a site for one program. An empty sequence allows everything."""

    rules: tuple[PathRule, ...] = ()

    def allows(self, target: str) -> bool:
        """Whether a program may read `target`, which is the path and query of a URL."""
        path = unquote(target)
        matches = [rule for rule in self.rules if rule.matches(path)]
        if not matches:
            return True
        # The longest rule decides; of equally long rules, the one that allows.
        strongest = max(matches, key=lambda rule: (len(rule.pattern), rule.allows))
        return strongest.allows


def parse_robots(text: str, agent: str) -> Robots:
    """Return the rules for the program whose name is `agent`.

    They are the rules of all groups that name the program. If no group names the program, they
    are the rules of the groups for all programs.
    """
    groups = list(_groups(text))
    rule_lists = [rules for names, rules in groups if agent.lower() in names]
    if not rule_lists:
        rule_lists = [rules for names, rules in groups if _ANY_AGENT in names]
    return Robots(tuple(islice(chain.from_iterable(rule_lists), _MAX_RULES)))


def _groups(text: str) -> Iterator[tuple[Sequence[str], Sequence[PathRule]]]:
    """Yield each group of rules: its agent names in lower case, and its rules."""
    names: list[str] = []
    rules: list[PathRule] = []
    has_rules = False  # also after rules that forbid nothing
    for line in text.removeprefix("\ufeff").splitlines():
        rule, _, _comment = line.partition("#")
        before_colon, _, after_colon = rule.partition(":")
        key, value = before_colon.strip().lower(), after_colon.strip()
        if key == "user-agent":
            if has_rules:  # another group begins
                yield names, rules
                names, rules, has_rules = [], [], False
            names.append(value.lower())
        elif key in ("allow", "disallow") and names:
            has_rules = True
            if value:  # an empty path forbids nothing
                rules.append(PathRule(unquote(value), allows=key == "allow"))
    yield names, rules
