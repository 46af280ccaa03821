"""Matches rules for commands: allow rules narrowly, deny and ask rules widely.

An allow rule covers one simple command, and only what it spells out, word by word. A last ` *`
or `:*` matches further words, except dangerous ones: options that make a program write or run
something, and programs that run programs (`dangerous_words`). A rule can still cover these by
spelling them out. A deny or ask rule is compared with each command that may run. If the script
hides its words, the result can be "maybe"; then the user must be asked.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct

from refold.permissions.shell.dangerous_words import is_dangerous
from refold.permissions.shell.nested_commands import NestedCommands, find_nested_commands
from refold.permissions.shell.plain_script import parse_plain
from refold.permissions.shell.simple_commands import Output, SimpleCommand
from refold.permissions.shell.words import (
    MARK_PATTERN,
    Certainty,
    Word,
    join_answers,
    may_match,
    with_gaps,
)

_PATTERN_TOKEN = re.compile(r"\*|\?|\[[^\]]+\]|.", re.DOTALL)
_WILD_CHARACTERS = re.compile(r"[*?\[]")
_MAX_PATTERN_WORDS = 100
_SHELL_OPERATORS = re.compile(r"[;&|()<>{}`$\n]+")
_BRACE_LIST = re.compile(r"\{([^{}\s]*,[^{}\s]*)\}")
_WITHOUT_QUOTES = str.maketrans("", "", "'\"\\")


def covers(pattern: str, part: SimpleCommand) -> bool:
    """Whether an allow rule with this pattern, such as `npm run test:*`, covers a command."""
    if not part.can_be_spelled_out:
        return False
    rule = _read_pattern(pattern)
    if part.outputs != rule.outputs:
        return False
    if set(part.spelled_settings) != set(rule.spelled_settings):
        return False
    pattern_words, values = rule.words, part.values
    allows_more = pattern_words[-1] == "*"
    fixed_words = pattern_words[:-1] if allows_more else pattern_words
    if len(values) < len(fixed_words):
        return False
    if len(values) > len(fixed_words) and not allows_more:
        return False
    if any(word.begins_with_glob for word in part.words):
        return False
    if not all(map(fnmatchcase, values, fixed_words)):
        return False
    first_wildcard = len(fixed_words)
    for index, word in enumerate(fixed_words):
        if _has_wildcard(word):
            first_wildcard = index
            break
    return not is_dangerous(values, first_wildcard)


class _Pattern(Struct, frozen=True):
    """A pattern for each word of a command, and the output files and variables that it must
    have.
    """

    words: tuple[str, ...]
    outputs: tuple[Output, ...] = ()
    spelled_settings: tuple[str, ...] = ()


@lru_cache(maxsize=512)
def _read_pattern(pattern: str) -> _Pattern:
    """Parse the pattern of a rule. Text in quotes matches only itself.

    A pattern that is not one plain command is split at blanks, with its quotes.
    """
    pattern = re.sub(r":\*$", " *", pattern)
    parts = parse_plain(pattern)
    if len(parts) != 1 or not parts[0].can_be_spelled_out:
        return _Pattern(tuple(pattern.split()))
    part = parts[0]
    words = (
        word.value if word.glob else _escape_wildcards(word.value) for word in part.words
    )
    return _Pattern(tuple(words), part.outputs, part.spelled_settings)


def _escape_wildcards(text: str) -> str:
    """Return a shell pattern that matches only `text`."""
    return _WILD_CHARACTERS.sub(r"[\g<0>]", text)


def _has_wildcard(pattern_word: str) -> bool:
    without_escaped = re.sub(r"\[[*?\[]\]", "", pattern_word)  # see `_escape_wildcards`
    return bool(_WILD_CHARACTERS.search(without_escaped))


def match_script(pattern: str, text: str) -> Certainty:
    """Return whether a script runs a command that matches a pattern such as `git push *`."""
    if pattern.strip() == text.strip():
        return "yes"
    rule = _read_pattern(pattern)
    nested = find_nested_commands(text)
    if not _may_write(rule.outputs, nested):
        return "no"
    answers = {_match_command(rule.words, command) for command in nested.commands}
    if "yes" in answers:
        return "yes"
    if nested.broken and _matches_crudely(rule.words, text):
        return "yes"
    is_uncertain = "maybe" in answers or nested.hidden or nested.broken
    return "maybe" if is_uncertain else "no"


def _may_write(outputs: Sequence[Output], nested: NestedCommands) -> bool:
    """Whether the script may write its output to each of these files.

    The result is True for a script whose commands are not all known.
    """
    if nested.broken or nested.hidden:
        return True
    written = [redirect.target.value for redirect in nested.redirects if redirect.writes]
    for output in outputs:
        file_pattern = _escape_wildcards(output.file.value)
        if not any(could_match(file_pattern, candidate) for candidate in written):
            return False
    return True


def _match_command(pattern_words: Sequence[str], command: tuple[Word, ...]) -> Certainty:
    """Return whether a command matches the words of a pattern.

    The folder of its program may be missing in the pattern.
    """
    program, *arguments = command
    has_unknown_name = MARK_PATTERN.search(program.value)
    if has_unknown_name and _matches_without_name(pattern_words, command):
        # The rest of the name is hidden, and everything visible matches the rule.
        return "yes"
    name = program.value.rsplit("/", 1)[-1]
    # Some disks ignore case, so `RM` may run `rm`.
    spellings = {program.value, name, name.casefold()}
    answers = set[Certainty]()
    for spelling in spellings:
        first_word = Word(spelling, may_be_several=program.may_be_several)
        answers.add(_match_words(pattern_words, (first_word, *arguments)))
    return join_answers(answers)


def _matches_without_name(pattern_words: Sequence[str], command: tuple[Word, ...]) -> bool:
    """Whether a command whose program is known only in part matches the pattern.

    The known part of the name must be able to match, and all other words must match for
    certain.
    """
    name = command[0].value.rsplit("/", 1)[-1]
    name_pattern = pattern_words[0].removesuffix("*") or "*"
    if not could_match(name_pattern, name):
        return False
    # The name matches, so a pattern and a name that match for certain take its place.
    pattern = ("*x*", *pattern_words[1:])
    words = (Word("x"), *command[1:])
    allows_more = _allows_more(pattern_words)
    return _match_words(pattern, words, allows_more=allows_more) == "yes"


def _allows_more(pattern_words: Sequence[str]) -> bool:
    return pattern_words[-1].endswith("*")


def _match_words(
    pattern_words: Sequence[str],
    words: tuple[Word, ...],
    *,
    allows_more: bool | None = None,
) -> Certainty:
    """Return whether the words of a command match those of a pattern.

    `allows_more`: the command may have further words. By default it may if the pattern ends
    with `*`. A word that may become several words makes the answer "maybe".
    """
    if allows_more is None:
        allows_more = _allows_more(pattern_words)
    pattern = pattern_words[:-1] if pattern_words[-1] == "*" else pattern_words
    is_certain = True
    for index, word_pattern in enumerate(pattern):
        if index >= len(words):
            return "no"
        word = words[index]
        if word.may_be_several:
            return "maybe"
        if not could_match(word_pattern, word.value):
            return "no"
        is_certain = is_certain and word.is_known
    further_words = words[len(pattern) :]
    if further_words and not allows_more:
        # A word that may become several words may also become none.
        return "maybe" if all(word.may_be_several for word in further_words) else "no"
    return "yes" if is_certain else "maybe"


def could_match(pattern: str, value: str) -> bool:
    """Whether a shell pattern can match `value`, in which marks may stand for any text."""
    if not MARK_PATTERN.search(value):
        return fnmatchcase(value, pattern)
    characters_and_wildcards = tuple(_PATTERN_TOKEN.findall(pattern))
    return may_match(characters_and_wildcards, with_gaps(value))


def _matches_crudely(pattern_words: Sequence[str], text: str) -> bool:
    """Whether a script that the grammar cannot parse has a command that matches the pattern.

    The script is split at everything that may separate commands, and its quotes are ignored.
    """
    joined = text.replace("\\\n", "")
    spread = _BRACE_LIST.sub(lambda match: match[1].replace(",", " "), joined)
    for part in _SHELL_OPERATORS.split(spread):
        values = part.translate(_WITHOUT_QUOTES).split()
        # A command may begin at any word, for example after a variable.
        for start in range(len(values)):
            words = tuple(map(Word, values[start : start + _MAX_PATTERN_WORDS]))
            if _match_command(pattern_words, words) == "yes":
                return True
    return False
