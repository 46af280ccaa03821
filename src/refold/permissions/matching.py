"""Which rule speaks of a call, and what it says. The order of verdicts is not known here."""

import posixpath
from collections.abc import Sequence
from fnmatch import fnmatchcase

from refold.permissions import domains, paths
from refold.permissions.facts import Decision, Facts, Touch
from refold.permissions.families import is_about, reads
from refold.permissions.rules import Rule, kind_of
from refold.values.rights import Verdict

LEAVE_PLAN = "call exit_plan_mode(plan) to ask the person to go on"


def forbidding(
    touch: Touch, verdict: Verdict, rules: Sequence[Rule], facts: Facts
) -> Decision | None:
    """What a deny or ask rule says. Not for commands."""
    for rule in about(rules, verdict, touch):
        if not rule.pattern or _forbids(rule, touch, facts):
            return said_by(rule)
    return None


def allowing(touch: Touch, rules: Sequence[Rule], facts: Facts) -> Decision | None:
    """What an allow rule says, if rules cover the whole of the call. Not for commands."""
    given = list(about(rules, "allow", touch))
    if not touch.files:
        found = next((r for r in given if _allows(r, touch)), None)
        return said_by(found) if found else None
    covering = [
        next((r for r in given if _allows_file(r, target.real, facts)), None)
        for target in touch.files
    ]
    first = covering[0]
    return said_by(first) if first and all(covering) else None


def may_read(real: str, rules: Sequence[Rule], facts: Facts) -> bool:
    """Does no deny or ask rule that names files speak against reading this one?"""
    return not any(
        rule.verdict != "allow"
        and rule.pattern
        and reads(rule.tool)
        and (paths.forbids(rule.pattern, real, facts) != "no")
        for rule in rules
    )


def about(rules: Sequence[Rule], verdict: Verdict, touch: Touch) -> Sequence[Rule]:
    return [
        r
        for r in rules
        if r.verdict == verdict and is_about(r.tool, touch.tool, touch.effect)
    ]


def said_by(rule: Rule) -> Decision:
    where = f" ({rule.source})" if rule.source else ""
    reason = f"the rule {rule}{where} says {rule.verdict}"
    return Decision(
        rule.verdict, str(rule), rule.source, reason, once=rule.verdict == "ask"
    )


def _forbids(rule: Rule, touch: Touch, facts: Facts) -> bool:
    if touch.files and kind_of(touch.tool, touch.effect) == "file":
        names = {n for t in touch.files for n in (t.real, _absolute(t.path, facts))}
        return any(paths.forbids(rule.pattern, name, facts) != "no" for name in names)
    if touch.tool == "web_fetch":
        return rule.pattern == "*" or domains.forbids(rule.pattern, touch.subject)
    return fnmatchcase(touch.subject.casefold(), rule.pattern.casefold())


def _allows(rule: Rule, touch: Touch) -> bool:
    if not rule.pattern:
        return True
    if touch.tool == "web_fetch":
        found = domains.host(touch.subject) and rule.pattern == "*"
        return bool(found) or domains.allows(rule.pattern, touch.subject)
    return fnmatchcase(touch.subject, rule.pattern)


def _allows_file(rule: Rule, real: str, facts: Facts) -> bool:
    if not rule.pattern:
        # A tool as a whole is allowed in the workspace; what lies outside has to be named.
        return not facts.outside(real)
    return paths.allows(rule.pattern, real, facts)


def _absolute(path: str, facts: Facts) -> str:
    if path == "~" or path.startswith("~/"):
        return posixpath.normpath(facts.home + path[1:])
    return posixpath.normpath(posixpath.join(facts.roots[0], path))
