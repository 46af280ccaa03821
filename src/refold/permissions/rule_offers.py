"""Computes the allow rules that a question offers to the user, the most useful first.

A rule for exactly this call saves only its own repetition. So for programs of everyday
development a rule for the program and its subcommand comes first, and for edits one for the
folder. For programs that run other programs or code (interpreters, shells, wrappers), and for
commands that delete, discard changes or use the network, only the call itself is offered. A `
*` at the end never covers options that write or run something else
(`command_patterns.is_dangerous`). Deny rules, protected files and catastrophes take precedence
over any allow rule. If one rule cannot cover a command of several parts, each part gets its own
(`rule_set`). A script that cannot be divided into parts gets a rule that repeats it.

A rule covers output into a file only if it names the file: otherwise a rule that was saved for
`pytest > out` would let every read-only program write there, too. A here-document is covered
only if it is stored, as a file or as the message of a commit: for an interpreter, it is the
program. Only listed variables before a command are covered (`shell.variables`), because those
that run programs cannot be listed completely.
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
MAX_RULES = 6  # in one set: users do not read more before they confirm


def offers(access: Access, facts: Facts) -> tuple[str, ...]:
    """Return rules that each cover this call: the most useful first, the narrowest last.

    Return () if no single rule can cover it; `rule_set` may then have rules that cover it
    together.
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
    """Return rules that cover a command only together: one for each part that may write.

    Return () if one rule can cover the whole command (then `offers` has it), if a part cannot
    have a rule, or if there would be more than `MAX_RULES`.
    """
    if not is_command(access):
        return ()
    parts = _acting_commands(access, facts)
    return () if any(_rules_for_all_parts(parts)) else _rule_for_each_part(parts)


def with_hosts(rules: tuple[str, ...], access: Access, facts: Facts) -> tuple[str, ...]:
    """Return `rules` and the `net(…)` rules for the hosts that the command needs.

    Return () if there would be more than `MAX_RULES`.
    """
    if not (access.network and facts.filters_hosts and rules and is_command(access)):
        return rules
    from refold.permissions.network_hosts import hosts_of_command, rules_for
    from refold.permissions.shell.nested_commands import find_nested_commands

    named = hosts_of_command(access, find_nested_commands(access.subject), facts)
    all_rules = (*rules, *rules_for(named))
    return all_rules if len(all_rules) <= MAX_RULES else ()


def narrowest_rule(access: Access, facts: Facts) -> str:
    """Return the rule that covers this call and as little else as possible, or ""."""
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
    """Return a rule for exactly this file, or "" if its name cannot be written in a rule."""
    real, root = target.real, facts.roots[0].rstrip("/")
    relative = real.removeprefix(root + "/") if real.startswith(root + "/") else ""
    if not real.strip() or real.endswith("/") or real != real.strip():
        return ""
    path = escape_pattern(relative or real)
    if not relative or "/" not in path:
        path = _with_root(path)  # a name without a slash would match in every folder
    return f"{access.tool}({path})"


def _with_root(path: str) -> str:
    return path if path.startswith("/") else f"./{path}"


def _folder_rule(access: Access, facts: Facts) -> str:
    """Return a rule for all edits in the folder of the edited file, or "".

    There is none for a folder that is hidden, outside the workspace, or the workspace itself.
    """
    if access.tool not in EDIT_TOOLS or not (rule := narrowest_rule(access, facts)):
        return ""
    path = rule[len(access.tool) + 1 : -1]  # between the parentheses
    folder, slash, _ = path.rpartition("/")
    plain = slash and not any(name[:1] in ("", ".") for name in folder.split("/"))
    return f"{access.tool}({folder}/**)" if plain else ""


def _rules_for_all_parts(parts: "Sequence[SimpleCommand]") -> tuple[str, ...]:
    """Return rules of which each covers all of `parts`.

    For a single part, these are the general rule and the exact rule; "" replaces a missing one.
    """
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
    """Return a rule that repeats the whole script; "" if no rule may allow it."""
    from refold.permissions.command_verdict import may_allow_whole_script

    return (
        f"bash({access.subject.strip()})" if may_allow_whole_script(access, facts) else ""
    )


def _acting_commands(access: Access, facts: Facts) -> "tuple[SimpleCommand, ...]":
    """Return the commands that may do more than read, or the first if there are none.

    Return () if no rule may be offered for one of them.
    """
    from refold.permissions.shell.read_only import survey

    surveyed = survey(
        access.subject,
        access.cwd or facts.roots[0],
        facts,
        lambda real: not facts.outside(real),
    )
    acting = [command for command in surveyed if command.problem] or list(surveyed[:1])
    if any(command.writes_elsewhere for command in acting):
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
    """Whether one part runs a file that another part writes.

    Rules for both parts would let any program run, because the file may contain any text.
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
    """Return a rule for the program and subcommand of `part` with any further words.

    Return "" if the program is not one of everyday development, or if the rule would not cover
    `part`.
    """
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
    """Return the pattern of a rule: `words`, with the variables and output files of `part`.

    A rule must name these to cover the command.
    """
    files = (f"{output.operator} {_quote(output.file.value)}" for output in part.outputs)
    return " ".join((*part.spelt, *words, *files))


def _quote(word: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_./:,@%+=^-]+", word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"
