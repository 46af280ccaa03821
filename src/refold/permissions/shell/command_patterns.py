"""Matches rules for commands: allow rules narrowly, deny and ask rules widely.

An allow rule covers one simple command, and only what it spells, word by word. A last ` *`
or `:*` matches further words, except dangerous ones: options that write or run, and
programs that run programs (`option_tables`); a rule can still cover these by spelling them.
A deny or ask rule is compared with each command that may run. If the script hides its
words, the result can be "maybe"; then the user must be asked.
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
    RUNNING_OPTIONS,
    WHOLE_OPTIONS,
    WRAPPER_PROGRAMS,
    WRITING_PROGRAMS,
)
from refold.permissions.shell.plain_script import Output, SimpleCommand, parse_plain
from refold.permissions.shell.program_forms import form, parse_options
from refold.permissions.shell.sed_and_awk import files_of_test, only_computes, only_prints
from refold.permissions.shell.words import MARK_PATTERN, Held, Word, may_match, with_gaps

_WILD_CHARACTERS = re.compile(r"[*?\[]")
_MOST_WORDS = 100
_SHELL_OPERATORS = re.compile(r"[;&|()<>{}`$\n]+")
_BRACE_LIST = re.compile(r"\{([^{}\s]*,[^{}\s]*)\}")
_WITHOUT_QUOTES = str.maketrans("", "", "'\"\\")
_BEFORE_MESSAGE = re.compile(r"-[aqvn]*m|--message")  # of a commit
_VERSIONED_PROGRAM = re.compile(r"(python|pypy|perl|ruby|lua|php|node|pip)[\d.]+")


def covers(pattern: str, part: SimpleCommand) -> bool:
    """Whether an allow rule covers a command. `pattern` is like `npm run test:*`."""
    if not part.bare:
        return False
    rule = _read_pattern(pattern)
    if part.outputs != rule.outputs or set(part.spelt) != set(rule.spelt):
        return False
    wanted, values = rule.words, part.values
    has_more = wanted[-1] == "*"
    fixed = wanted[:-1] if has_more else wanted
    if len(values) < len(fixed) or (len(values) > len(fixed) and not has_more):
        return False
    if any(word.loose for word in part.words):
        return False
    if not all(map(fnmatchcase, values, fixed)):
        return False
    free = next(
        (index for index, want in enumerate(fixed) if _has_wildcard(want)), len(fixed)
    )
    return not is_dangerous(values, free)


class _Pattern(Struct, frozen=True):
    """A pattern for each word, and the outputs and settings that a command must have."""

    words: tuple[str, ...]
    outputs: tuple[Output, ...] = ()
    spelt: tuple[str, ...] = ()


@lru_cache(maxsize=512)
def _read_pattern(pattern: str) -> _Pattern:
    """Parse a rule's pattern. Quoted text in it is literal."""
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


def holds(pattern: str, text: str) -> Held:
    """Whether a text matches a pattern such as `git push *`."""
    if pattern.strip() == text.strip():
        return "yes"
    rule = _read_pattern(pattern)
    wanted = rule.words
    nested = find_nested_commands(text)
    if not _may_write(rule.outputs, nested):
        return "no"
    answers = {_match_command(wanted, command) for command in nested.commands}
    if "yes" in answers or (nested.broken and _matches_crudely(wanted, text)):
        return "yes"
    hides = "maybe" in answers or nested.hidden or nested.broken
    return "maybe" if hides else "no"


def _may_write(outputs: Sequence[Output], nested: NestedCommands) -> bool:
    """Whether the script may have output to each of these files."""
    written = [r.target.value for r in nested.redirects if r.writes]
    files = (_WILD_CHARACTERS.sub(r"[\g<0>]", output.file.value) for output in outputs)
    sure = not nested.broken and not nested.hidden
    return not sure or all(
        any(could_match(file, candidate) for candidate in written) for file in files
    )


def _match_command(pattern_words: Sequence[str], command: tuple[Word, ...]) -> Held:
    value = command[0].value
    if MARK_PATTERN.search(value) and _matches_without_name(pattern_words, command):
        # Its name is hidden, and all that is visible matches the rule.
        return "yes"
    last = value.rsplit("/", 1)[-1]
    names = {value, last, last.casefold()}
    answers = {
        _match_words(pattern_words, (Word(n, many=command[0].many), *command[1:]))
        for n in names
    }
    return "yes" if "yes" in answers else "maybe" if "maybe" in answers else "no"


def _matches_without_name(pattern_words: Sequence[str], command: tuple[Word, ...]) -> bool:
    if not could_match(
        pattern_words[0].removesuffix("*") or "*", command[0].value.rsplit("/", 1)[-1]
    ):
        return False
    return (
        _match_words(
            ("*x*", *pattern_words[1:]),
            (Word("x"), *command[1:]),
            allows_more=_allows_more(pattern_words),
        )
        == "yes"
    )


def _allows_more(pattern_words: Sequence[str]) -> bool:
    return pattern_words[-1].endswith("*")


def _match_words(
    pattern_words: Sequence[str],
    values: tuple[Word, ...],
    *,
    allows_more: bool | None = None,
) -> Held:
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
    """Whether `value`, whose marks may be any text, can match `pattern`."""
    if not MARK_PATTERN.search(value):
        return fnmatchcase(value, pattern)
    return may_match(
        tuple(re.findall(r"\*|\?|\[[^\]]+\]|.", pattern, re.DOTALL)), with_gaps(value)
    )


def _matches_crudely(pattern_words: Sequence[str], text: str) -> bool:
    """Match a script that the grammar cannot parse: split at everything that may separate,
    quotes ignored.
    """
    spread = _BRACE_LIST.sub(lambda m: m[1].replace(",", " "), text.replace("\\\n", ""))
    parts = (p.translate(_WITHOUT_QUOTES).split() for p in _SHELL_OPERATORS.split(spread))
    return any(
        _match_command(pattern_words, tuple(map(Word, part[index : index + _MOST_WORDS])))
        == "yes"
        for part in parts
        for index in range(len(part))
    )


def is_dangerous(words: Sequence[str], free: int) -> bool:
    """Whether the words from `free` on may do more than a `*` allows."""
    if free >= len(words):
        return False
    name = words[0].rsplit("/", 1)[-1]
    name = m[1] if (m := _VERSIONED_PROGRAM.fullmatch(name)) else name
    if free == 0 and name in ("cd",):
        return False
    own = _OWN_WAY.get(name)
    return (
        name in EVALUATING_PROGRAMS
        or name in WRITING_PROGRAMS
        or (own is not None and own(words, free))
        or (name in SHELL_PROGRAMS and _shell(words, free))
        or (name in AWK_PROGRAMS and _awk(words, free))
        or (name in WRAPPER_PROGRAMS and _is_fixed_wrapper(words, free))
        or _runs_dangerously(name, words, free)
        or _has_too_many_files(name, words)
        or (
            name in CODE_OPTIONS
            and any(re.match(CODE_OPTIONS[name], w, re.DOTALL) for w in words[free:])
        )
        or (name in OPTIONS_OF_PROGRAM and _fixes_program(name, words, free))
    )


def _fixes_program(name: str, words: Sequence[str], free: int) -> bool:
    listed = OPTIONS_OF_PROGRAM[name].split()
    own = _subcommand_indexes(words)
    quiet = _null_output_indexes(words) if name == "curl" else ()
    named = _is_listed_either_way if name in ONE_DASH else _is_listed
    return any(
        named(words[index], listed)
        for index in range(free, len(words))
        if index not in quiet and (index in own or words[index].startswith("-"))
    )


def _subcommand_indexes(words: Sequence[str]) -> Sequence[int]:
    """Indexes of possible subcommands: a word after an option may be its value instead."""
    indexes = list[int]()
    for index, word in enumerate(words[1:], 1):
        if not word.startswith("-"):
            indexes.append(index)
            if not words[index - 1].startswith("-") or "=" in words[index - 1]:
                break
    return indexes


def _is_listed_either_way(word: str, names: Sequence[str]) -> bool:
    if not word.startswith("-"):
        return word in names
    name = re.split(r"[=:]", word.lstrip("-"), maxsplit=1)[0]
    options = [d.lstrip("-") for d in names if d.startswith("-")]
    # A single capital letter takes its value in the same word.
    return name in options or any(
        len(o) == 1 and o.isupper() and name.startswith(o) for o in options
    )


def _null_output_indexes(words: Sequence[str]) -> Sequence[int]:
    """Indexes of `-o` before `/dev/null`, perhaps with other letters before the `o`."""
    return [
        index
        for index, word in enumerate(words[:-1])
        if words[index + 1] == "/dev/null"
        and re.fullmatch(r"-[fgiIkLsSv]*o|--output", word)
    ]


def _is_listed(word: str, names: Sequence[str]) -> bool:
    """Whether `word` is one of these, a prefix of one, or short options that include one."""
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
    written = program_forms.READ_ONLY_PROGRAMS.get(name, "")
    program_form = form(written)
    if program_form.at_most is None:
        return False
    options = parse_options(words[1:], program_form)
    return bool(options.problem) or len(options.others) > program_form.at_most


def _git(words: Sequence[str], free: int) -> bool:
    index = 1
    while index < len(words) and words[index].startswith("-"):
        if index >= free and words[index] not in GIT_HARMLESS_FIRST:
            return True
        # An option with a value: the rule has spelled both, or it is not covered.
        index += 2 if words[index] in ("-C", "-c") else 1
    command = words[index] if index < len(words) else ""
    if index >= free and command in GIT_SUBCOMMANDS:
        return True
    if command in ("bisect", "submodule") and {"run", "foreach"} & set(
        words[max(free, index) :]
    ):
        return True
    letters = set(GIT_SHORT.get(command, ""))
    first = max(free, index + 1)
    return any(
        (w.startswith("--") and _is_listed(w, GIT_OPTIONS))
        or "::" in w.partition("/")[0]
        or "%G" in w
        or (w.startswith("-") and not w.startswith("--") and letters & set(w[1:]))
        for before, w in zip(words[first - 1 :], words[first:], strict=False)
        if command != "commit" or not _BEFORE_MESSAGE.fullmatch(before)
    )


def _shell(words: Sequence[str], free: int) -> bool:
    """Whether a shell may run other code than a script file whose name the rule spells."""
    script = next(
        (index for index, w in enumerate(words) if index and not w.startswith("-")), 0
    )
    takes_command = any("c" in w for w in words[1:script] if not w.startswith("--"))
    return not script or free < script or (takes_command and free <= script)


def _is_fixed_wrapper(words: Sequence[str], free: int) -> bool:
    for index, word in enumerate(words[1:free], 1):
        if re.fullmatch(r"-.*|[\d.]+[smhdkKMG]?|[A-Za-z_]\w*=.*", word):
            continue
        return is_dangerous(words[index:], free - index)
    return True


def _runs_dangerously(name: str, words: Sequence[str], free: int) -> bool:
    """Whether the words run another program with dangerous words of its own."""
    if name in ("python", "python2", "pypy") and "-m" in words[1:-1]:
        start = words.index("-m") + 1
    elif tuple(words[:2]) in RUNNING_OPTIONS or (name, *words[1:2]) in RUNNING_OPTIONS:
        start = next((i for i in range(2, len(words)) if words[i][:1] != "-"), 0)
    elif name in ("yarn", "pnpm") and words[1] in PROJECT_TOOLS:
        start = 1
    else:
        return False
    # `uv run *` allows every program, but not its dangerous options.
    return bool(start) and is_dangerous(words[start:], max(1, free - start))


def _sed(words: Sequence[str], free: int) -> bool:
    program_form = form(program_forms.SED_OPTIONS + " -i? -f: --in-place=? --file=")
    options = parse_options(words[1:], program_form)
    spelt = set(words[1:free])
    scripts = options.values or tuple(words[1:][index] for index in options.others[:1])
    acts = [s for s in scripts if s not in spelt and s and not only_prints(s)]
    return bool(options.problem or acts) or any(
        _is_listed(w, ("-i", "-f", "--in-place", "--file")) for w in words[free:]
    )


def _awk(words: Sequence[str], free: int) -> bool:
    return any(not only_computes(w) or (w.startswith("-") and w[1:2] not in ("F", "v"))
               for w in words[free:])  # fmt: skip


def _test(words: Sequence[str], _free: int) -> bool:
    return files_of_test(words[1:-1] if words[0] == "[" else words[1:]) is None


def _date(words: Sequence[str], free: int) -> bool:
    return any(w[:1] not in ("-", "+") and words[index - 1] != "-d"
               for index, w in enumerate(words[free:], free))  # fmt: skip


def _pytest(words: Sequence[str], free: int) -> bool:
    """Whether pytest loads a plug-in, which is code that runs; `no:` disables one."""
    after = zip(words[free:], [*words[free + 1 :], ""], strict=True)
    return any(w == "-p" and not value.startswith("no:") for w, value in after) or any(
        re.match(r"-p(?!no:).|--debug=", w) for w in words[free:]
    )


def _printf(words: Sequence[str], free: int) -> bool:
    return any(w.startswith("-") and w != "--" for w in words[free:2])


def _sets_make_variables(words: Sequence[str], free: int) -> bool:
    return any("=" in w for w in words[free:] if not w.startswith("-"))


def _tar(words: Sequence[str], free: int) -> bool:
    # Its first word may be letters without a dash.
    return free == 1 and not words[1].startswith("-") and bool(set("IF") & set(words[1]))


_OWN_WAY: dict[str, Callable[[Sequence[str], int], bool]] = {
    "git": _git,
    "sed": _sed,
    "date": _date,
    "pytest": _pytest,
    "test": _test,
    "[": _test,
    "printf": _printf,
    "make": _sets_make_variables,
    "gmake": _sets_make_variables,
    "tar": _tar,
}
