"""Matches rules for commands: allow rules narrowly, deny and ask rules widely.

An allow rule covers one simple command, and only what it spells out, word by word. A last ` *`
or `:*` matches further words, except dangerous ones: options that make a program write or run
something, and programs that run programs (`option_tables`). A rule can still cover these by
spelling them out. A deny or ask rule is compared with each command that may run. If the script
hides its words, the result can be "maybe"; then the user must be asked.
"""

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct

from refold.permissions.shell import program_forms
from refold.permissions.shell.nested_commands import (
    SHELL_PROGRAMS,
    NestedCommands,
    find_nested_commands,
)
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
from refold.permissions.shell.plain_script import Output, SimpleCommand, parse_plain
from refold.permissions.shell.program_forms import form, parse_options
from refold.permissions.shell.sed_and_awk import files_of_test, only_computes, only_prints
from refold.permissions.shell.words import (
    MARK_PATTERN,
    Certainty,
    Word,
    join_answers,
    may_match,
    with_gaps,
)

_WILD_CHARACTERS = re.compile(r"[*?\[]")
_MAX_PATTERN_WORDS = 100
_SHELL_OPERATORS = re.compile(r"[;&|()<>{}`$\n]+")
_BRACE_LIST = re.compile(r"\{([^{}\s]*,[^{}\s]*)\}")
_WITHOUT_QUOTES = str.maketrans("", "", "'\"\\")
# Options of git commit whose value, the next word, is the message.
_BEFORE_MESSAGE = re.compile(r"-[aqvn]*m|--message")
_VERSIONED_PROGRAM = re.compile(r"(python|pypy|perl|ruby|lua|php|node|pip)[\d.]+")


def covers(pattern: str, part: SimpleCommand) -> bool:
    """Whether an allow rule with this pattern, such as `npm run test:*`, covers a command."""
    if not part.bare:
        return False
    rule = _read_pattern(pattern)
    if part.outputs != rule.outputs or set(part.spelt) != set(rule.spelt):
        return False
    pattern_words, values = rule.words, part.values
    has_more = pattern_words[-1] == "*"
    fixed_words = pattern_words[:-1] if has_more else pattern_words
    if len(values) < len(fixed_words) or (len(values) > len(fixed_words) and not has_more):
        return False
    if any(word.loose for word in part.words):
        return False
    if not all(map(fnmatchcase, values, fixed_words)):
        return False
    first_free = next(
        (index for index, word in enumerate(fixed_words) if _has_wildcard(word)),
        len(fixed_words),
    )
    return not is_dangerous(values, first_free)


class _Pattern(Struct, frozen=True):
    """A pattern for each word of a command, and the output files and variables that it must
    have.
    """

    words: tuple[str, ...]
    outputs: tuple[Output, ...] = ()
    spelt: tuple[str, ...] = ()


@lru_cache(maxsize=512)
def _read_pattern(pattern: str) -> _Pattern:
    """Parse the pattern of a rule. Text in quotes matches only itself."""
    spread = re.sub(r":\*$", " *", pattern)
    parts = parse_plain(spread)
    if len(parts) != 1 or not parts[0].bare:
        return _Pattern(tuple(spread.split()))
    part = parts[0]
    words = (
        w.value if w.glob else _WILD_CHARACTERS.sub(r"[\g<0>]", w.value) for w in part.words
    )
    return _Pattern(tuple(words), part.outputs, part.spelt)


def _has_wildcard(want: str) -> bool:
    return bool(_WILD_CHARACTERS.search(re.sub(r"\[[*?\[]\]", "", want)))


def match_script(pattern: str, text: str) -> Certainty:
    """Return whether a script runs a command that matches a pattern such as `git push *`."""
    if pattern.strip() == text.strip():
        return "yes"
    rule = _read_pattern(pattern)
    pattern_words = rule.words
    nested = find_nested_commands(text)
    if not _may_write(rule.outputs, nested):
        return "no"
    answers = {_match_command(pattern_words, command) for command in nested.commands}
    if "yes" in answers or (nested.broken and _matches_crudely(pattern_words, text)):
        return "yes"
    hides = "maybe" in answers or nested.hidden or nested.broken
    return "maybe" if hides else "no"


def _may_write(outputs: Sequence[Output], nested: NestedCommands) -> bool:
    """Whether the script may write its output to each of these files.

    The result is True for a script whose commands are not all known.
    """
    written = [r.target.value for r in nested.redirects if r.writes]
    files = (_WILD_CHARACTERS.sub(r"[\g<0>]", output.file.value) for output in outputs)
    sure = not nested.broken and not nested.hidden
    return not sure or all(
        any(could_match(file, candidate) for candidate in written) for file in files
    )


def _match_command(pattern_words: Sequence[str], command: tuple[Word, ...]) -> Certainty:
    """Return whether a command matches the words of a pattern.

    The folder of its program may be missing in the pattern.
    """
    value = command[0].value
    if MARK_PATTERN.search(value) and _matches_without_name(pattern_words, command):
        # The rest of the name is hidden, and everything visible matches the rule.
        return "yes"
    last = value.rsplit("/", 1)[-1]
    names = {value, last, last.casefold()}
    answers = {
        _match_words(pattern_words, (Word(n, many=command[0].many), *command[1:]))
        for n in names
    }
    return join_answers(answers)


def _matches_without_name(pattern_words: Sequence[str], command: tuple[Word, ...]) -> bool:
    """Whether a command whose program is known only in part matches the pattern.

    The known part of the name must be able to match, and all other words must match for
    certain.
    """
    if not could_match(
        pattern_words[0].removesuffix("*") or "*", command[0].value.rsplit("/", 1)[-1]
    ):
        return False
    # The name matches, so one that matches for certain takes its place.
    pattern = ("*x*", *pattern_words[1:])
    words = (Word("x"), *command[1:])
    allows_more = _allows_more(pattern_words)
    return _match_words(pattern, words, allows_more=allows_more) == "yes"


def _allows_more(pattern_words: Sequence[str]) -> bool:
    return pattern_words[-1].endswith("*")


def _match_words(
    pattern_words: Sequence[str],
    values: tuple[Word, ...],
    *,
    allows_more: bool | None = None,
) -> Certainty:
    """Return whether the words of a command match those of a pattern.

    `allows_more`: the command may have further words. By default it may if the pattern ends
    with `*`.
    """
    allows_more = _allows_more(pattern_words) if allows_more is None else allows_more
    pattern = pattern_words[:-1] if pattern_words[-1] == "*" else pattern_words
    sure = True
    for index, want in enumerate(pattern):
        if index >= len(values):
            return "no"
        if values[index].many:
            return "maybe"
        match = could_match(want, values[index].value)
        if not match:
            return "no"
        sure = sure and values[index].is_known
    if len(values) > len(pattern) and not allows_more:
        return "maybe" if all(w.many for w in values[len(pattern) :]) else "no"
    return "yes" if sure else "maybe"


def could_match(pattern: str, value: str) -> bool:
    """Whether a pattern can match `value`, in which marks may stand for any text."""
    if not MARK_PATTERN.search(value):
        return fnmatchcase(value, pattern)
    return may_match(
        tuple(re.findall(r"\*|\?|\[[^\]]+\]|.", pattern, re.DOTALL)), with_gaps(value)
    )


def _matches_crudely(pattern_words: Sequence[str], text: str) -> bool:
    """Whether a script that the grammar cannot parse has a command that matches the pattern.

    The script is split at everything that may separate commands, and its quotes are ignored.
    """
    spread = _BRACE_LIST.sub(lambda m: m[1].replace(",", " "), text.replace("\\\n", ""))
    parts = (p.translate(_WITHOUT_QUOTES).split() for p in _SHELL_OPERATORS.split(spread))
    return any(
        _match_command(
            pattern_words, tuple(map(Word, part[index : index + _MAX_PATTERN_WORDS]))
        )
        == "yes"
        for part in parts
        for index in range(len(part))
    )


def is_dangerous(words: Sequence[str], first_free: int) -> bool:
    """Whether a `*` of a rule covers dangerous words: those of `words` from index `first_free`
    on.

    Dangerous words make the program write, or run something else.
    """
    if first_free >= len(words):
        return False
    name = words[0].rsplit("/", 1)[-1]
    name = m[1] if (m := _VERSIONED_PROGRAM.fullmatch(name)) else name
    if first_free == 0 and name in ("cd",):
        return False
    check = _CHECKS_BY_PROGRAM.get(name)
    return (
        name in EVALUATING_PROGRAMS
        or name in WRITING_PROGRAMS
        or (check is not None and check(words, first_free))
        or (name in SHELL_PROGRAMS and _is_dangerous_shell(words, first_free))
        or (name in AWK_PROGRAMS and _is_dangerous_awk(words, first_free))
        or (name in WRAPPER_PROGRAMS and _wraps_dangerously(words, first_free))
        or _runs_other_program_dangerously(name, words, first_free)
        or _has_too_many_files(name, words)
        or (
            name in CODE_OPTIONS
            and any(re.match(CODE_OPTIONS[name], w, re.DOTALL) for w in words[first_free:])
        )
        or (name in OPTIONS_OF_PROGRAM and _has_dangerous_option(name, words, first_free))
    )


def _has_dangerous_option(name: str, words: Sequence[str], first_free: int) -> bool:
    """Return whether a word from `first_free` on is a dangerous option or subcommand."""
    listed = OPTIONS_OF_PROGRAM[name].split()
    subcommands = _subcommand_indexes(words)
    null_outputs = _null_output_indexes(words) if name == "curl" else ()
    is_listed = _is_listed_either_way if name in ONE_DASH else _is_listed
    return any(
        is_listed(words[index], listed)
        for index in range(first_free, len(words))
        if index not in null_outputs
        and (index in subcommands or words[index].startswith("-"))
    )


def _subcommand_indexes(words: Sequence[str]) -> Sequence[int]:
    """Return the indexes of the words that may be the subcommand.

    There can be several, because a word after an option may be the option's value.
    """
    indexes = list[int]()
    for index, word in enumerate(words[1:], 1):
        if not word.startswith("-"):
            indexes.append(index)
            if not words[index - 1].startswith("-") or "=" in words[index - 1]:
                break
    return indexes


def _is_listed_either_way(word: str, names: Sequence[str]) -> bool:
    """Whether `word` is one of `names`, for programs whose long options may begin with one dash."""
    if not word.startswith("-"):
        return word in names
    name = re.split(r"[=:]", word.lstrip("-"), maxsplit=1)[0]
    options = [d.lstrip("-") for d in names if d.startswith("-")]
    # A single capital letter is followed by its value in the same word.
    return name in options or any(
        len(o) == 1 and o.isupper() and name.startswith(o) for o in options
    )


def _null_output_indexes(words: Sequence[str]) -> Sequence[int]:
    """Return the indexes of the options `-o` and `--output` before `/dev/null`.

    Other letters may come before the `o`.
    """
    return [
        index
        for index, word in enumerate(words[:-1])
        if words[index + 1] == "/dev/null"
        and re.fullmatch(r"-[fgiIkLsSv]*o|--output", word)
    ]


def _is_listed(word: str, names: Sequence[str]) -> bool:
    """Whether `word` is one of `names`, an abbreviation of one, or short options that include
    one.
    """
    if word.startswith("--"):
        start = word.partition("=")[0]
        if start in WHOLE_OPTIONS:
            return start in names
        return len(start) > 2 and any(d.startswith(start) for d in names)
    if not word.startswith("-"):
        return word in names
    if word in names or word.partition("=")[0] in names:
        return True
    letters = {d[1] for d in names if len(d) == 2}
    return bool(letters & set(word[1:]))


def _has_too_many_files(name: str, words: Sequence[str]) -> bool:
    """Return whether a program may write a file after those it reads, as `uniq` does."""
    written = program_forms.READ_ONLY_PROGRAMS.get(name, "")
    program_form = form(written)
    if program_form.at_most is None:
        return False
    options = parse_options(words[1:], program_form)
    return bool(options.problem) or len(options.others) > program_form.at_most


def _is_dangerous_git(words: Sequence[str], first_free: int) -> bool:
    """Whether git may write or run a program because of a word that the rule does not spell
    out.
    """
    index = 1
    while index < len(words) and words[index].startswith("-"):
        if index >= first_free and words[index] not in GIT_HARMLESS_FIRST:
            return True
        # An option with a value: the rule spells out both, or does not cover it.
        index += 2 if words[index] in ("-C", "-c") else 1
    command = words[index] if index < len(words) else ""
    if index >= first_free and command in GIT_SUBCOMMANDS:
        return True
    if command in ("bisect", "submodule") and {"run", "foreach"} & set(
        words[max(first_free, index) :]
    ):
        return True
    letters = set(GIT_SHORT.get(command, ""))
    first = max(first_free, index + 1)
    for before, word in zip(words[first - 1 :], words[first:], strict=False):
        is_message = command == "commit" and _BEFORE_MESSAGE.fullmatch(before)
        if not is_message and _is_dangerous_git_word(word, letters):
            return True
    return False


def _is_dangerous_git_word(word: str, letters: set[str]) -> bool:
    """Whether git may write or run a program because of `word`.

    `letters` are the short options of its subcommand that do this.
    """
    if word.startswith("--"):
        if _is_listed(word, GIT_OPTIONS):
            return True
    elif word.startswith("-") and letters & set(word[1:]):
        return True
    # a remote that a helper reads, such as `ext::…`, or the check of a signature
    return "::" in word.partition("/")[0] or "%G" in word


def _is_dangerous_shell(words: Sequence[str], first_free: int) -> bool:
    """Whether a shell may run code other than a script file that the rule spells out."""
    script = next(
        (index for index, w in enumerate(words) if index and not w.startswith("-")), 0
    )
    takes_command = any("c" in w for w in words[1:script] if not w.startswith("--"))
    return not script or first_free < script or (takes_command and first_free <= script)


def _wraps_dangerously(words: Sequence[str], first_free: int) -> bool:
    """Whether a wrapper such as `nice` may run a program that the rule does not spell out.

    Dangerous words of the program that it runs count as well.
    """
    for index, word in enumerate(words[1:first_free], 1):
        if re.fullmatch(r"-.*|[\d.]+[smhdkKMG]?|[A-Za-z_]\w*=.*", word):
            continue
        return is_dangerous(words[index:], first_free - index)
    return True


def _runs_other_program_dangerously(
    name: str, words: Sequence[str], first_free: int
) -> bool:
    """Whether the words run another program, and are dangerous for that program."""
    if name in ("python", "python2", "pypy") and "-m" in words[1:-1]:
        start = words.index("-m") + 1
    elif (
        tuple(words[:2]) in RUNNING_SUBCOMMANDS
        or (name, *words[1:2]) in RUNNING_SUBCOMMANDS
    ):
        start = next((i for i in range(2, len(words)) if words[i][:1] != "-"), 0)
    elif name in ("yarn", "pnpm") and words[1] in PROJECT_TOOLS:
        start = 1
    else:
        return False
    # `uv run *` allows every program, but not the programs' dangerous options.
    return bool(start) and is_dangerous(words[start:], max(1, first_free - start))


def _is_dangerous_sed(words: Sequence[str], first_free: int) -> bool:
    """Return whether `sed` may write, or runs a script that the rule does not spell out."""
    program_form = form(program_forms.SED_OPTIONS + " -i? -f: --in-place=? --file=")
    options = parse_options(words[1:], program_form)
    spelt = set(words[1:first_free])
    scripts = options.values or tuple(words[1:][index] for index in options.others[:1])
    acts = [s for s in scripts if s not in spelt and s and not only_prints(s)]
    return bool(options.problem or acts) or any(
        _is_listed(w, ("-i", "-f", "--in-place", "--file")) for w in words[first_free:]
    )


def _is_dangerous_awk(words: Sequence[str], first_free: int) -> bool:
    return any(not only_computes(w) or (w.startswith("-") and w[1:2] not in ("F", "v"))
               for w in words[first_free:])  # fmt: skip


def _evaluates_words(words: Sequence[str], _free: int) -> bool:
    return files_of_test(words[1:-1] if words[0] == "[" else words[1:]) is None


def _is_dangerous_date(words: Sequence[str], first_free: int) -> bool:
    return any(w[:1] not in ("-", "+") and words[index - 1] != "-d"
               for index, w in enumerate(words[first_free:], first_free))  # fmt: skip


def _loads_pytest_plugin(words: Sequence[str], first_free: int) -> bool:
    """Whether an option makes pytest load a plug-in, whose code would run, or write a file.

    `-p no:NAME` only disables a plug-in.
    """
    after = zip(words[first_free:], [*words[first_free + 1 :], ""], strict=True)
    return any(w == "-p" and not value.startswith("no:") for w, value in after) or any(
        re.match(r"-p(?!no:).|--debug=", w) for w in words[first_free:]
    )


def _is_dangerous_printf(words: Sequence[str], first_free: int) -> bool:
    return any(w.startswith("-") and w != "--" for w in words[first_free:2])


def _sets_make_variables(words: Sequence[str], first_free: int) -> bool:
    return any("=" in w for w in words[first_free:] if not w.startswith("-"))


def _is_dangerous_tar(words: Sequence[str], first_free: int) -> bool:
    # The first word of tar may be option letters without a dash.
    return (
        first_free == 1 and not words[1].startswith("-") and bool(set("IF") & set(words[1]))
    )


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
