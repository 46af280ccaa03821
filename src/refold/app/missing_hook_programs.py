"""Finds hooks whose program is missing, so that the user is warned at the start.

A hook without its program would fail each time. Only the first command of a line is checked,
and only if its name is literal. `app.session_hooks` runs the hooks.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from refold.hooks.configuration import GUARD_EVENTS, Hook
from refold.permissions.shell.plain_script import SHELL_KEYWORDS

# The first two words of a line if they are literal, each with or without double quotes.
_FIRST_COMMAND_PATTERN = re.compile(
    r"""\s*(?:"([^"$`\\]+)"(?![^\s;|&])|([\w@%+:,./~-]+)(?=[\s;|&]|$))"""
    r"""(?:[ \t]+(?:"([^"$`\\]+)"|([\w@%+:,./~-]+))(?=[\s;|&]|$))?"""
)
# The variable of the project's directory, with the double quotes next to it.
_DIRECTORY_PATTERN = re.compile(
    r"""("?)\$(?:\{(?:CLAUDE|REFOLD)_PROJECT_DIR\}|(?:CLAUDE|REFOLD)_PROJECT_DIR\b)(?(1)("?))"""
)
# Interpreters that fail at once without the script in their arguments.
_INTERPRETER_PATTERN = re.compile(r"(?:ba|da|z)?sh|python[\d.]*|node|ruby|perl|bun|deno")
_SHELL_BUILTINS = """
    . : [ alias bg bind break builtin caller cd command compgen complete compopt continue
    declare dirs disown echo enable eval exec exit export false fc fg getopts hash help
    history jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly
    return set shift shopt source suspend test times trap true type typeset ulimit umask
    unalias unset wait
"""


def missing_programs(
    hooks: Sequence[Hook],
    program_exists: Callable[[str], bool],
    entry_points: Collection[str],
    directory: str,
) -> Iterator[str]:
    """Yield a sentence for each hook whose program, script or entry point is missing.

    `program_exists` checks the name of a program. `entry_points` are the names that packages
    register. Relative paths start at `directory`.
    """
    for hook in hooks:
        if hook.function is not None:
            continue
        if hook.entry_point:
            missing = "" if hook.entry_point in entry_points else hook.entry_point
            kind = "entry point"
        else:
            missing = _missing_file(hook.command, program_exists, directory)
            kind = "program"
        if missing:
            yield _missing_sentence(hook, kind, missing)


def _missing_sentence(hook: Hook, kind: str, missing: str) -> str:
    """Return a sentence about a missing program of a hook, with the effect and the remedy.

    `kind` names what is missing.
    """
    text = f"{hook.source}: the {kind} {missing!r} of the {hook.on} hook `{hook.name}` is missing"
    if hook.on not in GUARD_EVENTS or not hook.required:
        return f"{text}: install it, or remove the hook"
    refused = "call" if hook.on == "PreToolUse" else "message"
    return (
        f"{text}, so each {refused} that it is run for is refused: install it, "
        'remove the hook, or give it "required": false'
    )


def _missing_file(
    command: str, program_exists: Callable[[str], bool], directory: str
) -> str:
    """Return the missing program or missing script at the beginning of a command line.

    Return "" if program and script exist, or if a name is not literal.
    """
    match = _FIRST_COMMAND_PATTERN.match(_with_directory(command, directory))
    if match is None:
        return ""
    # Of each two groups, the first is a quoted name, and the second a name without quotes.
    program = match[1] or match[2]
    script = match[3] or match[4] or ""
    if program in SHELL_KEYWORDS or program in _SHELL_BUILTINS.split():
        return ""
    if "/" not in program:
        if not program_exists(program):
            return program
    elif not os.access(_full_path(program, directory), os.X_OK):
        return program
    is_interpreter = _INTERPRETER_PATTERN.fullmatch(os.path.basename(program))
    is_path = "/" in script or "." in script[1:]
    is_option = script.startswith("-")
    if not is_interpreter or not is_path or is_option:
        return ""
    return "" if os.path.exists(_full_path(script, directory)) else script


def _with_directory(command: str, directory: str) -> str:
    """Return the line with `directory` in place of the variable for the project's directory."""
    return _DIRECTORY_PATTERN.sub(
        lambda variable: _replacement(variable, directory), command
    )


def _replacement(variable: re.Match[str], directory: str) -> str:
    """Return the directory in place of a variable, with the quotes that remain around it.

    `"$DIR"/x` loses its quotes, `"$DIR/x"` keeps them.
    """
    quote_before, quote_after = variable[1] or "", variable[2] or ""
    if quote_before and quote_after:
        return directory
    return f"{quote_before}{directory}"


def _full_path(name: str, directory: str) -> str:
    return os.path.join(directory, os.path.expanduser(name))
