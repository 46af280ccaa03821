"""A command line with all that is known about it: its commands, files and hosts.

`command_verdict` decides from this whether it may run.
"""

import posixpath
from collections.abc import Sequence

from msgspec import Struct

from refold.permissions import path_patterns
from refold.permissions.facts import Access, Facts, is_protected
from refold.permissions.network_hosts import NetworkRules, hosts_of_command, network_rules
from refold.permissions.rules import Rule, is_about_reads
from refold.permissions.shell.named_files import NamedFile, named_files
from refold.permissions.shell.nested_commands import NestedCommands, find_nested_commands
from refold.permissions.shell.read_only import SurveyedCommand, survey
from refold.permissions.shell.two_readings import part_problem, why_uncertain
from refold.values.path_names import below


class ParsedCommand(Struct, frozen=True):
    """The results of parsing a command line, which all checks use."""

    access: Access
    cwd: str
    nested: NestedCommands
    files: tuple[NamedFile, ...]
    surveyed: tuple[SurveyedCommand, ...]
    granted: tuple[str, ...] = ()  # files outside the workspace that a rule allows to read
    uncertainty: str = ""  # why it could not be parsed with certainty, and which part
    hosts: tuple[str, ...] = ()  # hosts that it certainly needs
    network: NetworkRules = NetworkRules()

    @property
    def is_read_only(self) -> bool:
        """Whether each of its commands only reads, in the workspace and without a network."""
        if not self.surveyed or self.access.network:
            return False
        return not any(part.problem for part in self.surveyed)

    @property
    def problem(self) -> str:
        """Why the user must approve the command if no rule allows it."""
        if self.is_read_only:
            return "here only what a rule allows runs without asking"
        if self.access.network and not any(p.problem for p in self.surveyed):
            return "it needs the network"
        problems = (part_problem(p, self.surveyed) for p in self.surveyed if p.problem)
        return next(problems, self.uncertainty)


def parse_command(access: Access, rules: Sequence[Rule], facts: Facts) -> ParsedCommand:
    """Parse a command line, and find its files and hosts."""
    cwd = posixpath.normpath(posixpath.join(facts.roots[0], access.cwd or "."))
    nested = find_nested_commands(access.subject)
    allow_patterns = [
        rule.pattern
        for rule in rules
        if rule.verdict == "allow" and rule.pattern and is_about_reads(rule.tool)
    ]

    def may_read_without_asking(real: str) -> bool:
        if is_protected(real, facts, writes=False) and not is_shared(real, facts):
            return False
        if not facts.outside(real):
            return True
        return any(path_patterns.allows(pattern, real, facts) for pattern in allow_patterns)

    surveyed = survey(access.subject, cwd, facts, may_read_without_asking)
    uncertainty = why_uncertain(access.subject, nested, surveyed)
    files = tuple(named_files(nested, cwd, facts))
    granted = list[str]()
    if allow_patterns:
        for file in files:
            if facts.outside(file.real) and may_read_without_asking(file.real):
                granted.append(file.real)
    return ParsedCommand(
        access=access,
        cwd=cwd,
        nested=nested,
        files=files,
        # If the command line is uncertain, nothing is known about its commands.
        surveyed=() if uncertainty else surveyed,
        granted=tuple(dict.fromkeys(granted)),
        uncertainty=uncertainty,
        hosts=hosts_of_command(access, nested, facts),
        network=network_rules(rules),
    )


def is_shared(real: str, facts: Facts) -> bool:
    """Whether a path is in a directory that the sandbox makes read-only."""
    return facts.sandboxed and any(below(real, shared) for shared in facts.shared)
