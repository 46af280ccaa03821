"""Which rule speaks of a call, and what it says. The order of verdicts is not known here."""

import posixpath
from collections.abc import Sequence
from fnmatch import fnmatchcase

from refold.permissions import path_patterns
from refold.permissions.facts import Access, Decision, Facts
from refold.permissions.rules import Rule, kind_of
from refold.permissions.tool_families import is_about, reads
from refold.values.modes import Verdict

LEAVE_PLAN = "call exit_plan_mode(plan) to ask the person to go on"


def forbidding(
    access: Access, verdict: Verdict, rules: Sequence[Rule], facts: Facts
) -> Decision | None:
    """What a deny or ask rule says. Not for commands."""
    for rule in about(rules, verdict, access):
        if not rule.pattern or _forbids(rule, access, facts):
            return said_by(rule)
    return None


def allowing(access: Access, rules: Sequence[Rule], facts: Facts) -> Decision | None:
    """What an allow rule says, if rules cover the whole of the call. Not for commands."""
    given = list(about(rules, "allow", access))
    if not access.files:
        found = next((r for r in given if _allows(r, access)), None)
        return said_by(found) if found else None
    covering = [
        next((r for r in given if _allows_file(r, target.real, facts)), None)
        for target in access.files
    ]
    first = covering[0]
    return said_by(first) if first and all(covering) else None


def may_read(real: str, rules: Sequence[Rule], facts: Facts) -> bool:
    """Does no deny or ask rule that names files speak against reading this one?"""
    return not any(
        rule.verdict != "allow"
        and rule.pattern
        and reads(rule.tool)
        and (path_patterns.forbids(rule.pattern, real, facts) != "no")
        for rule in rules
    )


def about(rules: Sequence[Rule], verdict: Verdict, access: Access) -> Sequence[Rule]:
    return [
        r
        for r in rules
        if r.verdict == verdict and is_about(r.tool, access.tool, access.effect)
    ]


def said_by(rule: Rule) -> Decision:
    where = f" ({rule.source})" if rule.source else ""
    reason = f"the rule {rule}{where} says {rule.verdict}"
    return Decision(
        rule.verdict, str(rule), rule.source, reason, once=rule.verdict == "ask"
    )


def _forbids(rule: Rule, access: Access, facts: Facts) -> bool:
    if access.files and kind_of(access.tool, access.effect) == "file":
        names = {n for t in access.files for n in (t.real, _absolute(t.path, facts))}
        return any(
            path_patterns.forbids(rule.pattern, name, facts) != "no" for name in names
        )
    return fnmatchcase(access.subject.casefold(), rule.pattern.casefold())


def _allows(rule: Rule, access: Access) -> bool:
    if not rule.pattern:
        return True
    return fnmatchcase(access.subject, rule.pattern)


def _allows_file(rule: Rule, real: str, facts: Facts) -> bool:
    if not rule.pattern:
        # A tool as a whole is allowed in the workspace; what lies outside has to be named.
        return not facts.outside(real)
    return path_patterns.allows(rule.pattern, real, facts)


def _absolute(path: str, facts: Facts) -> str:
    if path == "~" or path.startswith("~/"):
        return posixpath.normpath(facts.home + path[1:])
    return posixpath.normpath(posixpath.join(facts.roots[0], path))
