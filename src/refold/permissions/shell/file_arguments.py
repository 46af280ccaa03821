"""Finds the words of a command that are files. Its program and options must be known.

Allow rules use this. Any other command is reported as a problem. `read_only` checks whether the
files may be read; `program_forms` has the programs and their options.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from refold.permissions.facts import Facts
from refold.permissions.shell import program_forms
from refold.permissions.shell.git_read_only import parse_git
from refold.permissions.shell.program_forms import ParsedOptions, form, parse_options
from refold.permissions.shell.quoting import ShellWord
from refold.permissions.shell.sed_and_awk import files_of_test, only_computes, only_prints
from refold.permissions.shell.simple_commands import SimpleCommand
from refold.permissions.shell.words import UNKNOWN_GAP

_COUNTING_FORMAT = re.compile(r"%[^A-Za-z%]*n")  # a format of printf that counts characters
# For these programs, words after `--` are not operands, or a glob could change their
# meaning.
STRICT_ABOUT_GLOBS = frozenset(
    ("sed", "awk", "gawk", "mawk", "jq", "find", "date", "test", "[", "printf", "type")
)


class FileArguments(Struct, frozen=True):
    """The indexes of the words of a command that are files.

    `problem` is why the command is not known to be read-only, or "".
    """

    indexes: Sequence[int] = ()
    problem: str = ""


def files_of(part: SimpleCommand, facts: Facts) -> FileArguments:
    """Return which words of a command are files, or a problem if its form is unknown."""
    name, words = part.values[0], part.values[1:]
    if len(words) == 1 and _prints_version_or_help(name, words[0], facts):
        return FileArguments()
    if name == "strings" and any(word.startswith("@") for word in words):
        return FileArguments(problem="strings may take options from a file")
    if name in program_forms.READ_ONLY_PROGRAMS:
        return _files_of_listed_program(part, facts)
    # The first two arguments decide what these programs do. `find` is judged below.
    is_strict = name in STRICT_ABOUT_GLOBS and name != "find"
    if is_strict and any(word.glob for word in part.words[:3]):
        return FileArguments(
            problem=f"the arguments of {name} are not known before it runs"
        )
    if name in program_forms.SEARCH_PROGRAMS:
        return _files_of_search(name, words, facts)
    if name in _FINDERS_BY_PROGRAM:
        return _FINDERS_BY_PROGRAM[name](words, facts)
    return _unknown(name)


def _files_of_listed_program(part: SimpleCommand, facts: Facts) -> FileArguments:
    """Return the files of a program that only reads, or a problem if it may do more."""
    name, words = part.values[0], part.values[1:]
    program_form = form(program_forms.READ_ONLY_PROGRAMS[name])
    if program_form.max_operands is not None and any(w.glob for w in part.words):
        return FileArguments(problem=f"{name} may be given more files than it reads")
    options = parse_options(words, program_form)
    if (
        program_form.max_operands is not None
        and len(options.operand_indexes) > program_form.max_operands
    ):
        return FileArguments(
            problem=f"{name} could write to {words[options.operand_indexes[-1]]}"
        )
    if _follows_links(name, options, facts):
        return FileArguments(problem=f"{name} may follow links out of the workspace")
    return _files_of_options(name, options, names_files=program_form.names_files)


def _follows_links(name: str, options: ParsedOptions, facts: Facts) -> bool:
    """Whether an option makes the program follow links that may lead anywhere.

    The result is False in a sandbox, where links lead only to visible files.
    """
    follows = program_forms.FOLLOWING_OPTIONS.get(name, frozenset[str]())
    return not facts.sandboxed and bool(options.options & follows)


def _prints_version_or_help(name: str, word: str, facts: Facts) -> bool:
    """Whether the command only prints its version or help.

    A program that is not listed as harmless may need a sandbox even for that.
    """
    if word in program_forms.VERSION_QUESTIONS.get(name, ()):
        return facts.sandboxed
    is_harmless = (
        name in program_forms.READ_ONLY_PROGRAMS
        or name in program_forms.SEARCH_PROGRAMS
        or name in ("sed", "find")
    )
    return is_harmless and word in ("--version", "--help")


def _files_of_options(
    name: str, options: ParsedOptions, *, names_files: bool = True, skip: int = 0
) -> FileArguments:
    """Return the operands of a program as files, except the first `skip` operands.

    Return no files if `names_files` is false. The result has a problem if `options` have one.
    """
    if options.problem:
        return FileArguments(problem=f"{name} {options.problem} may do more than read")
    if not names_files:
        return FileArguments()
    # The operands are counted without the program.
    return FileArguments([index + 1 for index in options.operand_indexes[skip:]])


def _unknown(name: str) -> FileArguments:
    return FileArguments(problem=f"{name} may do more than read")


def _files_of_search(name: str, words: Sequence[str], facts: Facts) -> FileArguments:
    """Return the files of a search program; its first operand is usually the pattern."""
    options = parse_options(words, form(program_forms.SEARCH_PROGRAMS[name]))
    if _follows_links(name, options, facts):
        return FileArguments(problem=f"{name} may follow links out of the workspace")
    # With one of these options no operand is a pattern.
    pattern_options = {"-e", "--regexp", "--files", "--type-list"}
    if name == "jq":
        if any("import" in word or "include" in word for word in words):
            return FileArguments(problem="jq may read other files")
        pattern_options.remove("-e")  # which sets the exit code of jq
    has_pattern_operand = not options.options & pattern_options
    return _files_of_options(name, options, skip=1 if has_pattern_operand else 0)


def _files_of_sed(words: Sequence[str], _facts: Facts) -> FileArguments:
    """Return the files of `sed`, or a problem if its script may do more than print."""
    options = parse_options(words, form(program_forms.SED_OPTIONS))
    if options.problem:
        return _files_of_options("sed", options)
    scripts = options.values  # of `-e`
    script_operands = 0
    if not scripts:  # without `-e` the first operand is the script
        scripts = tuple(words[index] for index in options.operand_indexes[:1])
        script_operands = 1
    if not scripts or not all(map(only_prints, scripts)):
        return FileArguments(problem="this script of sed is not known to print only")
    return _files_of_options("sed", options, skip=script_operands)


def _files_of_awk(words: Sequence[str], _facts: Facts) -> FileArguments:
    """Return the files of `awk`, or a problem if its program may do more than print."""
    options = parse_options(words, form(program_forms.AWK_OPTIONS))
    scripts = [words[index] for index in options.operand_indexes[:1]]
    is_harmless = bool(scripts) and only_computes(scripts[0])
    if not options.problem and not is_harmless:
        return FileArguments(problem="this program of awk is not known to print only")
    return _files_of_options("awk", options, skip=1)


def _files_of_find(words: Sequence[str], facts: Facts) -> FileArguments:
    """Return the files that `find` starts from, and those in its tests and in the command that
    it runs.
    """
    command = ["find", *words]  # the indexes in the result count the program
    files = list[int]()
    # The files to start from come before the tests and actions.
    index = 2 if words[:1] == ["-P"] else 1
    while index < len(command) and command[index][:1] not in ("-", "(", "!", ","):
        files.append(index)
        index += 1
    while index < len(command):
        word = command[index]
        if word in program_forms.FIND_ALONE:
            index += 1
            continue
        if word == "-exec":
            start = index + 1
            ends = (i for i in range(start, len(command)) if command[i] in (";", "+"))
            end = next(ends, start)  # without an end, the inner command counts as empty
            inner = _files_of_inner_command(command[start:end], facts)
            if inner.problem:
                return FileArguments(problem=inner.problem)
            files += [start + inner_index for inner_index in inner.indexes]
            index = end + 1
            continue
        # Any other word must be a test whose value is the next word.
        value_index = index + 1
        names_file = word in program_forms.FIND_WITH_FILE
        is_known = names_file or word in program_forms.FIND_WITH
        if not is_known or value_index >= len(command):
            return FileArguments(problem=f"find {word} may do more than read")
        if names_file:
            files.append(value_index)
        index = value_index + 1
    return FileArguments(files)


def _files_of_xargs(words: Sequence[str], facts: Facts) -> FileArguments:
    """Return the files of the command that `xargs` runs, or a problem if it is unknown."""
    program_form = form(program_forms.XARGS_OPTIONS)
    # The inner command begins at the first word that is neither an option nor the value of one.
    # A problem with the words before it means that the last option has no value yet.
    start = 0
    while start < len(words) and (
        words[start].startswith("-") or parse_options(words[:start], program_form).problem
    ):
        start += 1
    own_words = words[:start]
    options = parse_options(own_words, program_form)
    if options.problem or options.operand_indexes or own_words[-1:] == ["--"]:
        return FileArguments(
            problem=f"xargs {options.problem or '--'} may do more than read"
        )
    if start == len(words):
        return FileArguments()
    # The value of `-I` is replaced by an input.
    if any(value in words[start] for value in options.values):
        return FileArguments(problem="xargs may change which program it runs")
    inner = _files_of_inner_command(words[start:], facts)
    # `words` lack the program `xargs`, which the indexes in the result count.
    return FileArguments([start + 1 + index for index in inner.indexes], inner.problem)


def _files_of_inner_command(command: Sequence[str], facts: Facts) -> FileArguments:
    """Return the files in a command to which find or xargs adds the names of files.

    Its program must be harmless; an empty command is a problem. The added names can lead
    anywhere, so a sandbox is required.
    """
    if not facts.sandboxed:
        return FileArguments(problem="it is given files that are not known before it runs")
    program = command[0] if command else "nothing"
    if program not in program_forms.HARMLESS_INNER_PROGRAMS:
        return FileArguments(problem=f"{program} may do more than read")
    return files_of(SimpleCommand(tuple(ShellWord(word) for word in command)), facts)


def _files_of_date(words: Sequence[str], _facts: Facts) -> FileArguments:
    """Return no files, or a problem if `date` could set the clock."""
    options = parse_options(words, form(program_forms.DATE_OPTIONS))
    operands = [words[index] for index in options.operand_indexes]
    is_format = len(operands) == 1 and operands[0].startswith("+")
    if operands and not is_format and not options.problem:
        return FileArguments(problem="date could set the clock")
    return _files_of_options("date", options, names_files=False)


def _files_of_git(words: Sequence[str], facts: Facts) -> FileArguments:
    """Return the files of a git command that only reads, with the directory of `-C`."""
    if not facts.sandboxed:
        return FileArguments(
            problem="git may run programs that the repository's settings name"
        )
    has_directory = words[:1] == ["-C"]
    directory_words = 2 if has_directory else 0  # `-C` and its value
    first_argument, options = parse_git(["git", *words[directory_words:]])
    if options.problem:
        return FileArguments(problem=f"git {options.problem} may do more than read")
    # The operands are counted from the first argument of the subcommand, without `-C`.
    first_index = directory_words + first_argument
    indexes = [first_index + index for index in options.operand_indexes]
    if not has_directory:
        return FileArguments(indexes)
    command = ["git", *words]
    operands = [command[index] for index in indexes]
    if any(word.startswith("/") or ".." in word.split("/") for word in operands):
        return FileArguments(problem="git -C may read another directory")
    return FileArguments([2, *indexes])


def _files_of_test(words: Sequence[str], _facts: Facts) -> FileArguments:
    """Return the files of `test`, or a problem if it may evaluate an argument."""
    files = files_of_test(words)
    if files is None:
        return FileArguments(problem="test may evaluate its arguments")
    return FileArguments([index for index, w in enumerate(words, 1) if w in files])


def _files_of_bracket(words: Sequence[str], facts: Facts) -> FileArguments:
    if words[-1:] != ["]"]:
        return _unknown("[")
    return _files_of_test(words[:-1], facts)


def _files_of_printf(words: Sequence[str], _facts: Facts) -> FileArguments:
    """Return no files, or a problem if `printf` may set a variable."""
    if words[:1] == ["--"]:
        arguments = words[1:]
    elif words and words[0].startswith("-"):
        return _unknown("printf")
    else:
        arguments = words
    if not arguments:
        return _unknown("printf")
    text_format = arguments[0]
    if UNKNOWN_GAP in text_format or _COUNTING_FORMAT.search(text_format):
        return FileArguments(problem="printf may set a variable")
    return FileArguments()


def _files_of_command(words: Sequence[str], _facts: Facts) -> FileArguments:
    if len(words) > 1 and words[0] in ("-v", "-V"):
        return FileArguments()
    return _unknown("command")


def _files_of_package_manager(
    name: str, forms: Mapping[str, str], words: Sequence[str], facts: Facts
) -> FileArguments:
    """Return the files of a pip or npm command that lists installed packages.

    Any other command is a problem. Without a sandbox every command is a problem, because the
    project's settings decide what these programs do.
    """
    if not words or words[0] not in forms:
        return FileArguments(
            problem=f"{' '.join((name, *words[:1]))} may do more than read"
        )
    if not facts.sandboxed:
        return FileArguments(problem=f"{name} may do what the project's settings say")
    return _files_of_options(
        name, parse_options(words[1:], form(forms[words[0]])), names_files=False
    )


def _files_of_ps(words: Sequence[str], facts: Facts) -> FileArguments:
    """Return no files, or a problem if no sandbox hides how other programs were started."""
    if not facts.sandboxed:
        return FileArguments(problem="ps shows how other programs were started")
    return _files_of_options(
        "ps", parse_options(words, form(program_forms.PS_OPTIONS)), names_files=False
    )


def _files_of_tar(words: Sequence[str], facts: Facts) -> FileArguments:
    """Return the archive whose content `tar` lists. Any other use is a problem.

    tar can run decompressors, and a colon in a name means a remote machine. A sandbox is
    required.
    """
    problem = FileArguments(problem="tar is not known to only list what is in an archive")
    if not facts.sandboxed or len(words) < 2:
        return problem
    option_letters, archive, *members = words
    if not program_forms.TAR_LISTS.fullmatch(option_letters):
        return problem
    if ":" in archive or any(word.startswith("-") for word in (archive, *members)):
        return problem
    return FileArguments([2])


def _files_of_tee(words: Sequence[str], _facts: Facts) -> FileArguments:
    """Return no files if `tee` writes only to /dev/null, otherwise a problem."""
    files = {word for word in words if word not in ("-a", "-i", "-ai")}
    return FileArguments() if files <= {"/dev/null"} else _unknown("tee")


def _files_of_env(words: Sequence[str], _facts: Facts) -> FileArguments:
    """Return no files for `env` without arguments, which only prints; else a problem."""
    return _unknown("env") if words else FileArguments()


def _files_of_printenv(words: Sequence[str], _facts: Facts) -> FileArguments:
    """Return no files if all words are names of variables; else a problem."""
    are_names = all(re.fullmatch(r"\w+", word, re.ASCII) for word in words)
    return FileArguments() if are_names else _unknown("printenv")


def _files_of_python(words: Sequence[str], facts: Facts) -> FileArguments:
    """Return the file that `python -m json.tool` reads and prints. Any other use is a problem.

    A sandbox is required, because the workspace could have a module of that name.
    """
    if list(words[:2]) != ["-m", "json.tool"] or not facts.sandboxed:
        return _unknown("python")
    options = parse_options(words[2:], form(program_forms.JSON_TOOL))
    if options.problem or len(options.operand_indexes) > 1:
        return FileArguments(problem="python -m json.tool may write to a file")
    # `python`, `-m` and `json.tool` come before the parsed words.
    return FileArguments([index + 3 for index in options.operand_indexes])


def _files_of_unzip(words: Sequence[str], _facts: Facts) -> FileArguments:
    """Return the archive if `unzip` only lists its content; otherwise a problem."""
    match words:
        case ["-l" | "-v" | "-Z" | "-Z1" | "-lv", file] if not file.startswith("-"):
            return FileArguments([2])
        case _:
            return FileArguments(
                problem="unzip is not known to only list what is in an archive"
            )


_FINDERS_BY_PROGRAM: dict[str, Callable[[Sequence[str], Facts], FileArguments]] = {
    "sed": _files_of_sed,
    **dict.fromkeys(("awk", "gawk", "mawk"), _files_of_awk),
    "find": _files_of_find,
    "date": _files_of_date,
    "git": _files_of_git,
    "test": _files_of_test,
    "[": _files_of_bracket,
    "echo": lambda _words, _facts: FileArguments(),
    "printf": _files_of_printf,
    "command": _files_of_command,
    "xargs": _files_of_xargs,
    "tee": _files_of_tee,
    "env": _files_of_env,
    "printenv": _files_of_printenv,
    **dict.fromkeys(("python", "python3"), _files_of_python),
    "npm": lambda words, facts: _files_of_package_manager(
        "npm", program_forms.NPM_COMMANDS, words, facts
    ),
    **dict.fromkeys(
        ("pip", "pip3"),
        lambda words, facts: _files_of_package_manager(
            "pip", program_forms.PIP_COMMANDS, words, facts
        ),
    ),
    "ps": _files_of_ps,
    "tar": _files_of_tar,
    "unzip": _files_of_unzip,
}
