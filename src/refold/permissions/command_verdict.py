"""Decides whether a command line may run and how it is confined. Every part of it is judged.

Rules take precedence over each other as in `decide`. `shell` parses the line.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import structs

from refold.permissions import path_patterns
from refold.permissions.facts import Access, Decision, Facts, is_protected
from refold.permissions.network_hosts import (
    hosts_text,
    needs_network,
    reachable_hosts,
)
from refold.permissions.parsed_command import ParsedCommand, is_shared, parse_command
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
from refold.permissions.shell.git_read_only import (
    word_that_runs_programs,
    writes_no_settings,
)
from refold.permissions.shell.named_files import NamedFile
from refold.permissions.shell.nested_commands import find_nested_commands
from refold.permissions.shell.read_only import SurveyedCommand, survey
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


def decide_command(
    access: Access, mode: Mode, rules: Sequence[Rule], facts: Facts
) -> Decision:
    """Decide whether a command may run, and which hosts it may reach.

    A command that certainly needs the network gets it even if the call did not ask for it,
    unless that changes the verdict. An approved `git push` would fail without a network.
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
    """Return the decision of the first check that makes one, with the sandbox it needs."""
    command = parse_command(access, rules, facts)
    decision = (
        _decide_in_plan_mode(command, mode, rules, facts)
        or _decide_by_rules(command, "deny", rules, facts)
        or command.network.decision_on_hosts(access, command.hosts, "deny")
        or _decide_by_rules(command, "ask", rules, facts)
        or command.network.decision_on_hosts(access, command.hosts, "ask")
        or _decide_about_danger(command, facts)
        or _decide_after_outside_text(command, facts)
        or _decide_by_mode(mode)  # only bypass decides here
        or _decide_read_only(command, mode)
        or _decide_hosts(command, _decide_by_allow_rules(command, rules, mode), facts)
        or _decide_hosts(command, _decide_by_script_rule(command, rules, facts), facts)
        or _decide_in_sandbox(command, mode, facts)
        or _ask_decision(command)
    )
    confines = _confinement_of(command, mode, facts)
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
    confines = _confine_git(confines, command, decision, facts)
    return structs.replace(decision, confines=_join(confines, decision.confines))


def _confine_git(
    confines: Confinement, command: ParsedCommand, decision: Decision, facts: Facts
) -> Confinement:
    """Return `confines`. Only a command that the user sees may write git's settings."""
    git_settings = confines.opened
    is_unseen = decision.verdict == "allow" and not _why_git_may_run_programs(command)
    if is_unseen or not _changes_git_settings(command):
        # Only git itself may write settings: the user does not see them, or git needs none.
        confines = structs.replace(confines, opened=(), of_git=git_settings)
    if git_settings and not is_unseen and _edits_rebase(command):
        steps = _paths_in_git(command, facts, ".git/rebase-merge")
        confines = structs.replace(confines, opened=(*confines.opened, *steps))
    return confines


def _decide_by_rules(
    command: ParsedCommand,
    verdict: Verdict,
    rules: Sequence[Rule],
    facts: Facts,
    *,
    sure: bool = False,
) -> Decision | None:
    """Return the decision of the first rule with this verdict that surely matches, or None.

    If no rule surely matches, return a question about a rule that may match, unless `sure`.
    """
    unsure: Rule | None = None
    for rule, match in _matching_rules(command, verdict, rules, facts):
        if match == "yes":
            return decision_of(rule)
        if match == "maybe" and unsure is None:
            unsure = rule
    if sure or not unsure:
        return None
    why = f", since {command.uncertainty}" if command.uncertainty else ""
    reason = (
        f"the rule {unsure} says {verdict}, and refold cannot tell whether it "
        f"matches this command{why}: write its words out"
    )
    return Decision("ask", str(unsure), unsure.source, reason, once=True)


def _matching_rules(
    command: ParsedCommand, verdict: Verdict, rules: Sequence[Rule], facts: Facts
) -> Iterator[tuple[Rule, Certainty]]:
    """Yield each rule with this verdict, and whether it matches. Rules about the tool come
    first, and then rules about files, which apply to the files that the command names.
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
            written = [file for file in command.files if file.writes]
            yield rule, _match_files(rule, written, facts)


def _match_files(rule: Rule, files: Sequence[NamedFile], facts: Facts) -> Certainty:
    """Return whether a deny or ask rule matches one of the files, or a file below it."""
    answers = set[Certainty]()
    for file in files:
        for path in {file.path, file.real, *_path_below(file)}:
            if not path.startswith("\0"):  # begins with unknown text
                answers.add(path_patterns.forbids(rule.pattern, path, facts))
    return join_answers(answers)


def _path_below(file: NamedFile) -> tuple[str, ...]:
    """Return one path that stands for all files below; () if only the file itself is meant.

    The path ends with a gap, which matches any name.
    """
    return (file.real.rstrip("/") + "/\0",) if file.recursive else ()


def _decide_about_danger(command: ParsedCommand, facts: Facts) -> Decision | None:
    """Ask in every mode about great damage, programs that git runs, and protected files."""
    danger = catastrophe(command.nested, command.cwd, facts)
    danger = danger or _why_git_may_run_programs(command)
    if danger:
        reason = f"{danger}, so it is asked about in every mode"
        return Decision("ask", reason=reason, once=True)
    opened = tuple(dict.fromkeys(_protected_paths(command, facts)))
    if not opened:
        return None
    reason = (
        f"it names {opened[0]}, which is protected: it holds secrets or decides what runs"
    )
    return Decision("ask", reason=reason, once=True, confines=Confinement(opened=opened))


def _protected_paths(command: ParsedCommand, facts: Facts) -> Iterator[str]:
    for file in command.files:
        if is_shared(file.real, facts):
            continue
        for path in dict.fromkeys((file.real, file.path)):
            if path.startswith("/") and is_protected(
                path, facts, writes=not file.reads_only
            ):
                yield file.real
                break  # one of its two paths suffices


def _why_git_may_run_programs(command: ParsedCommand) -> str:
    """Return a clause about the word that makes git run another program, or ""."""
    for words in command.nested.commands:
        values = [word.text for word in words]
        program = values[0].rsplit("/", 1)[-1]
        if program != "git":
            continue
        if word := word_that_runs_programs(values):
            return f"git {word} can make git run other programs"
    return ""


def _decide_in_plan_mode(
    command: ParsedCommand, mode: Mode, rules: Sequence[Rule], facts: Facts
) -> Decision | None:
    """In plan mode, deny a command that may do more than read; return None otherwise."""
    if mode != "plan" or command.is_read_only:
        return None
    why = f"plan mode runs only read-only commands, and {command.problem}"
    planned = Decision("deny", reason=f"{why}: {LEAVE_PLAN}")
    return _decide_by_rules(command, "deny", rules, facts, sure=True) or planned


def _decide_after_outside_text(command: ParsedCommand, facts: Facts) -> Decision | None:
    if not facts.read_outside_text or command.is_read_only:
        return None
    return Decision("ask", reason=OUTSIDE_TEXT_REASON, outside=True)


def _decide_by_mode(mode: Mode) -> Decision | None:
    if mode == "bypass":
        return Decision("allow", reason="mode bypass runs everything without asking")
    return None


def _decide_read_only(command: ParsedCommand, mode: Mode) -> Decision | None:
    if mode == "rules-only" or not command.is_read_only:
        return None
    return Decision("allow", reason="every part of it is read-only, inside the workspace")


def _decide_by_allow_rules(
    command: ParsedCommand, rules: Sequence[Rule], mode: Mode
) -> Decision | None:
    """Return the decision of the first allow rule, if rules cover all commands; else None.

    Commands that only read or change the directory need no rule.
    """
    allow_rules = rules_about(rules, "allow", command.access)
    for rule in allow_rules:
        if not rule.pattern:
            return decision_of(rule)
    used = list[Rule]()
    for part in command.surveyed:
        rule = _covering_rule(part, allow_rules)
        only_reads = not part.problem and mode != "rules-only"
        if rule:
            used.append(rule)
        elif not (part.changes_directory or only_reads):
            return None
    return decision_of(used[0]) if used else None


def may_allow_whole_script(access: Access, facts: Facts) -> bool:
    """Whether an allow rule may cover this script by repeating its whole text."""
    return _is_repeatable(parse_command(access, (), facts), facts)


def _is_repeatable(command: ParsedCommand, facts: Facts) -> bool:
    from refold.permissions.shell.whole_scripts import is_repeatable

    return is_repeatable(
        command.access.subject.strip(), command.nested, command.files, facts
    )


def _decide_by_script_rule(
    command: ParsedCommand, rules: Sequence[Rule], facts: Facts
) -> Decision | None:
    """Allow a script that an allow rule repeats, if this is permitted; else return None."""
    from refold.permissions.shell.whole_scripts import has_unknown_arguments

    text = command.access.subject.strip()
    allow_rules = rules_about(rules, "allow", command.access)
    rule = next((r for r in allow_rules if r.pattern.strip() == text), None)
    if rule is None or not _is_repeatable(command, facts):
        return None
    narrow = has_unknown_arguments(command.nested)
    return structs.replace(decision_of(rule), confines=Confinement(narrow=narrow))


def _decide_hosts(
    command: ParsedCommand, decision: Decision | None, facts: Facts
) -> Decision | None:
    """Return `decision`, or a question about needed hosts that no allow rule covers.

    Hosts need an allow rule only if a rule `net(…)` allows any host.
    """
    if decision is None or not command.network.allowed or not facts.filters_hosts:
        return decision
    uncovered = command.network.without_allow_rule(command.hosts)
    if not uncovered:
        return decision
    reason = f"no rule lets a command reach {', '.join(uncovered)}"
    return Decision("ask", reason=reason, confines=decision.confines)


def _covering_rule(surveyed: SurveyedCommand, allow_rules: Sequence[Rule]) -> Rule | None:
    if surveyed.writes_elsewhere:  # no command rule covers that file
        return None
    simple_command = surveyed.part
    program = simple_command.values[0].rsplit("/", 1)[-1]
    if program == "git" and not surveyed.at_home:
        # Another directory can be another repository, with settings of its own.
        return None
    return next((r for r in allow_rules if covers(r.pattern, simple_command)), None)


def _decide_in_sandbox(command: ParsedCommand, mode: Mode, facts: Facts) -> Decision | None:
    """In mode `sandbox`, allow what the sandbox can confine and ask about the rest.

    Return None in other modes.
    """
    if mode != "sandbox":
        return None
    if reason := _why_sandbox_is_not_enough(command, facts):
        return Decision("ask", reason=f"mode sandbox does not cover it: {reason}")
    reason = "the sandbox keeps it to the workspace, without network or keys"
    if command.access.network:
        reason = "the sandbox keeps it to the workspace and to hosts that rules name"
    return Decision("allow", reason=reason, confines=Confinement(narrow=True))


def _why_sandbox_is_not_enough(command: ParsedCommand, facts: Facts) -> str:
    """Return why the sandbox cannot confine this command enough, or ""."""
    if not facts.sandboxed:
        return "no sandbox works on this machine"
    if command.access.network:
        # Without allow rules for hosts, it could reach every public host.
        limits_hosts = facts.filters_hosts and bool(command.network.allowed)
        if not limits_hosts or command.network.without_allow_rule(command.hosts):
            return "it needs the network"
    if reason := _why_not_judged(command):
        return reason
    for words in command.nested.commands:
        program = words[0].value
        # A mark stands for text that only the running shell knows, such as that of a glob.
        has_mark = MARK_PATTERN.search(program) is not None
        if has_mark and not _WORKSPACE_GLOB.fullmatch(program):
            return "which program it runs is not known before it runs"
    for file in command.files:
        if _is_missing_in_sandbox(file, facts):
            return f"it names {file.real}, which is outside the workspace"
        if not file.reads_only and is_steering(file.real.split("/")):
            return f"{file.real} instructs agents or tools"
    return discards(command.nested) or _why_git_cannot_record(command, facts)


def _why_git_cannot_record(command: ParsedCommand, facts: Facts) -> str:
    """Return why git needs approval: it tracks a file that the sandbox hides; "" if not."""
    programs = (words[0].text.rsplit("/", 1)[-1] for words in command.nested.commands)
    if command.is_read_only or "git" not in programs:
        return ""
    path = facts.tracked_keys()
    if not path:
        return ""
    return f"git has {path}, which commands that run without asking do not see"


def _why_not_judged(command: ParsedCommand) -> str:
    """Return why it is not known which commands run, or ""."""
    nested = command.nested
    if nested.commands:
        if nested.broken or nested.hidden:
            return command.uncertainty or "refold cannot parse it with certainty"
        return ""
    emptied = next((r.target.text for r in nested.redirects if r.writes), "")
    if emptied:  # a redirection alone, such as `> file`
        return f"it empties {emptied}"
    return command.uncertainty or "it holds no command"


def _is_missing_in_sandbox(file: NamedFile, facts: Facts) -> bool:
    """Whether a file is outside the workspace, at a path that some sandboxes lack."""
    real = file.real
    if not real.startswith("/") or not facts.outside(real):
        return False
    if any(below(real, directory) for directory in (*facts.shared, *_SANDBOX_PATHS)):
        return False
    # The directories of the system can be read in every sandbox.
    is_in_system = any(below(real, directory) for directory in _SYSTEM_PATHS)
    return not (file.reads_only and is_in_system)


def _ask_decision(command: ParsedCommand) -> Decision:
    return Decision("ask", reason=f"no rule allows this command, and {command.problem}")


def _confinement_of(command: ParsedCommand, mode: Mode, facts: Facts) -> Confinement:
    """Return what the sandbox permits: writing, the network, and access to further files."""
    if mode == "plan" or command.is_read_only:
        writes = False
    else:
        writes = not _only_reads(command, facts)
    opened = _writable_git_paths(command, facts) if writes else ()
    return Confinement(
        writes=writes,
        network=command.access.network,
        opened=opened,
        seen=command.granted,
    )


def _only_reads(command: ParsedCommand, facts: Facts) -> bool:
    """Whether the command names protected files, and only reads files of the workspace."""
    if command.uncertainty or not any(_protected_paths(command, facts)):
        return False
    surveyed = survey(
        command.access.subject,
        command.cwd,
        facts,
        may_read=lambda real: not facts.outside(real),
    )
    return bool(surveyed) and not any(part.problem for part in surveyed)


def _writable_git_paths(command: ParsedCommand, facts: Facts) -> tuple[str, ...]:
    """Return the settings and hooks that git may write; () if another program may write."""
    runs_git = False
    for command_of_script in command.surveyed:
        if command_of_script.part.values[0] == "git":
            runs_git = True
        elif command_of_script.problem:
            return ()
    if not runs_git:
        return ()
    return _paths_in_git(command, facts, ".git/config", ".git/hooks", ".gitmodules")


def _paths_in_git(command: ParsedCommand, facts: Facts, *names: str) -> tuple[str, ...]:
    bases = dict.fromkeys((command.cwd, *facts.roots))
    return tuple(f"{base.rstrip('/')}/{name}" for base in bases for name in names)


def _changes_git_settings(command: ParsedCommand) -> bool:
    commands = [surveyed.part.values for surveyed in command.surveyed]
    return any(words[0] == "git" and not writes_no_settings(words) for words in commands)


def _edits_rebase(command: ParsedCommand) -> bool:
    """Whether a `git rebase` edits its list of steps, which may run programs."""
    for surveyed in command.surveyed:
        words = surveyed.part.values
        if words[0] != "git" or "rebase" not in words:
            continue
        if word_that_runs_programs(words) or not _EDITOR_OPTIONS.isdisjoint(words):
            return True
    return False


def _join(first: Confinement, second: Confinement) -> Confinement:
    opened = tuple(dict.fromkeys((*first.opened, *second.opened)))
    return structs.replace(first, opened=opened, narrow=second.narrow)
