"""May this call run? Pure: everything it needs is handed to it.

The order is fixed, and the first that speaks decides: a deny rule, an ask rule,
protected files and catastrophes, the mode, the set of calls that only look, an allow
rule; what nobody spoke for is asked about. Who is asked, and how, is the seam's
business; that a command is kept to its confines, the place's.
"""

from collections.abc import Sequence

from refold.permissions.facts import Decision, Facts, Target, Touch
from refold.permissions.families import CODE, COMMANDS, reads
from refold.permissions.matching import LEAVE_PLAN, allowing, forbidding, may_read
from refold.permissions.paths import beginnings, whole
from refold.permissions.protected import protected
from refold.permissions.rules import Rule
from refold.values.confines import Confines
from refold.values.guarded import steering
from refold.values.rights import Mode
from refold.values.tools import Effect


def decide(touch: Touch, mode: Mode, rules: Sequence[Rule], facts: Facts) -> Decision:
    """`rules` may stand in any order; of those with one verdict the first is named."""
    if touch.tool in COMMANDS:
        # Not wanted where no command is ever judged: a grammar is loaded.
        from refold.permissions.commands import decide_command

        return decide_command(touch, mode, rules, facts)
    return (
        forbidding(touch, "deny", rules, facts)
        or _planning(touch, mode, facts)
        or forbidding(touch, "ask", rules, facts)
        or _for_the_person(touch)
        or _protected(touch, facts)
        or _by_mode(touch, mode, facts)
        or _looking(touch, mode, facts)
        or allowing(touch, rules, facts)
        or _asked(touch, facts)
    )


def readable(real: str, rules: Sequence[Rule], facts: Facts) -> bool:
    """May the content of this file be shown by a tool that was told a folder only?

    For whatever walks: a search, a list of files, an attached folder.
    """
    return may_read(real, rules, facts) and not protected(real, facts, writes=False)


def unreadable(real: str, rules: Sequence[Rule], facts: Facts) -> str:
    """Why a deny rule keeps this file from being read, whatever tool is used, or ""."""
    found = Touch("read_file", Effect.LOOK, files=(Target(real, real),))
    decision = forbidding(found, "deny", rules, facts)
    return decision.reason if decision else ""


def unreadable_as_a_whole(rules: Sequence[Rule], facts: Facts) -> set[str]:
    """Files and folders, anywhere on the disk, that deny rules on reading name literally."""
    return {
        path
        for rule in rules
        if rule.verdict == "deny" and rule.pattern and reads(rule.tool)
        for path in whole(rule.pattern, facts)
    }


def folders_with_unreadable(rules: Sequence[Rule], facts: Facts) -> set[str]:
    """Folders, anywhere, below which deny rules on reading may mean some of the files."""
    return {
        folder
        for rule in rules
        if rule.verdict == "deny" and rule.pattern and reads(rule.tool)
        for folder in beginnings(rule.pattern, facts)
    }


def _planning(touch: Touch, mode: Mode, facts: Facts) -> Decision | None:
    unwalled = touch.tool in CODE and not facts.sandboxed
    if mode != "plan" or (touch.effect not in (Effect.CHANGE, Effect.RUN) and not unwalled):
        return None
    reason = f"in plan mode nothing is changed or run, and {touch.tool} could: {LEAVE_PLAN}"
    return Decision("deny", reason=reason)


def _for_the_person(touch: Touch) -> Decision | None:
    if touch.effect is not Effect.ASK:
        return None
    return Decision("ask", reason="only the person can answer it", once=True)


def _by_mode(touch: Touch, mode: Mode, facts: Facts) -> Decision | None:
    if mode == "bypass":
        return Decision("allow", reason="everything runs unasked in mode bypass")
    if touch.effect is Effect.SELF:
        return Decision("allow", reason="it changes only the session")
    edits = touch.effect is Effect.CHANGE and not _not_meant(touch, facts)
    if mode == "accept-edits" and edits:
        return Decision("allow", reason="edits run unasked in mode accept-edits")
    return None


def _looking(touch: Touch, mode: Mode, facts: Facts) -> Decision | None:
    if mode == "rules-only" or touch.effect is not Effect.LOOK or _outside(touch, facts):
        return None
    if touch.tool in CODE:
        walled = Decision("allow", reason="it can only look: a sandbox holds it")
        return walled if facts.sandboxed else None
    return Decision("allow", reason="it only looks, inside the workspace")


def _asked(touch: Touch, facts: Facts) -> Decision:
    if outside := _outside(touch, facts):
        return Decision("ask", reason=f"{outside} is outside the workspace")
    if steers := _not_meant(touch, facts) if touch.effect is Effect.CHANGE else "":
        return Decision("ask", reason=f"{steers} says what agents or tools do here")
    return Decision("ask", reason=f"no rule allows {touch.tool} here")


def _outside(touch: Touch, facts: Facts) -> str:
    return next((t.real for t in touch.files if facts.outside(t.real)), "")


def _not_meant(touch: Touch, facts: Facts) -> str:
    """A file that who allowed edits did not mean, or ""."""
    names = ((t.real, name) for t in touch.files for name in (t.real, t.path))
    steers = (real for real, name in names if steering(name.split("/")))
    return _outside(touch, facts) or next(steers, "")


def _protected(touch: Touch, facts: Facts) -> Decision | None:
    writes = touch.effect is not Effect.LOOK
    for target in touch.files:
        for path in (target.real, target.path):
            if protected(path, facts, writes=writes):
                reason = (
                    f"{target.real} is protected: it holds secrets or decides what runs"
                )
                confines = Confines(writes=writes, opened=(target.real,))
                return Decision("ask", reason=reason, once=True, confines=confines)
    return None
