"""Permission rules as data: how a rule is written, and which calls it matches.

A rule is `tool` or `tool(pattern)`. For `bash` the pattern is a command line, word by word (`*`
and `?` within a word); ` *` or `:*` at its end matches further words. For tools that read or
change files it is a path (`path_patterns`). For `web_fetch` it is a host
(`domain:example.org`). For `net`, which is about the hosts that commands reach, it is a host or
a preset (`values.hosts`). For others it is a text with `*`. A tool name may contain `*`, too,
such as `mcp__github__*`. A rule for one tool that changes files covers all these tools, and a
rule for reading a file covers every tool that reads files.

An allow rule covers only what it spells out; a deny or ask rule matches wherever its pattern
may be hidden. `decide` has the order of precedence between matching rules.
"""

import posixpath
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal
from urllib.parse import unquote

from msgspec import Struct

from refold.errors import BadInput
from refold.permissions.facts import Access, Decision, Facts, Target
from refold.values.modes import PRIVATE_PREFIX, Verdict
from refold.values.path_names import is_steering
from refold.values.tools import Effect

COMMAND_TOOLS = frozenset(("bash", "background_run", "monitor"))
CODE_TOOLS = frozenset(("python",))  # only a sandbox can make these read-only
EDIT_TOOLS = frozenset(
    ("edit_file", "write_file", "multi_edit", "apply_patch", "notebook_edit")
)
LOOK_TOOLS = frozenset(("read_file", "grep", "glob", "list_files", "tree"))
WEB_TOOLS = frozenset(("web_fetch",))
# They only read, but from the network.
OUTSIDE_TOOLS = frozenset(("web_fetch", "web_search", "mcp__read_resource"))
OUTSIDE_TEXT_REASON = "the model has read text from outside since your last message"
NETWORK_RULE = "net"  # not a tool: a rule for the hosts of commands
LATER_TOOLS = frozenset(("schedule",))  # these run without a user
DOMAIN_PREFIX = "domain:"
_TOOL_ALIASES = {
    "Bash": "bash", "shell": "bash", "Read": "read_file", "read": "read_file",
    "Edit": "edit_file", "edit": "edit_file", "Write": "edit_file", "write": "edit_file",
    "MultiEdit": "edit_file", "NotebookEdit": "edit_file", "Glob": "glob", "Grep": "grep",
    "LS": "list_files", "WebFetch": "web_fetch", "WebSearch": "web_search", "Task": "task",
    "TodoWrite": "todo_write", "ExitPlanMode": "exit_plan_mode", "AskUserQuestion": "ask_user",
}  # fmt: skip
_RULE_PATTERN = r"(?s)([A-Za-z0-9_*-]+)(?:\((.*)\))?"
_BRACE_EXPANSION = r"(?<!\\)\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}"
_QUOTED_PATTERN = r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\."
# Matches an empty text, one with a slash or a user name, with a port (IPv6 has several colons), and
# IPv6 in brackets.
_NOT_ONLY_A_HOST_PATTERN = r"^\s*$|[/@]|^[^:]*:[^:]*$|^\[[^\]]*:"
_Kind = Literal["command", "file", "text", "address", "host"]
LEAVE_PLAN = "call exit_plan_mode(plan) to ask the person for approval"


class Rule(Struct, frozen=True):
    """A permission rule, with examples of what it must match (`match`) and not match
    (`not_match`).

    An example is a command line, a path or another text that a pattern is compared with.
    """

    verdict: Verdict
    tool: str
    pattern: str = ""  # "" matches every call of the tool
    source: str = ""  # where the rule was defined
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.tool}({self.pattern})" if self.pattern else self.tool


def parse(
    text: str,
    verdict: Verdict,
    source: str = "",
    *,
    match: Sequence[str] = (),
    not_match: Sequence[str] = (),
) -> Rule:
    """Parse the text of a rule, such as `bash(git status *)`. Raises `BadInput` if it is
    invalid.

    `source` says where the rule is defined. `match` and `not_match` are its examples, with
    which `check_examples` compares it.
    """
    parsed = re.fullmatch(_RULE_PATTERN, text.strip())
    has_blank_pattern = parsed and parsed[2] is not None and not parsed[2].strip()
    if not parsed or has_blank_pattern:
        raise BadInput(
            f"{text!r} is not a permission rule: write tool or tool(pattern), "
            f"for example bash(git status *) or edit_file(src/**)"
        )
    tool, pattern = parsed[1], parsed[2] or ""
    if "\0" in pattern:
        raise BadInput(f"{text!r} contains a NUL character, which no call can contain")
    if pattern.startswith(PRIVATE_PREFIX) and set("*?[") & set(pattern):
        raise BadInput(
            f"{text!r} may permit any host in a private network: write one rule for each "
            "host, without *"
        )
    if why := _pattern_problem(our_tool_name(tool), pattern):
        raise BadInput(f"{text!r} is not a permission rule: {why}")
    return Rule(verdict, tool, pattern, source, tuple(match), tuple(not_match))


def _pattern_problem(tool: str, pattern: str) -> str:
    """Return why a pattern is invalid or would not match what its author intends, or ""."""
    if tool == NETWORK_RULE:
        return _host_problem(pattern)
    is_command_rule = tool in COMMAND_TOOLS
    # Braces in quotes are literal in a command.
    unquoted = re.sub(_QUOTED_PATTERN, "", pattern) if is_command_rule else pattern
    if braces := re.search(_BRACE_EXPANSION, unquoted):
        return f"braces mean nothing in it: write a rule for each part of {braces[0]}"
    if is_command_rule:
        return ""
    if tool in WEB_TOOLS:
        return _address_problem(pattern)
    from refold.permissions.path_patterns import problem

    return problem(pattern)


def _address_problem(pattern: str) -> str:
    """Return why the pattern of a web address is invalid, or ""."""
    if "[^" in pattern:
        return "write [!…] instead of [^…]"
    host = _host_in(pattern)
    if host is not None and re.search(_NOT_ONLY_A_HOST_PATTERN, host):
        return (
            "name a host in it, without scheme, port, path or brackets: domain:example.org"
        )
    return ""


def _host_problem(pattern: str) -> str:
    """Return why the pattern of a rule `net(…)` is invalid, or ""."""
    from refold.values.hosts import expand_hosts

    if not pattern:
        return "name a host in it: net(example.org)"
    try:
        expand_hosts(pattern)
    except ValueError as error:
        return str(error)
    return ""


def check_examples(rule: Rule) -> Rule:
    """Return the rule unchanged. Raises `BadInput` if it contradicts one of its examples."""
    for example in (*rule.match, *rule.not_match):
        should_match = example in rule.match
        if _matches_example(rule, example) is should_match:
            continue
        source = f" in {rule.source}" if rule.source else ""
        field = "match" if should_match else "not_match"
        verb = "does not cover" if should_match else "covers"
        raise BadInput(
            f"the rule {rule}{source} {verb} {example!r}, which is in its {field}: "
            f"fix the rule or the example"
        )
    return rule


def _matches_example(rule: Rule, example: str) -> bool:
    """Return whether the rule would apply to a call with this subject.

    An allow rule must surely cover it; a deny or ask rule applies if it may match.
    """
    if not rule.pattern:
        return True
    match kind_of(our_tool_name(rule.tool), Effect.SELF):
        case "command":
            return _matches_command(rule, example)
        case "file":
            return _matches_file(rule, example)
        case "text":
            return fnmatchcase(example, rule.pattern)
        case "address":
            matches_url = _covers_url if rule.verdict == "allow" else _may_cover_url
            return matches_url(rule.pattern, example)
        case "host":
            return _matches_host(rule.pattern, example)


def _matches_command(rule: Rule, example: str) -> bool:
    """Return whether the rule matches a command.

    An allow rule must cover the whole command. Another rule matches if it may match a part.
    """
    from refold.permissions.shell.command_patterns import covers, match_script
    from refold.permissions.shell.plain_script import parse_plain

    if rule.verdict != "allow":
        return match_script(rule.pattern, example) != "no"
    parts = parse_plain(example)
    return bool(parts) and all(covers(rule.pattern, part) for part in parts)


def _matches_file(rule: Rule, example: str) -> bool:
    """Return whether the rule matches the file, with an invented workspace and home."""
    from refold.permissions import path_patterns

    facts = Facts(roots=("/workspace",), home="/home/person")
    path = _as_path(example, facts)
    if rule.verdict == "allow":
        return path_patterns.allows(rule.pattern, path, facts)
    return path_patterns.forbids(rule.pattern, path, facts) != "no"


def deny_host_patterns(rules: Sequence[Rule]) -> tuple[str, ...]:
    """Return the patterns of hosts that deny rules forbid, whatever other rules allow."""
    patterns = [r.pattern for r in rules if r.tool == NETWORK_RULE and r.verdict == "deny"]
    if not patterns:
        return ()
    from refold.values.hosts import expand_all

    return expand_all(patterns)


def _matches_host(pattern: str, example: str) -> bool:
    """Return whether one of the hosts in the pattern covers the first host of the example."""
    from refold.values.hosts import EVERY_HOST, covers_place, expand_hosts, place_of

    host, port = place_of(expand_hosts(example)[0])
    return any(
        p == EVERY_HOST or covers_place(p, host, port) for p in expand_hosts(pattern)
    )


def _as_path(example: str, facts: Facts) -> str:
    """Return the absolute path of an example. A relative path starts in the workspace."""
    if example.startswith("~/"):
        return f"{facts.home}/{example[2:]}"
    if example.startswith("/"):
        return "/" + example.lstrip("/")
    return f"{facts.roots[0]}/{example.removeprefix('./')}"


def kind_of(tool: str, effect: Effect) -> _Kind:
    """Return what the pattern of a rule is compared with, for calls of this tool."""
    if tool in COMMAND_TOOLS:
        return "command"
    if tool in WEB_TOOLS:
        return "address"
    if tool == NETWORK_RULE:
        return "host"
    if tool in EDIT_TOOLS or tool in LOOK_TOOLS or effect in (Effect.LOOK, Effect.CHANGE):
        return "file"
    return "text"


def our_tool_name(name: str) -> str:
    """Return refold's name of a tool.

    `name` may be an abbreviation, or another agent's name for the tool.
    """
    return _TOOL_ALIASES.get(name, name)


def is_command(access: Access) -> bool:
    """Whether the call is judged by the command line that it runs."""
    return access.command or access.tool in COMMAND_TOOLS


def is_about(written: str, tool: str, effect: Effect, *, command: bool = False) -> bool:
    """Whether a rule applies to calls of `tool` with this effect.

    `written` is the tool name in the rule, which may be a pattern. `command`: the tool runs
    command lines.
    """
    name = our_tool_name(written)
    if fnmatchcase(tool, name):
        return True
    # Rules for bash apply to all tools that run command lines.
    runs_commands = command or tool in COMMAND_TOOLS
    if runs_commands and fnmatchcase("bash", name):
        return True
    if name in EDIT_TOOLS:
        return tool in EDIT_TOOLS
    if name == "read_file":
        only_reads = effect is Effect.LOOK and not tool.startswith("mcp__")
        return only_reads or tool in LOOK_TOOLS
    # The name of a server applies to all its tools.
    is_server = name.startswith("mcp__") and name.count("__") == 1
    return is_server and tool.startswith(f"{name}__")


def may_be_tool_of_other_session(written: str) -> bool:
    """Whether `written`, a name in a rule, may be a tool that only other sessions have."""
    if written.startswith("mcp__"):
        return True
    return our_tool_name(written) in (*_TOOL_ALIASES.values(), NETWORK_RULE)


def is_about_reads(tool_name: str) -> bool:
    """Whether a rule with this tool name is about reading files, whichever tool reads them."""
    return our_tool_name(tool_name) == "read_file" or tool_name == "*"


def deny_read_rules(rules: Sequence[Rule]) -> frozenset[str]:
    """Return the texts of the deny rules about reading files."""
    return frozenset(
        str(rule) for rule in rules if rule.verdict == "deny" and is_about_reads(rule.tool)
    )


def is_about_changes(tool_name: str) -> bool:
    """Whether a rule with this tool name is about changing files, whichever tool does it."""
    return our_tool_name(tool_name) in EDIT_TOOLS or tool_name == "*"


def decide_forbidden(
    access: Access, verdict: Verdict, rules: Sequence[Rule], facts: Facts
) -> Decision | None:
    """Return the decision of the first matching rule with this verdict (deny or ask), or
    None.

    `command_verdict` does this for commands.
    """
    for rule in rules_about(rules, verdict, access):
        if not rule.pattern or _forbids(rule, access, facts):
            return decision_of(rule)
    return None


def decide_allowed(access: Access, rules: Sequence[Rule], facts: Facts) -> Decision | None:
    """Return the decision of an allow rule, or None if a file of the call has no rule that
    covers it.

    `command_verdict` does this for commands.
    """
    allow_rules = list(rules_about(rules, "allow", access))
    if not access.files:
        match = next((rule for rule in allow_rules if _allows(rule, access)), None)
        return decision_of(match) if match else None
    first_rule: Rule | None = None
    for target in access.files:
        covering = (r for r in allow_rules if _allows_target(r, target, access, facts))
        rule = next(covering, None)
        if rule is None:
            return None
        first_rule = first_rule or rule
    return decision_of(first_rule) if first_rule else None


def may_read(real: str, rules: Sequence[Rule], facts: Facts) -> bool:
    """Whether no rule restricts reading this file.

    The result is False if a deny or ask rule with a pattern matches it, or may match it.
    """
    from refold.permissions import path_patterns

    restricting = (
        rule
        for rule in rules
        if rule.verdict != "allow" and rule.pattern and is_about_reads(rule.tool)
    )
    return all(path_patterns.forbids(r.pattern, real, facts) == "no" for r in restricting)


def rules_about(rules: Sequence[Rule], verdict: Verdict, access: Access) -> Sequence[Rule]:
    """Return the rules with this verdict whose tool name applies to the call."""
    command = is_command(access)
    return [
        r
        for r in rules
        if r.verdict == verdict
        and is_about(r.tool, access.tool, access.effect, command=command)
    ]


def decision_of(rule: Rule) -> Decision:
    """Return the decision that a rule makes for a call that it applies to."""
    source = f" ({rule.source})" if rule.source else ""
    reason = f"the rule {rule}{source} says {rule.verdict}"
    return Decision(
        rule.verdict, str(rule), rule.source, reason, once=rule.verdict == "ask"
    )


def _forbids(rule: Rule, access: Access, facts: Facts) -> bool:
    """Return whether a deny or ask rule with a pattern matches the call, or may match it."""
    if access.files and kind_of(access.tool, access.effect) == "file":
        from refold.permissions import path_patterns

        names = set[str]()
        for target in access.files:
            names.update((target.real, _absolute(target.path, facts)))
        return any(
            path_patterns.forbids(rule.pattern, name, facts) != "no" for name in names
        )
    if access.tool in WEB_TOOLS:
        return _may_cover_url(rule.pattern, access.subject)
    # A call must not evade the rule by another case, so the case is ignored.
    return fnmatchcase(access.subject.casefold(), rule.pattern.casefold())


def _allows(rule: Rule, access: Access) -> bool:
    """Return whether an allow rule covers a call, by its subject alone."""
    if not rule.pattern:
        return True
    if access.tool in WEB_TOOLS:
        return _covers_url(rule.pattern, access.subject)
    return fnmatchcase(access.subject, rule.pattern)


def _covers_url(pattern: str, url: str) -> bool:
    """Return whether the pattern, of a host or of a whole address, covers `url`."""
    from refold.values.web_address import covers, host_of, web_address

    host, host_pattern = host_of(url), _host_in(pattern)
    if host_pattern is not None:
        return covers(host_pattern, host)
    return bool(host) and fnmatchcase(str(web_address(url)), pattern)


def _may_cover_url(pattern: str, url: str) -> bool:
    """Whether a deny or ask rule with this pattern may match a URL.

    A host covers its subdomains; an invalid URL may match any pattern.
    """
    from refold.values.web_address import covers_below, host_of, web_address

    host, host_pattern = host_of(url), _host_in(pattern)
    if not host:
        return True
    if host_pattern is not None:
        return covers_below(host_pattern, host)
    normalized = str(web_address(url)).casefold()
    decoded = unquote(normalized)  # the URL as a server may decode it
    single_slashes = re.sub(r"(?<!:)//+", "/", decoded)
    spellings = (url.casefold(), normalized, decoded, single_slashes)
    return any(fnmatchcase(spelling, pattern.casefold()) for spelling in spellings)


def _host_in(pattern: str) -> str | None:
    """Return the host in a pattern such as `domain:example.org`; None for a URL."""
    kind, colon, host = pattern.partition(":")
    return host if f"{kind}{colon}" in (DOMAIN_PREFIX, PRIVATE_PREFIX) else None


def permits_private(access: Access, rules: Sequence[Rule]) -> bool:
    """Whether an allow rule permits a private address for the host of this call.

    A `private:` rule permits it for each host that the rule names. A `domain:` rule does so only
    for an IP address or a local name such as `localhost`. Any other name leads where its owner
    decides.
    """
    from refold.values.web_address import host_of, is_inside_name

    has_local_name = is_inside_name(host_of(access.subject))
    prefixes = (DOMAIN_PREFIX, PRIVATE_PREFIX) if has_local_name else (PRIVATE_PREFIX,)
    return any(
        rule.pattern.startswith(prefixes)
        and set("*?[").isdisjoint(rule.pattern)
        and _allows(rule, access)
        for rule in rules_about(rules, "allow", access)
    )


def _allows_target(rule: Rule, target: Target, access: Access, facts: Facts) -> bool:
    """Whether an allow rule covers this file of a call.

    A wildcard such as `src/**` does not cover changes of files that instruct agents. A rule
    without a pattern covers the files of the workspace.
    """
    last_name = rule.pattern.rpartition("/")[2]
    has_wildcard = bool(set("*?[") & set(last_name))
    changes_file = access.effect is Effect.CHANGE
    if has_wildcard and changes_file and is_steering(target.real.split("/")):
        return False
    if not rule.pattern:
        # A rule for a whole tool applies in the workspace; files outside must be named.
        return not facts.outside(target.real)
    from refold.permissions import path_patterns

    return path_patterns.allows(rule.pattern, target.real, facts)


def _absolute(path: str, facts: Facts) -> str:
    if path == "~" or path.startswith("~/"):
        return posixpath.normpath(facts.home + path[1:])
    return posixpath.normpath(posixpath.join(facts.roots[0], path))
