"""Decides whether an allow rule may cover a whole script by repeating its text.

Such a rule is for scripts that no rule can cover part by part: loops, assignments and inserted
output. It allows exactly this text, and only if the text shows what may run and what may be
written. `command_patterns` has rules for single commands.
"""

import re
from collections.abc import Sequence

from refold.permissions.facts import Facts
from refold.permissions.shell.everyday_programs import beginning_of
from refold.permissions.shell.named_files import NamedFile
from refold.permissions.shell.nested_commands import NestedCommands, name_of
from refold.permissions.shell.plain_script import parse_plain
from refold.permissions.shell.program_forms import HARMLESS_INNER_PROGRAMS
from refold.permissions.shell.script import read_script
from refold.permissions.shell.words import MARK_PATTERN, Word
from refold.values.path_names import below, is_steering

MAX_SCRIPT_CHARS = 300  # users do not read more before they confirm
# Variables that decide what runs. Their values may be printed, but the script must not set
# them.
_DECISIVE_VARIABLES = re.compile(
    r"(?<![A-Za-z0-9_])(?<!\$)(?<!\$\{(?=\w+\}))"
    r"(?:PATH|IFS|ENV|BASH_\w+|SHELLOPTS|BASHOPTS|CDPATH|PROMPT_COMMAND|PS[0-4]|LD_\w+|DYLD_\w+|"
    r"GCONV_PATH|GIT_\w+|SSH_\w+|PYTHON\w+|NODE_OPTIONS|NODE_PATH|"
    r"PERL\w+|RUBY\w+|GEM_\w+|LUA_\w+|JAVA_\w*OPTIONS|JDK_\w+|MAKEFLAGS|\w*EDITOR|VISUAL|"
    r"\w*PAGER|BROWSER|SHELL|HOME|\w*_COMMAND|\w*_ASKPASS|RUSTC\w*|CARGO_\w+|GOFLAGS|"
    r"npm_\w+|NPM_\w+|LESS\w*|TMPDIR|PWD|OLDPWD)(?![A-Za-z0-9_])"
)
_CHANGING_NAMES = frozenset(("alias", "enable", "trap", "hash", "coproc"))
_DISCARDING_TARGETS = ("/dev/null", "/dev/stdout", "/dev/stderr")


def is_repeatable(
    text: str, nested: NestedCommands, files: Sequence[NamedFile], facts: Facts
) -> bool:
    """Whether an allow rule that repeats `text` may be offered.

    `nested` are the commands that the script may run, and `files` the files that it names.
    """
    parts = parse_plain(text)
    if len(text) > MAX_SCRIPT_CHARS or not (text.isascii() and text.isprintable()):
        return False
    if len(parts) == 1 and parts[0].can_be_spelled_out:
        return False
    if nested.broken or nested.hidden or nested.bomb or not nested.commands:
        return False
    names = {name_of(command) for command in nested.commands}
    if names & _CHANGING_NAMES or _DECISIVE_VARIABLES.search(text):
        return False
    if "git" in names and names & {"cd", "pushd", "popd"}:
        # Another directory can be another repository, with settings of its own.
        return False
    if has_unknown_arguments(nested) and not facts.sandboxed:
        return False
    if any(_is_written_elsewhere(file, facts) for file in files):
        return False
    return all(_is_spelt_out(command.words) for command in read_script(text).commands)


def has_unknown_arguments(nested: NestedCommands) -> bool:
    """Whether a word or a redirected file is known only when the script runs.

    The script may then read only the workspace.
    """
    words = [word for command in nested.commands for word in command]
    files = [redirect.target for redirect in nested.redirects]
    return any(MARK_PATTERN.search(word.value) for word in (*words, *files))


def _is_spelt_out(command: tuple[Word, ...]) -> bool:
    """Whether the words of a command are known, as far as they decide what it does.

    Arguments that can only name what it reads, compiles or tests may be unknown.
    """
    unknown_indexes = [
        index for index, word in enumerate(command) if MARK_PATTERN.search(word.value)
    ]
    if not command or 0 in unknown_indexes:
        return False
    values = [word.text for word in command]
    if not unknown_indexes or values[0] in HARMLESS_INNER_PROGRAMS:
        return True
    known_words = values[: unknown_indexes[0]]
    return bool(beginning_of(known_words))


def _is_written_elsewhere(file: NamedFile, facts: Facts) -> bool:
    """Whether the script writes this file in a place that no rule for the script permits.

    The result is True outside the workspace and /tmp, for a file that instructs agents, and for
    a path that is not fully known.
    """
    if not file.writes or file.real in _DISCARDING_TARGETS:
        return False
    if any(below(file.real, folder) for folder in ("/tmp", "/var/tmp")):
        return False
    is_outside = file.real.startswith("/") and facts.outside(file.real)
    if is_outside or is_steering(file.real.split("/")):
        return True
    return bool(MARK_PATTERN.search(file.path))
