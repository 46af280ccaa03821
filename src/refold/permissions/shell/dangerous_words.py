"""Decides whether words are dangerous, so that a wildcard of an allow rule does not cover them.

Dangerous are options and arguments that make a program write, or run something else. The tables
are in `option_tables`; here are the checks that need more than a table. `command_patterns` matches
the rules.
"""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from refold.permissions.shell import program_forms
from refold.permissions.shell.nested_commands import SHELL_PROGRAMS
from refold.permissions.shell.option_tables import (
    AWK_PROGRAMS,
    CODE_OPTIONS,
    EVALUATING_PROGRAMS,
    GIT_HARMLESS_FIRST,
    GIT_OPTIONS,
    GIT_SHORT,
    GIT_SUBCOMMANDS,
    ONE_DASH,
    OPTIONS_OF_PROGRAM,
    PROJECT_TOOLS,
    RUNNING_SUBCOMMANDS,
    WHOLE_OPTIONS,
    WRAPPER_PROGRAMS,
    WRITING_PROGRAMS,
)
from refold.permissions.shell.program_forms import form, parse_options
from refold.permissions.shell.sed_and_awk import files_of_test, only_computes, only_prints

# Options of git commit whose value, the next word, is the message.
_BEFORE_MESSAGE = re.compile(r"-[aqvn]*m|--message")
_VERSIONED_PROGRAM = re.compile(r"(python|pypy|perl|ruby|lua|php|node|pip)[\d.]+")
# Words of a wrapper such as `nice` before the program: options, numbers and variables.
_WRAPPER_ARGUMENT = re.compile(r"-.*|[\d.]+[smhdkKMG]?|[A-Za-z_]\w*=.*")


def is_dangerous(words: Sequence[str], first_wildcard: int) -> bool:
    """Whether words that a wildcard covers make the program write or run something.

    `words` are the words of the command. `first_wildcard` is the index of the first word with a
    wildcard in the rule's pattern. The rule spells out only the words before it.
    """
    if first_wildcard >= len(words):
        return False
    name = words[0].rsplit("/", 1)[-1]
    if versioned := _VERSIONED_PROGRAM.fullmatch(name):
        name = versioned[1]
    if first_wildcard == 0 and name == "cd":
        return False
    check = _CHECKS_BY_PROGRAM.get(name)
    return (
        name in EVALUATING_PROGRAMS
        or name in WRITING_PROGRAMS
        or (check is not None and check(words, first_wildcard))
        or (name in SHELL_PROGRAMS and _is_dangerous_shell(words, first_wildcard))
        or (name in AWK_PROGRAMS and _is_dangerous_awk(words, first_wildcard))
        or (name in WRAPPER_PROGRAMS and _wraps_dangerously(words, first_wildcard))
        or _runs_other_program_dangerously(name, words, first_wildcard)
        or _has_too_many_files(name, words)
        or (name in CODE_OPTIONS and _has_code_option(name, words[first_wildcard:]))
        or (
            name in OPTIONS_OF_PROGRAM
            and _has_dangerous_option(name, words, first_wildcard)
        )
    )


def _has_code_option(name: str, words: Sequence[str]) -> bool:
    """Whether one of the words is an option whose value the program runs as code."""
    return any(re.match(CODE_OPTIONS[name], word, re.DOTALL) for word in words)


def _has_dangerous_option(name: str, words: Sequence[str], first_wildcard: int) -> bool:
    """Return whether a word from `first_wildcard` on is a dangerous option or subcommand."""
    listed = OPTIONS_OF_PROGRAM[name].split()
    subcommand_indexes = _subcommand_indexes(words)
    null_outputs = _null_output_indexes(words) if name == "curl" else ()
    is_listed = _is_listed_either_way if name in ONE_DASH else _is_listed
    for index in range(first_wildcard, len(words)):
        is_option = words[index].startswith("-")
        if index in null_outputs or not (is_option or index in subcommand_indexes):
            continue
        if is_listed(words[index], listed):
            return True
    return False


def _subcommand_indexes(words: Sequence[str]) -> Sequence[int]:
    """Return the indexes of the words that may be the subcommand.

    There can be several, because a word after an option may be the option's value.
    """
    indexes = list[int]()
    for index, (before, word) in enumerate(pairwise(words), 1):
        if word.startswith("-"):
            continue
        indexes.append(index)
        may_be_value = before.startswith("-") and "=" not in before
        if not may_be_value:
            break
    return indexes


def _is_listed_either_way(word: str, names: Sequence[str]) -> bool:
    """Whether `word` is one of `names`. A long option may begin with only one dash."""
    if not word.startswith("-"):
        return word in names
    # The value of an option may follow after `=` or `:`.
    option = re.split(r"[=:]", word.lstrip("-"), maxsplit=1)[0]
    options = [name.lstrip("-") for name in names if name.startswith("-")]
    if option in options:
        return True
    # A single capital letter is followed by its value in the same word.
    capitals = [name for name in options if len(name) == 1 and name.isupper()]
    return any(option.startswith(capital) for capital in capitals)


def _null_output_indexes(words: Sequence[str]) -> Sequence[int]:
    """Return the indexes of the options `-o` and `--output` of curl before `/dev/null`.

    Other letters without a value may come before the `o`.
    """
    return [
        index
        for index, (option, value) in enumerate(pairwise(words))
        if value == "/dev/null" and re.fullmatch(r"-[fgiIkLsSv]*o|--output", option)
    ]


def _is_listed(word: str, names: Sequence[str]) -> bool:
    """Whether `word` is one of `names`, an abbreviation of one, or short options that include
    one.
    """
    option = word.partition("=")[0]
    if word.startswith("--"):
        if option in WHOLE_OPTIONS:  # it abbreviates nothing
            return option in names
        return option != "--" and any(name.startswith(option) for name in names)
    if not word.startswith("-"):
        return word in names
    if word in names or option in names:
        return True
    short_options = {name[1] for name in names if len(name) == 2}
    return bool(short_options & set(word[1:]))


def _has_too_many_files(name: str, words: Sequence[str]) -> bool:
    """Whether the words may name more files than the program reads.

    Some programs write to a further file, as `uniq` does.
    """
    program_form = form(program_forms.READ_ONLY_PROGRAMS.get(name, ""))
    if program_form.max_operands is None:
        return False
    options = parse_options(words[1:], program_form)
    if options.problem:
        return True
    return len(options.operand_indexes) > program_form.max_operands


def _is_dangerous_git(words: Sequence[str], first_wildcard: int) -> bool:
    """Whether git may write or run a program because of a word that the rule does not spell
    out.
    """
    index = 1
    while index < len(words) and words[index].startswith("-"):
        if index >= first_wildcard and words[index] not in GIT_HARMLESS_FIRST:
            return True
        # An option with a value: the rule spells out both, or does not cover it.
        index += 2 if words[index] in ("-C", "-c") else 1
    subcommand = words[index] if index < len(words) else ""
    if index >= first_wildcard and subcommand in GIT_SUBCOMMANDS:
        return True
    covered_words = words[max(first_wildcard, index) :]
    runs_arguments = "run" in covered_words or "foreach" in covered_words
    if subcommand in ("bisect", "submodule") and runs_arguments:
        return True
    letters = set(GIT_SHORT.get(subcommand, ""))
    first_argument = max(first_wildcard, index + 1)
    word_before_it = first_argument - 1
    for before, word in pairwise(words[word_before_it:]):
        is_message = subcommand == "commit" and _BEFORE_MESSAGE.fullmatch(before)
        if not is_message and _is_dangerous_git_word(word, letters):
            return True
    return False


def _is_dangerous_git_word(word: str, letters: set[str]) -> bool:
    """Whether git may write or run a program because of `word`.

    `letters` are the short options of the subcommand that make git write or run a program.
    """
    if word.startswith("--"):
        if _is_listed(word, GIT_OPTIONS):
            return True
    elif word.startswith("-") and letters & set(word[1:]):
        return True
    # A remote that a helper reads, such as `ext::…`, or the check of a signature.
    return "::" in word.partition("/")[0] or "%G" in word


def _is_dangerous_shell(words: Sequence[str], first_wildcard: int) -> bool:
    """Whether a shell may run code other than a script file that the rule spells out."""
    script_index = 0
    for index, word in enumerate(words[1:], 1):
        if not word.startswith("-"):
            script_index = index
            break
    if not script_index or first_wildcard < script_index:
        return True
    # After `-c` that word is not a file but the code itself.
    short_options = [w for w in words[1:script_index] if not w.startswith("--")]
    takes_code = any("c" in option for option in short_options)
    return takes_code and first_wildcard <= script_index


def _wraps_dangerously(words: Sequence[str], first_wildcard: int) -> bool:
    """Whether a wrapper such as `nice` may run a program that the rule does not spell out.

    Dangerous words of the program that it runs count as well.
    """
    for index, word in enumerate(words[1:first_wildcard], 1):
        if not _WRAPPER_ARGUMENT.fullmatch(word):
            return is_dangerous(words[index:], first_wildcard - index)
    return True


def _runs_other_program_dangerously(
    name: str, words: Sequence[str], first_wildcard: int
) -> bool:
    """Whether the words run another program, and are dangerous for that program."""
    # `uv run *` allows every program, but not the programs' dangerous options.
    start = _index_of_other_program(name, words)
    if not start:
        return False
    return is_dangerous(words[start:], max(1, first_wildcard - start))


def _index_of_other_program(name: str, words: Sequence[str]) -> int:
    """Return the index of the program that `name` runs, or 0 if it runs none."""
    if name in ("python", "python2", "pypy") and "-m" in words[1:-1]:
        return words.index("-m") + 1
    first_words = tuple(words[:2])
    if first_words in RUNNING_SUBCOMMANDS or (name, *words[1:2]) in RUNNING_SUBCOMMANDS:
        for index in range(2, len(words)):
            if not words[index].startswith("-"):
                return index
        return 0
    runs_tool = name in ("yarn", "pnpm") and words[1:2] and words[1] in PROJECT_TOOLS
    return 1 if runs_tool else 0


def _is_dangerous_sed(words: Sequence[str], first_wildcard: int) -> bool:
    """Return whether `sed` may write, or runs a script that the rule does not spell out."""
    program_form = form(program_forms.SED_OPTIONS + " -i? -f: --in-place=? --file=")
    arguments = words[1:]
    options = parse_options(arguments, program_form)
    if options.problem:
        return True
    # Without `-e` the first operand is the script.
    first_operand = [arguments[index] for index in options.operand_indexes[:1]]
    spelled_out = words[1:first_wildcard]
    for script in options.values or first_operand:
        if script and script not in spelled_out and not only_prints(script):
            return True
    acting_options = ("-i", "-f", "--in-place", "--file")
    return any(_is_listed(word, acting_options) for word in words[first_wildcard:])


def _is_dangerous_awk(words: Sequence[str], first_wildcard: int) -> bool:
    """Whether the rule covers an awk program with effects, or options except `-F` and `-v`."""
    for word in words[first_wildcard:]:
        is_other_option = word.startswith("-") and word[1:2] not in ("F", "v")
        if is_other_option or not only_computes(word):
            return True
    return False


def _evaluates_words(words: Sequence[str], _first_wildcard: int) -> bool:
    arguments = words[1:-1] if words[0] == "[" else words[1:]
    return files_of_test(arguments) is None


def _is_dangerous_date(words: Sequence[str], first_wildcard: int) -> bool:
    """Whether the rule covers a word that may set the clock.

    An option, a format and the date after `-d` do not set the clock.
    """
    for index in range(first_wildcard, len(words)):
        is_option_or_format = words[index][:1] in ("-", "+")
        is_shown_date = words[index - 1] == "-d"
        if not is_option_or_format and not is_shown_date:
            return True
    return False


def _loads_pytest_plugin(words: Sequence[str], first_wildcard: int) -> bool:
    """Whether an option makes pytest write a file, or load a plug-in, whose code would run.

    `-p no:NAME` only disables a plug-in.
    """
    covered_words = words[first_wildcard:]
    for word, following in pairwise([*covered_words, ""]):
        if word == "-p" and not following.startswith("no:"):
            return True
        if re.match(r"-p(?!no:).|--debug=", word):
            return True
    return False


def _is_dangerous_printf(words: Sequence[str], first_wildcard: int) -> bool:
    """Whether the rule covers an option such as `-v`, which sets a variable."""
    option_words = words[first_wildcard:2]  # only the first argument can be an option
    return any(word.startswith("-") and word != "--" for word in option_words)


def _sets_make_variables(words: Sequence[str], first_wildcard: int) -> bool:
    return any("=" in w for w in words[first_wildcard:] if not w.startswith("-"))


def _is_dangerous_tar(words: Sequence[str], first_wildcard: int) -> bool:
    """Whether the first word may have an `I` or `F`, which make tar run a program.

    This word may be option letters without a dash. The tables have the other options.
    """
    if first_wildcard != 1 or words[1].startswith("-"):
        return False
    return "I" in words[1] or "F" in words[1]


_CHECKS_BY_PROGRAM: dict[str, Callable[[Sequence[str], int], bool]] = {
    "git": _is_dangerous_git,
    "sed": _is_dangerous_sed,
    "date": _is_dangerous_date,
    "pytest": _loads_pytest_plugin,
    "test": _evaluates_words,
    "[": _evaluates_words,
    "printf": _is_dangerous_printf,
    "make": _sets_make_variables,
    "gmake": _sets_make_variables,
    "tar": _is_dangerous_tar,
}
