"""The permission rules of the settings, checked, each with where it was written.

What a rule means is `permissions.rules`' business.
"""

from collections.abc import Iterable
from typing import cast

import msgspec
from msgspec.structs import replace

from refold.config.layers import Origin
from refold.config.settings import Permissions, RuleWithCases
from refold.errors import BadInput
from refold.permissions.rules import Rule, checked, parse
from refold.values.rights import Verdict

SETTINGS = "settings"  # the source of a rule that came from no file and no flag


def rules_of(permissions: Permissions, place: str = "") -> tuple[Rule, ...]:
    """Raises `BadInput` for a rule that is none, or that breaks its own examples.

    It begins with `place`, or else with the source of the rule.
    """
    found: list[tuple[Verdict, RuleWithCases | str]] = [
        *(("deny", each) for each in permissions.deny),
        *(("ask", each) for each in permissions.ask),
        *(("allow", each) for each in permissions.allow),
    ]
    return tuple(_rule(verdict, each, place) for verdict, each in found)


def sourced(items: Iterable[object], origin: Origin) -> tuple[RuleWithCases, ...]:
    """Rules as the layers give them, told where they are written."""
    return tuple(_sourced(each, origin) for each in items)


def _rule(verdict: Verdict, found: RuleWithCases | str, place: str) -> Rule:
    written = RuleWithCases(rule=found) if isinstance(found, str) else found
    source = written.source or SETTINGS
    try:
        rule = parse(written.rule, verdict, source)
    except BadInput as error:
        raise BadInput(f"{place or Origin(None, source).place}: {error}") from error
    return checked(replace(rule, match=written.match, not_match=written.not_match))


def _sourced(item: object, origin: Origin) -> RuleWithCases:
    if isinstance(item, str):
        return RuleWithCases(rule=item, source=origin.origin)
    if isinstance(item, RuleWithCases):
        return item if item.source else replace(item, source=origin.origin)
    if "source" in cast("dict[str, object]", item):
        raise BadInput(
            f"{origin.place}: the rule {item!r} must not say its source: refold knows it"
        )
    return replace(msgspec.convert(item, RuleWithCases), source=origin.origin)
