"""Permission rules as data: how a rule is written, and which calls it matches.

A rule is `tool` or `tool(pattern)`. For `bash` the pattern is a command line, word by word (`*` and
`?` within a word), and a last ` *` or `:*` matches further words. For tools that read or change
files it is a path (`path_patterns`), for `web_fetch` a host (`domain:example.org`), for `net`, which
is about the hosts that commands reach, a host or a preset (`values.hosts`), for others a text
with `*`. A name such as `mcp__github__*` may contain `*`, too. A rule for one tool that changes files covers all of them, and a rule for reading a
file covers every tool that reads files.

An allow rule covers only what it spells; deny and ask rules match wherever their pattern may be
hidden. `decide` has the order of precedence between matching rules.
"""

import posixpath
import re
from collections.abc import Callable, Sequence
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
CODE_TOOLS = frozenset(("python",))  # only a sandbox can make it read-only
EDIT_TOOLS = frozenset(
    ("edit_file", "write_file", "multi_edit", "apply_patch", "notebook_edit")
)
LOOK_TOOLS = frozenset(("read_file", "grep", "glob", "list_files", "tree"))
WEB_TOOLS = frozenset(("web_fetch",))
# They only read, but from the network.
OUTSIDE_TOOLS = frozenset(("web_fetch", "web_search", "mcp__read_resource"))
OUTSIDE_TEXT_REASON = "the model has read text from outside since your last message"
NETWORK_RULE = "net"  # not a tool: the hosts of commands
LATER_TOOLS = frozenset(("schedule",))  # runs without a user
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
_Kind = Literal["command", "file", "text", "address", "host"]
LEAVE_PLAN = "call exit_plan_mode(plan) to ask the person for approval"


class Rule(Struct, frozen=True):
    """`match` and `not_match` are examples of the text between the parentheses of a call."""

    verdict: Verdict
    tool: str
    pattern: str = ""  # "": every call of the tool
    source: str = ""  # where it was defined
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
    """`bash(git status *)` as a rule; `check_examples` compares it with its examples. Raises `BadInput`."""
    parsed = re.fullmatch(_RULE_PATTERN, text.strip())
    if not parsed or (parsed[2] is not None and not parsed[2].strip()):
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
    """Why the pattern would not match what its author means, or ""."""
    command = tool in COMMAND_TOOLS
    if tool == NETWORK_RULE:
        return _host_problem(pattern)
    if braces := re.search(
        _BRACE_EXPANSION, re.sub(_QUOTED_PATTERN, "", pattern) if command else pattern
    ):
        return f"braces mean nothing in it: write a rule for each part of {braces[0]}"
    if command:
        return ""
    if tool in WEB_TOOLS:
        return "write [!…] instead of [^…]" if "[^" in pattern else ""
    from refold.permissions.path_patterns import problem

    return problem(pattern)


def _host_problem(pattern: str) -> str:
    from refold.values.hosts import expand_hosts

    try:
        return (
            ""
            if expand_hosts(pattern or "all") and pattern
            else "name a host in it: net(example.org)"
        )
    except ValueError as error:
        return str(error)


def check_examples(rule: Rule) -> Rule:
    """Return the rule. Raises `BadInput` if it contradicts its own examples."""
    for example in (*rule.match, *rule.not_match):
        wanted = example in rule.match
        if _matches_example(rule, example) is not wanted:
            source = f" in {rule.source}" if rule.source else ""
            kind = "match" if wanted else "not_match"
            verb = "does not cover" if wanted else "covers"
            raise BadInput(
                f"the rule {rule}{source} {verb} {example!r}, which is in its {kind}: "
                f"fix the rule or the example"
            )
    return rule


def _matches_example(rule: Rule, example: str) -> bool:
    from refold.permissions.shell.command_patterns import covers, holds
    from refold.permissions.shell.plain_script import parse_plain

    tool, allow = our_tool_name(rule.tool), rule.verdict == "allow"
    if not rule.pattern:
        return True
    from refold.permissions import path_patterns

    facts = Facts(roots=("/workspace",), home="/home/person")
    path = _as_path(example, facts)
    ways: dict[_Kind, Callable[[], bool]] = {
        "command": lambda: (
            bool(parts := parse_plain(example))
            and all(covers(rule.pattern, part) for part in parts)
            if allow
            else holds(rule.pattern, example) != "no"
        ),
        "file": lambda: (
            path_patterns.allows(rule.pattern, path, facts)
            if allow
            else path_patterns.forbids(rule.pattern, path, facts) != "no"
        ),
        "text": lambda: fnmatchcase(example, rule.pattern),
        "address": lambda: (_covers_url if allow else _may_cover_url)(
            rule.pattern, example
        ),
        "host": lambda: _matches_host(rule.pattern, example),
    }
    return ways[kind_of(tool, Effect.SELF)]()


def deny_host_patterns(rules: Sequence[Rule]) -> tuple[str, ...]:
    """Patterns of hosts that no command may reach, whatever other rules allow."""
    named = [r.pattern for r in rules if r.tool == NETWORK_RULE and r.verdict == "deny"]
    if not named:
        return ()
    from refold.values.hosts import expand_all

    return expand_all(named)


def _matches_host(pattern: str, example: str) -> bool:
    from refold.values.hosts import EVERY_HOST, covers_place, expand_hosts, place_of

    host, port = place_of(expand_hosts(example)[0])
    return any(
        p == EVERY_HOST or covers_place(p, host, port) for p in expand_hosts(pattern)
    )


def _as_path(example: str, facts: Facts) -> str:
    if example.startswith("~/"):
        return f"{facts.home}/{example[2:]}"
    if example.startswith("/"):
        return "/" + example.lstrip("/")
    return f"{facts.roots[0]}/{example.removeprefix('./')}"


def kind_of(tool: str, effect: Effect) -> _Kind:
    """What the pattern of a rule is matched against, for calls of this tool."""
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
    """Our name of a tool for a short form or another agent's name."""
    return _TOOL_ALIASES.get(name, name)


def is_command(access: Access) -> bool:
    """Whether the call is judged by the command line that it runs."""
    return access.command or access.tool in COMMAND_TOOLS


def is_about(written: str, tool: str, effect: Effect, *, command: bool = False) -> bool:
    """Whether a rule for `written` applies to `tool`. `command`: it runs command lines."""
    name = our_tool_name(written)
    if fnmatchcase(tool, name):
        return True
    if (command or tool in COMMAND_TOOLS) and fnmatchcase("bash", name):  # a pattern, too
        return True
    if name in EDIT_TOOLS:
        return tool in EDIT_TOOLS
    if name == "read_file":
        return tool in LOOK_TOOLS or (
            effect is Effect.LOOK and not tool.startswith("mcp__")
        )
    # The name of a server applies to all its tools.
    return (
        name.startswith("mcp__") and name.count("__") == 1 and tool.startswith(f"{name}__")
    )


def is_elsewhere(written: str) -> bool:
    """Whether it names a tool that other sessions have, even if this one does not."""
    return our_tool_name(written) in (
        *_TOOL_ALIASES.values(),
        NETWORK_RULE,
    ) or written.startswith("mcp__")


def reads(written: str) -> bool:
    """Whether a rule for `written` is about reading files, by any tool."""
    return our_tool_name(written) == "read_file" or written == "*"


def writes(written: str) -> bool:
    return our_tool_name(written) in EDIT_TOOLS or written == "*"


def decide_forbidden(
    access: Access, verdict: Verdict, rules: Sequence[Rule], facts: Facts
) -> Decision | None:
    """The verdict of a deny or ask rule. Not for commands."""
    for rule in rules_about(rules, verdict, access):
        if not rule.pattern or _forbids(rule, access, facts):
            return decision_of(rule)
    return None


def decide_allowed(access: Access, rules: Sequence[Rule], facts: Facts) -> Decision | None:
    """The verdict of an allow rule, if rules cover the whole call. Not for commands."""
    allow_rules = list(rules_about(rules, "allow", access))
    if not access.files:
        match = next((r for r in allow_rules if _allows(r, access)), None)
        return decision_of(match) if match else None
    covering = [
        next((r for r in allow_rules if _allows_target(r, target, access, facts)), None)
        for target in access.files
    ]
    first = covering[0]
    return decision_of(first) if first and all(covering) else None


def may_read(real: str, rules: Sequence[Rule], facts: Facts) -> bool:
    """Whether no deny or ask rule with a pattern may match the reading of this file."""
    from refold.permissions import path_patterns

    return not any(
        rule.verdict != "allow"
        and rule.pattern
        and reads(rule.tool)
        and (path_patterns.forbids(rule.pattern, real, facts) != "no")
        for rule in rules
    )


def rules_about(rules: Sequence[Rule], verdict: Verdict, access: Access) -> Sequence[Rule]:
    command = is_command(access)
    return [
        r
        for r in rules
        if r.verdict == verdict
        and is_about(r.tool, access.tool, access.effect, command=command)
    ]


def decision_of(rule: Rule) -> Decision:
    source = f" ({rule.source})" if rule.source else ""
    reason = f"the rule {rule}{source} says {rule.verdict}"
    return Decision(
        rule.verdict, str(rule), rule.source, reason, once=rule.verdict == "ask"
    )


def _forbids(rule: Rule, access: Access, facts: Facts) -> bool:
    if access.files and kind_of(access.tool, access.effect) == "file":
        from refold.permissions import path_patterns

        names = {n for t in access.files for n in (t.real, _absolute(t.path, facts))}
        return any(
            path_patterns.forbids(rule.pattern, name, facts) != "no" for name in names
        )
    if access.tool in WEB_TOOLS:
        return _may_cover_url(rule.pattern, access.subject)
    return fnmatchcase(access.subject.casefold(), rule.pattern.casefold())


def _allows(rule: Rule, access: Access) -> bool:
    if not rule.pattern:
        return True
    if access.tool in WEB_TOOLS:
        return _covers_url(rule.pattern, access.subject)
    return fnmatchcase(access.subject, rule.pattern)


def _covers_url(pattern: str, url: str) -> bool:
    from refold.values.web_address import covers, host_of, web_address

    if (wanted := _host_in(pattern)) is not None:
        return covers(wanted, host_of(url))
    return bool(host_of(url)) and fnmatchcase(str(web_address(url)), pattern)


def _may_cover_url(pattern: str, url: str) -> bool:
    """Whether a pattern may match. A host covers its subdomains; an invalid URL may be any."""
    from refold.values.web_address import covers_below, host_of, web_address

    host, wanted = host_of(url), _host_in(pattern)
    if wanted is not None or not host:
        return not host or covers_below(wanted or "", host)
    plain = str(web_address(url)).casefold()
    read = unquote(plain)  # as a server may decode it
    spelled = (url.casefold(), plain, read, re.sub(r"(?<!:)//+", "/", read))
    return any(fnmatchcase(spelling, pattern.casefold()) for spelling in spelled)


def _host_in(pattern: str) -> str | None:
    """The host that a rule for web addresses names; None for a rule about URLs."""
    kind, colon, host = pattern.partition(":")
    return host if f"{kind}{colon}" in (DOMAIN_PREFIX, PRIVATE_PREFIX) else None


def permits_private(access: Access, rules: Sequence[Rule]) -> bool:
    """Whether an allow rule permits a private address for the host of this call.

    `private:` permits it for a name. `domain:` does not, because the owner of a name decides
    where it leads, unless it is an address or a local name, such as `localhost`.
    """
    from refold.values.web_address import host_of, is_inside_name

    local = is_inside_name(host_of(access.subject))
    return any(
        rule.pattern.startswith(
            (DOMAIN_PREFIX, PRIVATE_PREFIX) if local else PRIVATE_PREFIX
        )
        and not set("*?[") & set(rule.pattern)
        and _allows(rule, access)
        for rule in rules_about(rules, "allow", access)
    )


def _allows_target(rule: Rule, target: Target, access: Access, facts: Facts) -> bool:
    """Whether a rule allows the file. A wildcard such as `src/**` excludes steering files."""
    has_wildcard = bool(set(rule.pattern.rpartition("/")[2]) & set("*?["))
    if (
        has_wildcard
        and access.effect is Effect.CHANGE
        and is_steering(target.real.split("/"))
    ):
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
