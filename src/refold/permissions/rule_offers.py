"""Computes the allow rules that a question offers to the user, the most useful first.

A rule for exactly this call saves only its own repetition. So for programs of everyday
development a rule for the program and its subcommand comes first, and for edits one for the
folder. For programs that run other programs or code (interpreters, shells, wrappers), and for
commands that delete, discard changes or use the network, only the call itself is offered.
A ` *` at the end never covers options that write or run something else
(`dangerous_words.is_dangerous`). Deny rules, protected files and catastrophes take precedence
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
    from refold.permissions.shell.simple_commands import SimpleCommand

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

    Return () if one rule can cover the whole command: `offers` has that rule. Return () also if
    a part cannot have a rule, or if there would be more than `MAX_RULES`.
    """
    if not is_command(access):
        return ()
    parts = _acting_commands(access, facts)
    return () if any(_rules_for_all_parts(parts)) else _rule_for_each_part(parts)


def with_hosts(rules: tuple[str, ...], access: Access, facts: Facts) -> tuple[str, ...]:
    """Return `rules` and the `net(…)` rules for the hosts that the command needs.

    Return () if there would be more than `MAX_RULES`.
    """
    needs_hosts = access.network and facts.filters_hosts and is_command(access)
    if not rules or not needs_hosts:
        return rules
    from refold.permissions.network_hosts import hosts_of_command, rules_for
    from refold.permissions.shell.nested_commands import find_nested_commands

    host_names = hosts_of_command(access, find_nested_commands(access.subject), facts)
    all_rules = (*rules, *rules_for(host_names))
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
        if not host or set(host) & _UNUSUAL_CHARACTERS:
            return ""
        return f"{access.tool}({DOMAIN_PREFIX}{host})"
    # A pattern is stripped, and some characters are wildcards in it.
    if access.subject.strip() != access.subject or "\0" in access.subject:
        return ""
    if set(access.subject) & _UNUSUAL_CHARACTERS:
        return ""
    return f"{access.tool}({access.subject})"


def _file_rule(access: Access, target: Target, facts: Facts) -> str:
    """Return a rule for exactly this file, or "" if its name cannot be written in a rule."""
    real = target.real
    # Blanks around a pattern are removed, and a slash at the end means a folder.
    if not real.strip() or real != real.strip() or real.endswith("/"):
        return ""
    root = facts.roots[0].rstrip("/") + "/"
    relative = real.removeprefix(root) if real.startswith(root) else ""
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
    if access.tool not in EDIT_TOOLS:
        return ""
    rule = narrowest_rule(access, facts)
    if not rule:
        return ""
    path = rule.removeprefix(f"{access.tool}(").removesuffix(")")
    folder, slash, _ = path.rpartition("/")
    # An absolute path begins with an empty name.
    is_hidden_or_outside = any(name[:1] in ("", ".") for name in folder.split("/"))
    if not slash or is_hidden_or_outside:
        return ""
    return f"{access.tool}({folder}/**)"


def _rules_for_all_parts(parts: "Sequence[SimpleCommand]") -> tuple[str, ...]:
    """Return rules that each cover all of `parts`.

    For a single part, return its general rule and its exact rule; "" takes the place of a rule
    that the part cannot have.
    """
    from refold.permissions.shell.command_patterns import covers

    if len(parts) == 1:
        return (_general_rule(parts[0]), _exact_rule(parts[0]))
    rules = list[str]()
    for command in parts:
        rule = _general_rule(command)
        pattern = rule.removeprefix("bash(").removesuffix(")")
        if rule and all(covers(pattern, part) for part in parts):
            rules.append(rule)
    return tuple(rules)


def _rule_for_each_part(parts: "Sequence[SimpleCommand]") -> tuple[str, ...]:
    rules = tuple(dict.fromkeys(_general_rule(part) or _exact_rule(part) for part in parts))
    return rules if 1 < len(rules) <= MAX_RULES and all(rules) else ()


def _whole_script_rule(access: Access, facts: Facts) -> str:
    """Return a rule that repeats the whole script; "" if no rule may allow it."""
    from refold.permissions.command_verdict import may_allow_whole_script

    if not may_allow_whole_script(access, facts):
        return ""
    return f"bash({access.subject.strip()})"


def _acting_commands(access: Access, facts: Facts) -> "tuple[SimpleCommand, ...]":
    """Return the commands that may do more than read, or the first if all only read.

    Return () if no rule may be offered for one of the returned commands.
    """
    from refold.permissions.shell.read_only import survey

    surveyed = survey(
        access.subject,
        access.cwd or facts.roots[0],
        facts,
        may_read=lambda real: not facts.outside(real),
    )
    acting = [command for command in surveyed if command.problem] or list(surveyed[:1])
    if any(command.writes_elsewhere for command in acting):
        return ()
    parts = [command.part for command in acting]
    if _runs_new_file(parts):
        return ()
    for part in parts:
        if _changes_later_commands(part.values) or part.values[0] == "[":
            return ()
        if any(word.glob for word in part.words):
            return ()
    return tuple(parts)


def _changes_later_commands(values: Sequence[str]) -> bool:
    """Whether a command such as `export` changes what later commands of the script do."""
    from refold.permissions.shell.everyday_programs import activates_environment

    return values[0] in _STATEFUL_PROGRAMS and not activates_environment(values)


def _runs_new_file(parts: "Sequence[SimpleCommand]") -> bool:
    """Whether one part runs a file that another part writes.

    Rules for both parts would let any program run, because the file may contain any text.
    """
    written_names = set[str]()
    for part in parts:
        if part.has_inline_input:  # it may write that to each file that it names
            words = (*part.words[1:], *(output.file for output in part.outputs))
            written_names.update(w.value.rstrip("/").rpartition("/")[2] for w in words)
    for part in parts:
        only_records = part.values[:2] in (["git", "add"], ["git", "commit"])
        if part.has_inline_input or only_records:  # it writes files or records them
            continue
        if any(name in word.value for word in part.words for name in written_names):
            return True
    return False


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
    """Return the rule for exactly this command, or "" if no pattern can spell it out."""
    from refold.permissions.shell.command_patterns import covers

    text = _spell_for_rule(part, [_quote(word.value) for word in part.words])
    # `:*` at the end would match further words.
    if not text or "\n" in text or text.endswith(":*"):
        return ""
    return f"bash({text})" if covers(text, part) else ""


def _spell_for_rule(part: "SimpleCommand", words: Sequence[str]) -> str:
    """Return the pattern of a rule: `words`, with the variables and output files of `part`.

    A rule must name these variables and files to cover the command.
    """
    files = (f"{output.operator} {_quote(output.file.value)}" for output in part.outputs)
    return " ".join((*part.spelled_settings, *words, *files))


def _quote(word: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_./:,@%+=^-]+", word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"
