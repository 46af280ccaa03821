"""Decides whether a tool call may run. Pure: all facts are arguments.

The first of these that applies decides: a deny rule, an ask rule, protected files and
catastrophic commands, text from outside, the mode, read-only calls, an allow rule. If none
applies, the user is asked. `engine` asks the user, and the sandbox confines commands.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from refold.permissions.facts import Access, Decision, Facts, Target, is_protected
from refold.permissions.path_patterns import literal_paths, start_folders
from refold.permissions.rules import (
    CODE_TOOLS,
    DOMAIN_PREFIX,
    LATER_TOOLS,
    LEAVE_PLAN,
    OUTSIDE_TEXT_REASON,
    OUTSIDE_TOOLS,
    WEB_TOOLS,
    Rule,
    decide_allowed,
    decide_forbidden,
    is_about_reads,
    is_command,
    may_read,
    permits_private,
)
from refold.values.modes import PRIVATE_PREFIX, Mode
from refold.values.path_names import is_steering
from refold.values.tools import Confinement, Effect


def decide(access: Access, mode: Mode, rules: Sequence[Rule], facts: Facts) -> Decision:
    """Decide whether a call may run.

    If rules decide, the decision names the first matching rule with its verdict.
    """
    decision = _decide(access, mode, rules, facts)
    if decision.verdict != "ask":
        return decision
    from refold.permissions.misleading_names import misleading_name

    names = [name for target in access.files for name in (target.path, target.real)]
    clauses = (misleading_name(text) for text in (access.subject, *names))
    warning = next((clause for clause in clauses if clause), "")
    if not warning:
        return decision
    return replace(decision, reason=f"{decision.reason}; look closely: {warning}")


def _decide(access: Access, mode: Mode, rules: Sequence[Rule], facts: Facts) -> Decision:
    """Return the decision of the first check that makes one. The last check always does."""
    if is_command(access):
        # Imported late, because it loads a grammar.
        from refold.permissions.command_verdict import decide_command

        return decide_command(access, mode, rules, facts)
    return (
        decide_forbidden(access, "deny", rules, facts)
        or _decide_private_address(access, rules)
        or _decide_in_plan_mode(access, mode, facts)
        or decide_forbidden(access, "ask", rules, facts)
        or _decide_question(access)
        or _decide_protected(access, facts)
        or _decide_after_outside_text(access, facts)
        or _decide_by_mode(access, mode, facts)
        or _decide_read_only(access, mode, facts)
        or decide_allowed(access, rules, facts)
        or _ask_decision(access, facts)
    )


def is_readable(real: str, rules: Sequence[Rule], facts: Facts) -> bool:
    """Whether a search or a listing may show the content of this file.

    Searches, lists of files and attached folders leave out all other files.
    """
    return may_read(real, rules, facts) and not is_protected(real, facts, writes=False)


def why_unreadable(real: str, rules: Sequence[Rule], facts: Facts) -> str:
    """Return why a deny rule forbids all tools to read this file, or "" if none does."""
    access = Access("read_file", Effect.LOOK, files=(Target(real, real),))
    decision = decide_forbidden(access, "deny", rules, facts)
    return decision.reason if decision else ""


def unreadable_literal_paths(rules: Sequence[Rule], facts: Facts) -> set[str]:
    """Return the files and folders that deny rules without wildcards forbid to read.

    They may be anywhere on the disk.
    """
    return {
        path for rule in _unreadable_patterns(rules) for path in literal_paths(rule, facts)
    }


def folders_with_unreadable(rules: Sequence[Rule], facts: Facts) -> set[str]:
    """Return the folders in which deny rules with wildcards may forbid to read files.

    They may be anywhere on the disk.
    """
    return {
        folder
        for rule in _unreadable_patterns(rules)
        for folder in start_folders(rule, facts)
    }


def _unreadable_patterns(rules: Sequence[Rule]) -> Iterator[str]:
    """Yield the path patterns of the deny rules that forbid reading."""
    return (
        rule.pattern
        for rule in rules
        if rule.verdict == "deny" and rule.pattern and is_about_reads(rule.tool)
    )


def _decide_in_plan_mode(access: Access, mode: Mode, facts: Facts) -> Decision | None:
    """In plan mode, deny a call that could change or run something; return None otherwise."""
    if mode != "plan":
        return None
    is_unconfined = access.tool in CODE_TOOLS and not facts.sandboxed
    if access.effect not in (Effect.CHANGE, Effect.RUN) and not is_unconfined:
        return None
    reason = (
        f"in plan mode nothing is changed or run, and {access.tool} could: {LEAVE_PLAN}"
    )
    return Decision("deny", reason=reason)


def _decide_after_outside_text(access: Access, facts: Facts) -> Decision | None:
    """Ask about a call with effects after the model read text from outside; None otherwise."""
    if not facts.read_outside_text or access.tool in OUTSIDE_TOOLS:
        return None
    is_unconfined = access.tool in CODE_TOOLS and not facts.sandboxed
    if access.effect not in (Effect.CHANGE, Effect.RUN, Effect.NET) and not is_unconfined:
        return None
    return Decision("ask", reason=OUTSIDE_TEXT_REASON, outside=True)


def _decide_private_address(access: Access, rules: Sequence[Rule]) -> Decision | None:
    """Refuse a private address in every mode, unless an allow rule permits it for the host.

    Return None for other calls.
    """
    if access.tool not in WEB_TOOLS:
        return None
    from refold.values.web_address import host_of, is_inside_name

    host = host_of(access.subject)
    has_local_name = is_inside_name(host)
    is_private = access.private or has_local_name
    if not is_private or permits_private(access, rules):
        return None
    prefix = DOMAIN_PREFIX if has_local_name else PRIVATE_PREFIX
    rule = f"{access.tool}({prefix}{host})"
    reason = (
        f"{host} is this machine or in a private network, which is refused in every mode. "
        f"To permit it: --allow '{rule}', or that rule in the settings"
    )
    return Decision("deny", reason=reason)


def _decide_question(access: Access) -> Decision | None:
    if access.effect is not Effect.ASK:
        return None
    return Decision("ask", reason="only the person can answer it", once=True)


def _decide_by_mode(access: Access, mode: Mode, facts: Facts) -> Decision | None:
    """Allow a call that the mode or its effect permits without rules; None for other calls."""
    if mode == "bypass":
        return Decision("allow", reason="mode bypass runs everything without asking")
    if access.effect is Effect.SELF:
        return Decision("allow", reason="it changes only the session")
    edits = access.effect is Effect.CHANGE and not _first_not_covered(access, facts)
    if mode in ("accept-edits", "sandbox") and edits:
        return Decision("allow", reason=f"mode {mode} allows edits in the workspace")
    return None


def _decide_read_only(access: Access, mode: Mode, facts: Facts) -> Decision | None:
    """Allow a call that only reads inside the workspace; None for other calls."""
    if mode == "rules-only" or access.effect is not Effect.LOOK:
        return None
    if _first_outside(access, facts):
        return None
    if access.tool in CODE_TOOLS:
        if not facts.sandboxed:
            return None
        return Decision("allow", reason="it is read-only: a sandbox confines it")
    return Decision("allow", reason="it is read-only, inside the workspace")


def _ask_decision(access: Access, facts: Facts) -> Decision:
    """Return the decision to ask, with the reason why nothing allows the call."""
    if outside := _first_outside(access, facts):
        return Decision("ask", reason=f"{outside} is outside the workspace")
    if access.effect is Effect.CHANGE and (file := _first_not_covered(access, facts)):
        # It is in the workspace, so the mode does not cover it because it instructs agents.
        return Decision("ask", reason=f"{file} instructs agents or tools")
    if access.tool in LATER_TOOLS:
        return Decision(
            "ask",
            reason="it runs later, without a person, with this session's mode and rules",
        )
    return Decision("ask", reason=f"no rule allows {access.tool} here")


def _first_outside(access: Access, facts: Facts) -> str:
    """Return the first file of a call that is outside the workspace, or ""."""
    return next((t.real for t in access.files if facts.outside(t.real)), "")


def _first_not_covered(access: Access, facts: Facts) -> str:
    """Return the first file of a call that mode `accept-edits` does not cover, or "".

    The mode covers no files outside the workspace, and no files that instruct agents.
    """
    if outside := _first_outside(access, facts):
        return outside
    for target in access.files:
        for name in (target.real, target.path):
            if is_steering(name.split("/")):
                return target.real
    return ""


def _decide_protected(access: Access, facts: Facts) -> Decision | None:
    """Ask each time about a call that names a protected file; None for other calls.

    A file that would make a directory a git repository is protected from being written.
    """
    writes = access.effect is not Effect.LOOK
    repository_part = ""
    if writes:
        repository_part = facts.bare_repository_part([t.real for t in access.files])
    for target in access.files:
        names = (target.real, target.path)
        in_repository = bool(repository_part) and repository_part in names
        if in_repository or any(is_protected(name, facts, writes=writes) for name in names):
            reason = f"{target.real} is protected: it holds secrets or decides what runs"
            confines = Confinement(writes=writes, opened=(target.real,))
            return Decision("ask", reason=reason, once=True, confines=confines)
    return None
