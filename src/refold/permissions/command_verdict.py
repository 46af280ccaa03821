"""Decides whether a command line may run and how it is confined. Every part of it is judged.

Rules take precedence over each other as in `decide`. `shell` parses the line.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from refold.permissions import path_patterns
from refold.permissions.facts import Access, Decision, Facts, is_protected
from refold.permissions.network_hosts import (
    NetworkRules,
    hosts_of_command,
    hosts_text,
    needs_network,
    network_rules,
    reachable_hosts,
)
from refold.permissions.rules import (
    LEAVE_PLAN,
    OUTSIDE_TEXT_REASON,
    Rule,
    decision_of,
    is_about_changes,
    is_about_reads,
    our_tool_name,
    rules_about,
)
from refold.permissions.shell.catastrophes import catastrophe
from refold.permissions.shell.command_patterns import covers, match_script
from refold.permissions.shell.discards import discards
from refold.permissions.shell.git_read_only import steering_word, writes_no_settings
from refold.permissions.shell.named_files import NamedFile, named_files
from refold.permissions.shell.nested_commands import NestedCommands, find_nested_commands
from refold.permissions.shell.read_only import SurveyedCommand, survey
from refold.permissions.shell.two_readings import part_problem, why_uncertain
from refold.permissions.shell.words import (
    BRACKET,
    MARK_PATTERN,
    QUERY,
    STAR,
    Certainty,
    join_answers,
)
from refold.values.modes import Mode, Verdict
from refold.values.path_names import below, is_steering
from refold.values.tools import Confinement

_EDITOR_OPTIONS = {"-i", "--interactive", "--edit-todo"}  # options of git rebase
# A sandboxed command has its own copies of these, or they contain nothing.
_SANDBOX_PATHS = (
    "/tmp", "/var/tmp", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
    "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd", "/dev/tty",
)  # fmt: skip
# Programs and the files that they need, readable in each sandbox.
_SYSTEM_PATHS = (
    "/bin", "/etc", "/lib", "/lib64", "/nix", "/opt", "/proc", "/sbin", "/usr",
)  # fmt: skip
# A glob without a directory can only match files of the workspace.
_WORKSPACE_GLOB = re.compile(f"[\\w.+{STAR}{QUERY}{BRACKET}\\]-]+")


class _Command(Struct, frozen=True):
    """The results of parsing a command line, which all checks use."""

    access: Access
    cwd: str
    nested: NestedCommands
    files: tuple[NamedFile, ...]
    surveyed: tuple[SurveyedCommand, ...]
    granted: tuple[str, ...] = ()  # files outside the workspace that a rule allows to read
    unread: str = ""  # why it could not be parsed with certainty, and which part
    hosts: tuple[str, ...] = ()  # hosts that it certainly needs
    network: NetworkRules = NetworkRules()

    @property
    def only_looks(self) -> bool:
        quiet = bool(self.surveyed) and not any(p.problem for p in self.surveyed)
        return quiet and not self.access.network

    @property
    def problem(self) -> str:
        """Why the user must approve the command if no rule allows it."""
        if self.only_looks:
            return "here only what a rule allows runs without asking"
        if self.access.network and not any(p.problem for p in self.surveyed):
            return "it needs the network"
        problems = (part_problem(p, self.surveyed) for p in self.surveyed if p.problem)
        return next(problems, self.unread)


def decide_command(
    access: Access, mode: Mode, rules: Sequence[Rule], facts: Facts
) -> Decision:
    """Decide whether a command may run, and which hosts it may reach.

    A command that certainly needs the network gets it without asking for it, if the verdict
    stays the same: a yes to `git push` without a network would only lead to the next question.
    """
    decision = _decide(access, mode, rules, facts)
    if access.network or decision.verdict == "deny" or not facts.filters_hosts:
        return decision
    if not needs_network(find_nested_commands(access.subject), facts):
        return decision
    online = _decide(structs.replace(access, network=True), mode, rules, facts)
    if online.verdict != decision.verdict or online.confines.hosts is None:
        return decision
    return online


def _decide(access: Access, mode: Mode, rules: Sequence[Rule], facts: Facts) -> Decision:
    command = _examine(access, rules, facts)
    confines = _confinement_of(command, mode, facts)
    decision = (
        _decide_in_plan_mode(command, mode, rules, facts)
        or _decide_by_rules(command, "deny", rules, facts)
        or command.network.decision_on_hosts(access, command.hosts, "deny")
        or _decide_by_rules(command, "ask", rules, facts)
        or command.network.decision_on_hosts(access, command.hosts, "ask")
        or _decide_grave(command, facts)
        or _decide_after_outside_text(command, facts)
        or _decide_by_mode(mode)  # only bypass decides here
        or _decide_read_only(command, mode)
        or _decide_hosts(command, _decide_by_allow_rules(command, rules, mode), facts)
        or _decide_hosts(command, _decide_by_script_rule(command, rules, facts), facts)
        or _decide_in_sandbox(command, mode, facts)
        or _ask_decision(command)
    )
    if command.access.network and facts.filters_hosts:
        verdict = decision.verdict
        hosts = reachable_hosts(verdict, mode, command.hosts, command.network)
        confines = structs.replace(confines, hosts=hosts)
        if verdict == "ask":
            reason = f"{decision.reason}; it would reach {hosts_text(hosts)}"
            decision = structs.replace(decision, reason=reason)
    elif command.network.denied and facts.filters_hosts:
        # The setting `sandbox.network` gives every command the network.
        hosts = command.network.every_host_but_denied
        confines = structs.replace(confines, hosts=hosts)
    is_unseen = decision.verdict == "allow" and not _why_git_may_run_programs(command)
    git_settings = confines.opened
    if is_unseen or not _changes_git_settings(command):
        # Only git itself may write settings: the user does not see them, or git needs none.
        confines = structs.replace(confines, opened=(), of_git=git_settings)
    if git_settings and not is_unseen and _edits_rebase(command):
        listed = _paths_in_git(command, facts, ".git/rebase-merge")
        confines = structs.replace(confines, opened=(*confines.opened, *listed))
    return structs.replace(decision, confines=_join(confines, decision.confines))


def _examine(access: Access, rules: Sequence[Rule], facts: Facts) -> _Command:
    cwd = posixpath.normpath(posixpath.join(facts.roots[0], access.cwd or "."))
    nested = find_nested_commands(access.subject)
    allows = [
        r for r in rules if r.verdict == "allow" and is_about_reads(r.tool) and r.pattern
    ]

    def is_free(real: str) -> bool:  # it may be read without asking
        if is_protected(real, facts, writes=False) and not _is_shared(real, facts):
            return False
        return not facts.outside(real) or any(
            path_patterns.allows(r.pattern, real, facts) for r in allows
        )

    surveyed = survey(access.subject, cwd, facts, is_free)
    if unread := why_uncertain(access.subject, nested, surveyed):
        surveyed = ()
    files = tuple(named_files(nested, cwd, facts))
    outside = (
        f.real for f in files if allows and facts.outside(f.real) and is_free(f.real)
    )
    granted = tuple(dict.fromkeys(outside))
    hosts = hosts_of_command(access, nested, facts)
    network = network_rules(rules)
    return _Command(access, cwd, nested, files, surveyed, granted, unread, hosts, network)


def _decide_by_rules(
    command: _Command,
    verdict: Verdict,
    rules: Sequence[Rule],
    facts: Facts,
    *,
    sure: bool = False,
) -> Decision | None:
    """Return the decision of the first rule with this verdict that certainly matches, or None.

    If a rule only may match, return a question about it, unless `sure` is set.
    """
    unsure: Rule | None = None
    for rule, match in _matching_rules(command, verdict, rules, facts):
        if match == "yes":
            return decision_of(rule)
        if match == "maybe" and unsure is None:
            unsure = rule
    if sure or not unsure:
        return None
    why = f", since {command.unread}" if command.unread else ""
    reason = (
        f"the rule {unsure} says {verdict}, and refold cannot tell whether it "
        f"matches this command{why}: write its words out"
    )
    return Decision("ask", str(unsure), unsure.source, reason, once=True)


def _matching_rules(
    command: _Command, verdict: Verdict, rules: Sequence[Rule], facts: Facts
) -> Iterator[tuple[Rule, Certainty]]:
    """Yield each rule with this verdict, and whether it matches. Rules about the tool come
    first.
    """
    script = command.access.subject
    for rule in rules_about(rules, verdict, command.access):
        yield rule, match_script(rule.pattern, script) if rule.pattern else "yes"
    for rule in rules:
        is_for_commands = our_tool_name(rule.tool) == "bash"
        if rule.verdict != verdict or not rule.pattern or is_for_commands:
            continue
        if is_about_reads(rule.tool):
            yield rule, _match_files(rule, command.files, facts)
        if is_about_changes(rule.tool):
            written = [n for n in command.files if n.writes]
            yield rule, _match_files(rule, written, facts)


def _match_files(rule: Rule, files: Sequence[NamedFile], facts: Facts) -> Certainty:
    answers = {
        path_patterns.forbids(rule.pattern, path, facts)
        for file in files
        for path in {file.path, file.real, *_path_below(file)}
        if not path.startswith("\0")  # begins with unknown text
    }
    return join_answers(answers)


def _path_below(file: NamedFile) -> tuple[str, ...]:
    """Return one path that stands for all files below; () if only the file itself is meant.

    The path ends with a gap, which matches any name.
    """
    return (file.real.rstrip("/") + "/\0",) if file.deep else ()


def _decide_grave(command: _Command, facts: Facts) -> Decision | None:
    grave = catastrophe(command.nested, command.cwd, facts)
    if reason := grave or _why_git_may_run_programs(command):
        return Decision(
            "ask", reason=f"{reason}, so it is asked about in every mode", once=True
        )
    opened = tuple(dict.fromkeys(_protected_paths(command, facts)))
    if not opened:
        return None
    reason = (
        f"it names {opened[0]}, which is protected: it holds secrets or decides what runs"
    )
    return Decision("ask", reason=reason, once=True, confines=Confinement(opened=opened))


def _protected_paths(command: _Command, facts: Facts) -> Iterator[str]:
    for file in command.files:
        if _is_shared(file.real, facts):
            continue
        for path in dict.fromkeys((file.real, file.path)):
            if path.startswith("/") and is_protected(path, facts, writes=not file.looks):
                yield file.real
                break  # one of its two paths suffices


def _is_shared(real: str, facts: Facts) -> bool:
    """Whether a path is in a directory that the sandbox makes read-only."""
    return facts.sandboxed and any(below(real, shared) for shared in facts.shared)


def _why_git_may_run_programs(command: _Command) -> str:
    for words in command.nested.commands:
        values = [w.text for w in words]
        if values[0].rsplit("/", 1)[-1] == "git" and (word := steering_word(values)):
            return f"git {word} can make git run other programs"
    return ""


def _decide_in_plan_mode(
    command: _Command, mode: Mode, rules: Sequence[Rule], facts: Facts
) -> Decision | None:
    """In plan mode, refuse what may do more than read, citing a deny rule if one matches."""
    if mode != "plan" or command.only_looks:
        return None
    why = f"plan mode runs only read-only commands, and {command.problem}"
    planned = Decision("deny", reason=f"{why}: {LEAVE_PLAN}")
    return _decide_by_rules(command, "deny", rules, facts, sure=True) or planned


def _decide_after_outside_text(command: _Command, facts: Facts) -> Decision | None:
    if not facts.read_outside_text or command.only_looks:
        return None
    return Decision("ask", reason=OUTSIDE_TEXT_REASON, outside=True)


def _decide_by_mode(mode: Mode) -> Decision | None:
    if mode == "bypass":
        return Decision("allow", reason="mode bypass runs everything without asking")
    return None


def _decide_read_only(command: _Command, mode: Mode) -> Decision | None:
    if mode == "rules-only" or not command.only_looks:
        return None
    return Decision("allow", reason="every part of it is read-only, inside the workspace")


def _decide_by_allow_rules(
    command: _Command, rules: Sequence[Rule], mode: Mode
) -> Decision | None:
    allow_rules = rules_about(rules, "allow", command.access)
    if rule_for_all := next((r for r in allow_rules if not r.pattern), None):
        return decision_of(rule_for_all)
    used = list[Rule]()
    for part in command.surveyed:
        rule = _covering_rule(part, allow_rules)
        only_reads = not part.problem and mode != "rules-only"
        if rule is None and not (part.changes_directory or only_reads):
            return None
        if rule:
            used.append(rule)
    return decision_of(used[0]) if used else None  # the first rule is cited


def may_allow_whole_script(access: Access, facts: Facts) -> bool:
    """Whether an allow rule may cover this script by repeating its whole text."""
    return _is_repeatable(_examine(access, (), facts), facts)


def _is_repeatable(command: _Command, facts: Facts) -> bool:
    from refold.permissions.shell.whole_scripts import is_repeatable

    return is_repeatable(
        command.access.subject.strip(), command.nested, command.files, facts
    )


def _decide_by_script_rule(
    command: _Command, rules: Sequence[Rule], facts: Facts
) -> Decision | None:
    """Allow a script if an allow rule repeats its whole text and may cover it; else None."""
    from refold.permissions.shell.whole_scripts import has_unknown_arguments

    text = command.access.subject.strip()
    allow_rules = rules_about(rules, "allow", command.access)
    rule = next((r for r in allow_rules if r.pattern.strip() == text), None)
    if rule is None or not _is_repeatable(command, facts):
        return None
    narrow = has_unknown_arguments(command.nested)
    return structs.replace(decision_of(rule), confines=Confinement(narrow=narrow))


def _decide_hosts(
    command: _Command, decision: Decision | None, facts: Facts
) -> Decision | None:
    """Return `decision`, or a question if hosts need allow rules and a needed host has none."""
    if decision is None or not command.network.allowed or not facts.filters_hosts:
        return decision
    if not (missing := command.network.without_allow_rule(command.hosts)):
        return decision
    reason = f"no rule lets a command reach {', '.join(missing)}"
    return Decision("ask", reason=reason, confines=decision.confines)


def _covering_rule(part: SurveyedCommand, allow_rules: Sequence[Rule]) -> Rule | None:
    if part.writes_elsewhere:  # no command rule covers that file
        return None
    if not part.at_home and part.part.values[0].rsplit("/", 1)[-1] == "git":
        # Another directory can be another repository, with settings of its own.
        return None
    return next((r for r in allow_rules if covers(r.pattern, part.part)), None)


def _decide_in_sandbox(command: _Command, mode: Mode, facts: Facts) -> Decision | None:
    """In mode `sandbox`, allow what the sandbox can confine and ask about the rest."""
    if mode != "sandbox":
        return None
    if reason := _why_sandbox_is_not_enough(command, facts):
        return Decision("ask", reason=f"mode sandbox does not cover it: {reason}")
    reason = "the sandbox keeps it to the workspace, without network or keys"
    if command.access.network:
        reason = "the sandbox keeps it to the workspace and to hosts that rules name"
    return Decision("allow", reason=reason, confines=Confinement(narrow=True))


def _why_sandbox_is_not_enough(command: _Command, facts: Facts) -> str:
    """Return why the sandbox cannot confine this command enough, or ""."""
    if not facts.sandboxed:
        return "no sandbox works on this machine"
    has_host_rules = facts.filters_hosts and command.network.allowed
    uncovered = command.network.without_allow_rule(command.hosts)
    if command.access.network and (uncovered or not has_host_rules):
        return "it needs the network"
    if reason := _why_not_judged(command):
        return reason
    for words in command.nested.commands:
        program = words[0].value
        if MARK_PATTERN.search(program) and not _WORKSPACE_GLOB.fullmatch(program):
            return "which program it runs is not known before it runs"
    for file in command.files:
        if _is_elsewhere(file, facts):
            return f"it names {file.real}, which is outside the workspace"
        if not file.looks and is_steering(file.real.split("/")):
            return f"{file.real} instructs agents or tools"
    return discards(command.nested) or _why_git_cannot_record(command, facts)


def _why_git_cannot_record(command: _Command, facts: Facts) -> str:
    """Return why git needs approval, or "": it tracks a file that the sandbox hides."""
    runs = any(w[0].text.rsplit("/", 1)[-1] == "git" for w in command.nested.commands)
    if command.only_looks or not runs or not (path := facts.tracked_keys()):
        return ""
    return f"git has {path}, which commands that run without asking do not see"


def _why_not_judged(command: _Command) -> str:
    nested = command.nested
    if not nested.commands:
        emptied = next((r.target.text for r in nested.redirects if r.writes), "")
        if emptied:  # a redirection alone, such as `> file`
            return f"it empties {emptied}"
        return command.unread or "it holds no command"
    if nested.broken or nested.hidden:
        return command.unread or "refold cannot parse it with certainty"
    return ""


def _is_elsewhere(file: NamedFile, facts: Facts) -> bool:
    """Whether a file is outside the workspace, at a path that some sandboxes lack."""
    real = file.real
    if not real.startswith("/"):
        return False
    if not facts.outside(real):
        return False
    if any(below(real, directory) for directory in (*facts.shared, *_SANDBOX_PATHS)):
        return False
    return not (file.looks and any(below(real, directory) for directory in _SYSTEM_PATHS))


def _ask_decision(command: _Command) -> Decision:
    return Decision("ask", reason=f"no rule allows this command, and {command.problem}")


def _confinement_of(command: _Command, mode: Mode, facts: Facts) -> Confinement:
    writing = mode != "plan" and not (command.only_looks or _only_reads(command, facts))
    opened = _writable_git_paths(command, facts) if writing else ()
    return Confinement(writing, command.access.network, opened, command.granted)


def _only_reads(command: _Command, facts: Facts) -> bool:
    """Whether the command names protected files, and only reads files of the workspace."""
    if command.unread or not any(_protected_paths(command, facts)):
        return False
    surveyed = survey(
        command.access.subject, command.cwd, facts, lambda p: not facts.outside(p)
    )
    return bool(surveyed) and not any(part.problem for part in surveyed)


def _writable_git_paths(command: _Command, facts: Facts) -> tuple[str, ...]:
    """Return the settings and hooks that git may write; () if another program may write."""
    only_git = bool(command.surveyed) and all(
        p.part.values[0] == "git" or not p.problem for p in command.surveyed
    )
    if not only_git or not any(p.part.values[0] == "git" for p in command.surveyed):
        return ()
    return _paths_in_git(command, facts, ".git/config", ".git/hooks", ".gitmodules")


def _paths_in_git(command: _Command, facts: Facts, *names: str) -> tuple[str, ...]:
    bases = dict.fromkeys((command.cwd, *facts.roots))
    return tuple(f"{base.rstrip('/')}/{name}" for base in bases for name in names)


def _changes_git_settings(command: _Command) -> bool:
    values = [part.part.values for part in command.surveyed]
    return any(v[0] == "git" and not writes_no_settings(v) for v in values)


def _edits_rebase(command: _Command) -> bool:
    """Whether a `git rebase` edits its list of steps, which may run programs."""
    values = [part.part.values for part in command.surveyed]
    return any(
        v[0] == "git"
        and "rebase" in v
        and (steering_word(v) or not _EDITOR_OPTIONS.isdisjoint(v))
        for v in values
    )


def _join(first: Confinement, second: Confinement) -> Confinement:
    opened = tuple(dict.fromkeys((*first.opened, *second.opened)))
    return structs.replace(first, opened=opened, narrow=second.narrow)
