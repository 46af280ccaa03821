"""The allow rules that a user is offered with a question: the most useful first.

A rule for exactly this call saves only its own repetition. So for programs of everyday
development the program and its subcommand are offered first, and for edits the folder. For
programs that run other programs or code (interpreters, shells, wrappers), and for commands
that delete, discard changes or use the network, only the call itself is offered. A ` *` at
the end never covers options that write or run something else
(`command_patterns.is_dangerous`), and deny rules, protected files and catastrophes come before
any allow rule. Where one rule cannot cover a command of several parts, each part gets its
own (`rule_set`); a script that has no such parts gets a rule that repeats it.

No rule covers output into a file that it does not name: saved for `pytest > out`, it would
let every read-only program write there. A text as input (a here-document) is covered only where
it is stored, as a file or the message of a commit: for an interpreter it is the program. No rule
covers any variable before a command: those that run programs cannot be listed completely.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from refold.permissions.facts import Access, Facts, Target
from refold.permissions.rules import DOMAIN_PREFIX, EDIT_TOOLS, WEB_TOOLS, is_command
from refold.values.path_globs import escape_pattern

if TYPE_CHECKING:
    from refold.permissions.shell.plain_script import SimpleCommand

_UNUSUAL_CHARACTERS = set("*?[]{}\\")
# These affect all later commands, whichever command a rule for them is used with.
_STATEFUL_PROGRAMS = frozenset((
    "export", "declare", "typeset", "local", "readonly", "unset", "set", "shopt", "alias",
    "unalias", "source", ".", "read", "mapfile", "readarray", "getopts", "trap", "enable", "hash",
    "umask", "ulimit", "exec", "eval", "let", "cd", "pushd", "popd",
))  # fmt: skip
MAX_RULES = 6  # of a set: users do not read more before they confirm


def offers(access: Access, facts: Facts) -> tuple[str, ...]:
    """Rules that each cover this call: the most useful, then the narrowest.

    None if no rule can: `rule_set` may have several that do together, and a name with `*`
    cannot be written as a rule.
    """
    if is_command(access):
        parts = _acting_commands(access, facts)
        rules = _rules_for_all_parts(parts)
        if not any(rules) and not _rule_for_each_part(parts):
            rules = (_whole_script_rule(access, facts),)
    else:
        rules = (_folder_rule(access, facts), narrowest_rule(access, facts))
    return tuple(dict.fromkeys(rule for rule in rules if rule))


def rule_set(access: Access, facts: Facts) -> tuple[str, ...]:
    """Rules that cover a command together, one for each part that needs one.

    () if one rule covers all of it, or if a part has none.
    """
    if not is_command(access):
        return ()
    parts = _acting_commands(access, facts)
    return () if any(_rules_for_all_parts(parts)) else _rule_for_each_part(parts)


def with_hosts(rules: tuple[str, ...], access: Access, facts: Facts) -> tuple[str, ...]:
    """These rules, and those for the hosts that a command needs; () if there are too many."""
    if not (access.network and facts.filters_hosts and rules and is_command(access)):
        return rules
    from refold.permissions.network_hosts import hosts_of_command, rules_for
    from refold.permissions.shell.nested_commands import find_nested_commands

    named = hosts_of_command(access, find_nested_commands(access.subject), facts)
    both = (*rules, *rules_for(named))
    return both if len(both) <= MAX_RULES else ()


def narrowest_rule(access: Access, facts: Facts) -> str:
    """The rule that covers this call and as little else as possible, or ""."""
    if is_command(access):
        parts = _acting_commands(access, facts)
        return _exact_rule(parts[0]) if len(parts) == 1 else ""
    if access.files:
        return _file_rule(access, access.files[0], facts) if len(access.files) == 1 else ""
    if not access.subject or access.tool.startswith("mcp__"):
        return access.tool
    if access.tool in WEB_TOOLS:
        from refold.values.web_address import host_of

        host = host_of(access.subject)
        return (
            f"{access.tool}({DOMAIN_PREFIX}{host})"
            if host and not set(host) & _UNUSUAL_CHARACTERS
            else ""
        )
    plain = (
        access.subject.strip() == access.subject
        and not set(access.subject) & _UNUSUAL_CHARACTERS
    )
    return (
        f"{access.tool}({access.subject})" if plain and "\0" not in access.subject else ""
    )


def _file_rule(access: Access, target: Target, facts: Facts) -> str:
    real, root = target.real, facts.roots[0].rstrip("/")
    inside = real.removeprefix(root + "/") if real.startswith(root + "/") else ""
    if not real.strip() or real.endswith("/") or real != real.strip():
        return ""
    path = escape_pattern(inside or real)
    name = access.tool
    return f"{name}({path})" if inside and "/" in path else f"{name}({_with_root(path)})"


def _with_root(path: str) -> str:
    return path if path.startswith("/") else f"./{path}"


def _folder_rule(access: Access, facts: Facts) -> str:
    """A rule for all edits in the folder of this file, if that is below the workspace."""
    if access.tool not in EDIT_TOOLS or not (rule := narrowest_rule(access, facts)):
        return ""
    path = rule[len(access.tool) + 1 : -1]
    folder, slash, _ = path.rpartition("/")
    plain = slash and not any(name[:1] in ("", ".") for name in folder.split("/"))
    return f"{access.tool}({folder}/**)" if plain else ""


def _rules_for_all_parts(parts: "Sequence[SimpleCommand]") -> tuple[str, ...]:
    """Rules that each cover all of `parts`."""
    from refold.permissions.shell.command_patterns import covers

    if len(parts) == 1:
        return (_general_rule(parts[0]), _exact_rule(parts[0]))
    return tuple(
        rule
        for command in parts
        if (rule := _general_rule(command))
        and all(covers(rule.removeprefix("bash(")[:-1], part) for part in parts)
    )


def _rule_for_each_part(parts: "Sequence[SimpleCommand]") -> tuple[str, ...]:
    rules = tuple(dict.fromkeys(_general_rule(part) or _exact_rule(part) for part in parts))
    return rules if 1 < len(rules) <= MAX_RULES and all(rules) else ()


def _whole_script_rule(access: Access, facts: Facts) -> str:
    """A rule that repeats a script which no rules for its parts can cover."""
    from refold.permissions.command_verdict import whole_script

    return f"bash({access.subject.strip()})" if whole_script(access, facts) else ""


def _acting_commands(access: Access, facts: Facts) -> "tuple[SimpleCommand, ...]":
    """The commands that do more than read; none if one of them has patterns."""
    from refold.permissions.shell.read_only import survey

    surveyed = survey(
        access.subject,
        access.cwd or facts.roots[0],
        facts,
        lambda real: not facts.outside(real),
    )
    acting = [command for command in surveyed if command.problem] or list(surveyed[:1])
    if any(command.strays for command in acting):
        return ()
    parts = [command.part for command in acting]
    if any(_changes_later_commands(part.values) for part in parts) or _runs_new_file(parts):
        return ()
    if any(word.glob or part.values[0] == "[" for part in parts for word in part.words):
        return ()
    return tuple(parts)


def _changes_later_commands(values: Sequence[str]) -> bool:
    from refold.permissions.shell.everyday_programs import activates_environment

    return values[0] in _STATEFUL_PROGRAMS and not activates_environment(values)


def _runs_new_file(parts: "Sequence[SimpleCommand]") -> bool:
    """Whether a part runs a file that another part writes from any text: rules for both
    would let any program run.
    """
    names = {
        word.value.rstrip("/").rpartition("/")[2]
        for part in parts
        if part.fed
        for word in (*part.words[1:], *(output.file for output in part.outputs))
    }
    return any(
        name in word.value
        for part in parts
        if not part.fed and part.values[:2] not in (["git", "add"], ["git", "commit"])
        for word in part.words
        for name in names
    )


def _general_rule(part: "SimpleCommand") -> str:
    """A rule for the program and its subcommand with any further words."""
    from refold.permissions.shell.command_patterns import covers
    from refold.permissions.shell.everyday_programs import beginning_of

    start = beginning_of(part.values)
    text = _spell_for_rule(part, [*map(_quote, start), "*"]) if start else ""
    return f"bash({text})" if text and covers(text, part) else ""


def _exact_rule(part: "SimpleCommand") -> str:
    from refold.permissions.shell.command_patterns import covers

    text = _spell_for_rule(part, [_quote(word.value) for word in part.words])
    fits = bool(text) and "\n" not in text and not text.endswith(":*")
    return f"bash({text})" if fits and covers(text, part) else ""


def _spell_for_rule(part: "SimpleCommand", words: Sequence[str]) -> str:
    """`words` with the settings and files of `part` that a rule must spell."""
    files = (f"{output.operator} {_quote(output.file.value)}" for output in part.outputs)
    return " ".join((*part.spelt, *words, *files))


def _quote(word: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_./:,@%+=^-]+", word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"
