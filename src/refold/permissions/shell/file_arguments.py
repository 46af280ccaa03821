"""Which words of a command are files, for allow rules: its program and form must be known.

Any other form is reported as a problem. `read_only` asks whether the files may be read;
`program_forms` has the programs and their options.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from refold.permissions.facts import Facts
from refold.permissions.shell import program_forms
from refold.permissions.shell.git_read_only import parse_git
from refold.permissions.shell.plain_script import SimpleCommand
from refold.permissions.shell.program_forms import ParsedOptions, form, parse_options
from refold.permissions.shell.quoting import ShellWord
from refold.permissions.shell.sed_and_awk import only_computes, only_prints, tested
from refold.permissions.shell.words import GAP

_SETS = re.compile(r"%[^A-Za-z%]*n")  # as a format of printf
# Here words after `--` are no operands, or a glob could make them something else.
STRICT_ABOUT_GLOBS = frozenset(
    ("sed", "awk", "gawk", "mawk", "jq", "find", "date", "test", "[", "printf", "type")
)


class FileArguments(Struct, frozen=True):
    """The places in a command where its words are files, or why it is not read-only."""

    at: Sequence[int] = ()
    problem: str = ""


def files_of(part: SimpleCommand, facts: Facts) -> FileArguments:
    """Its words that are files, if it is a command of the table in a known form."""
    name, words = part.values[0], part.values[1:]
    if len(words) == 1 and _tells(name, words[0], facts):
        return FileArguments()
    if name == "strings" and any(word.startswith("@") for word in words):
        return FileArguments(problem="strings may take options from a file")
    if name in program_forms.LOOKING:
        return _listed(part, facts)
    if (
        name in STRICT_ABOUT_GLOBS
        and name != "find"
        and any(w.glob for w in part.words[:3])
    ):
        return FileArguments(
            problem=f"the arguments of {name} are not known before it runs"
        )
    if name in program_forms.SEARCHING:
        return _searching(name, words, facts)
    return _OWN_WAY[name](words, facts) if name in _OWN_WAY else _unknown(name)


def _listed(part: SimpleCommand, facts: Facts) -> FileArguments:
    name, words = part.values[0], part.values[1:]
    takes = form(program_forms.LOOKING[name])
    if takes.at_most is not None and any(w.glob for w in part.words):
        return FileArguments(problem=f"{name} may be given more files than it reads")
    given = parse_options(words, takes)
    if takes.at_most is not None and len(given.others) > takes.at_most:
        return FileArguments(problem=f"{name} could write to {words[given.others[-1]]}")
    if _follows(name, given, facts):
        return FileArguments(problem=f"{name} may follow links out of the workspace")
    return _found(name, given, names_files=takes.names_files)


def _follows(name: str, given: ParsedOptions, facts: Facts) -> bool:
    """In a sandbox, links lead to nothing that is not visible anyway."""
    follows = program_forms.FOLLOWING.get(name, frozenset[str]())
    return not facts.sandboxed and bool(given.options & follows)


def _tells(name: str, word: str, facts: Facts) -> bool:
    """Does it only say what it is?"""
    if word in program_forms.TELLING.get(name, ()):
        return facts.sandboxed
    known = (
        name in program_forms.LOOKING
        or name in program_forms.SEARCHING
        or name in ("sed", "find")
    )
    return known and word in ("--version", "--help")


def _found(
    name: str, given: ParsedOptions, *, names_files: bool = True, skip: int = 0
) -> FileArguments:
    if given.problem:
        return FileArguments(problem=f"{name} {given.problem} may do more than read")
    return FileArguments([at + 1 for at in given.others[skip:]] if names_files else ())


def _unknown(name: str) -> FileArguments:
    return FileArguments(problem=f"{name} may do more than read")


def _searching(name: str, words: Sequence[str], facts: Facts) -> FileArguments:
    given = parse_options(words, form(program_forms.SEARCHING[name]))
    if _follows(name, given, facts):
        return FileArguments(problem=f"{name} may follow links out of the workspace")
    told = given.options & {"-e", "--regexp", "--files", "--type-list"}
    told = told - {"-e"} if name == "jq" else told
    if name == "jq" and any("import" in w or "include" in w for w in words):
        return FileArguments(problem="jq may read other files")
    return _found(name, given, skip=0 if told else 1)


def _sed(words: Sequence[str], _facts: Facts) -> FileArguments:
    given = parse_options(words, form(program_forms.SED))
    scripts = given.values or tuple(words[at] for at in given.others[:1])
    if not given.problem and not (scripts and all(map(only_prints, scripts))):
        return FileArguments(problem="this script of sed is not known to print only")
    return _found("sed", given, skip=0 if given.values else 1)


def _awk(words: Sequence[str], _facts: Facts) -> FileArguments:
    given = parse_options(words, form(program_forms.AWK))
    scripts = [words[at] for at in given.others[:1]]
    if not given.problem and not (scripts and only_computes(scripts[0])):
        return FileArguments(problem="this program of awk is not known to print only")
    return _found("awk", given, skip=1)


def _find(words: Sequence[str], facts: Facts) -> FileArguments:
    files, at = list[int](), 1 if words[:1] == ["-P"] else 0
    while at < len(words) and words[at][:1] not in ("-", "(", "!", ","):
        files.append(at + 1)
        at += 1
    while at < len(words):
        word = words[at]
        if word in program_forms.FIND_ALONE:
            at += 1
            continue
        if word == "-exec":
            end = next((i for i in range(at, len(words)) if words[i] in (";", "+")), 0)
            told = _handed(words, at + 1, end, facts)
            if not end or told.problem:
                return FileArguments(problem=told.problem or "find -exec has no end")
            files += told.at
            at = end + 1
            continue
        if (
            word not in program_forms.FIND_WITH | program_forms.FIND_WITH_FILE
            or at + 1 >= len(words)
        ):
            return FileArguments(problem=f"find {word} may do more than read")
        if word in program_forms.FIND_WITH_FILE:
            files.append(at + 2)
        at += 2
    return FileArguments(files)


def _xargs(words: Sequence[str], facts: Facts) -> FileArguments:
    takes, at = form(program_forms.XARGS), 0
    while at < len(words) and (
        words[at].startswith("-") or parse_options(words[:at], takes).problem
    ):
        at += 1
    given = parse_options(words[:at], takes)
    if given.problem or given.others or words[:at][-1:] == ["--"]:
        return FileArguments(problem=f"xargs {given.problem or '--'} may do more than read")
    if at == len(words):
        return FileArguments()
    if any(value in words[at] for value in given.values):
        return FileArguments(problem="xargs may change which program it runs")
    return _handed(words, at, len(words), facts)


def _handed(words: Sequence[str], start: int, end: int, facts: Facts) -> FileArguments:
    """A command whose arguments come from its input. Its program must be harmless then.

    The names can lead anywhere: that it can be kept to the workspace is what counts.
    """
    if not facts.sandboxed:
        return FileArguments(problem="it is given files that are not known before it runs")
    given = words[start:end]
    if not given or given[0] not in program_forms.MEEK:
        return FileArguments(
            problem=f"{given[0] if given else 'nothing'} may do more than read"
        )
    found = files_of(SimpleCommand(tuple(ShellWord(word) for word in given)), facts)
    return FileArguments([start + 1 + at for at in found.at], found.problem)


def _date(words: Sequence[str], _facts: Facts) -> FileArguments:
    given = parse_options(words, form(program_forms.DATE))
    formats = [words[at] for at in given.others]
    if not given.problem and formats and not (len(formats) == 1 and formats[0][0:1] == "+"):
        return FileArguments(problem="date could set the clock")
    return _found("date", given, names_files=False)


def _git(words: Sequence[str], facts: Facts) -> FileArguments:
    if not facts.sandboxed:
        return FileArguments(
            problem="git may run programs that the repository's settings name"
        )
    elsewhere = 2 if words[:1] == ["-C"] else 0
    skipped, given = parse_git(["git", *words[elsewhere:]])
    if given.problem:
        return FileArguments(problem=f"git {given.problem} may do more than read")
    at = [other + skipped + elsewhere for other in given.others]
    if not elsewhere:
        return FileArguments(at)
    if any(words[i - 1].startswith("/") or ".." in words[i - 1].split("/") for i in at):
        return FileArguments(problem="git -C may read another directory")
    return FileArguments([2, *at])


def _test(words: Sequence[str], _facts: Facts) -> FileArguments:
    files = tested(words)
    if files is None:
        return FileArguments(problem="test may evaluate its arguments")
    return FileArguments([at for at, w in enumerate(words, 1) if w in files])


def _bracket(words: Sequence[str], facts: Facts) -> FileArguments:
    if words[-1:] != ["]"]:
        return _unknown("[")
    return _test(words[:-1], facts)


def _printf(words: Sequence[str], _facts: Facts) -> FileArguments:
    told = words[1:2] if words[:1] == ["--"] else words[:1]
    if not told or (words[0].startswith("-") and words[0] != "--"):
        return _unknown("printf")
    if GAP in told[0] or _SETS.search(told[0]):
        return FileArguments(problem="printf may set a variable")
    return FileArguments()


def _command(words: Sequence[str], _facts: Facts) -> FileArguments:
    if len(words) > 1 and words[0] in ("-v", "-V"):
        return FileArguments()
    return _unknown("command")


def _installed(
    name: str, forms: Mapping[str, str], words: Sequence[str], facts: Facts
) -> FileArguments:
    """What is installed, said by a program that reads settings of the project."""
    if not words or words[0] not in forms:
        return FileArguments(
            problem=f"{' '.join((name, *words[:1]))} may do more than read"
        )
    if not facts.sandboxed:
        return FileArguments(problem=f"{name} may do what the project's settings say")
    return _found(name, parse_options(words[1:], form(forms[words[0]])), names_files=False)


def _ps(words: Sequence[str], facts: Facts) -> FileArguments:
    if not facts.sandboxed:
        return FileArguments(problem="ps shows how other programs were started")
    return _found("ps", parse_options(words, form(program_forms.PS)), names_files=False)


def _archive(words: Sequence[str], facts: Facts) -> FileArguments:
    """tar with the option to list. It runs decompressors, and a colon names a remote machine."""
    match words:
        case [told, file, *members] if program_forms.TAR_LISTS.fullmatch(told):
            plain_file = ":" not in file and not file.startswith("-")
            if facts.sandboxed and plain_file and not any(m[:1] == "-" for m in members):
                return FileArguments([2])
        case _:
            pass
    return FileArguments(problem="tar is not known to only list what is in an archive")


def _tee(words: Sequence[str], _facts: Facts) -> FileArguments:
    """Without files, it passes its input on."""
    files = [word for word in words if word not in ("-a", "-i", "-ai")]
    return FileArguments() if set(files) <= {"/dev/null"} else _unknown("tee")


def _env(words: Sequence[str], _facts: Facts) -> FileArguments:
    """Without arguments, it prints what commands are given anyway."""
    return _unknown("env") if words else FileArguments()


def _printenv(words: Sequence[str], _facts: Facts) -> FileArguments:
    names = all(re.fullmatch(r"\w+", word, re.ASCII) for word in words)
    return FileArguments() if names else _unknown("printenv")


def _python(words: Sequence[str], facts: Facts) -> FileArguments:
    """`-m json.tool`, which reads one file and prints it; the workspace could have a module of
    that name, so only where the sandbox keeps it to reading.
    """
    if list(words[:2]) != ["-m", "json.tool"] or not facts.sandboxed:
        return _unknown("python")
    given = parse_options(words[2:], form(program_forms.JSON_TOOL))
    if given.problem or len(given.others) > 1:
        return FileArguments(problem="python -m json.tool may write to a file")
    return FileArguments([at + 3 for at in given.others])


def _unzip(words: Sequence[str], _facts: Facts) -> FileArguments:
    match words:
        case ["-l" | "-v" | "-Z" | "-Z1" | "-lv", file] if not file.startswith("-"):
            return FileArguments([2])
        case _:
            return FileArguments(
                problem="unzip is not known to only list what is in an archive"
            )


_OWN_WAY: dict[str, Callable[[Sequence[str], Facts], FileArguments]] = {
    "sed": _sed,
    **dict.fromkeys(("awk", "gawk", "mawk"), _awk),
    "find": _find,
    "date": _date,
    "git": _git,
    "test": _test,
    "[": _bracket,
    "echo": lambda _words, _facts: FileArguments(),
    "printf": _printf,
    "command": _command,
    "xargs": _xargs,
    "tee": _tee,
    "env": _env,
    "printenv": _printenv,
    **dict.fromkeys(("python", "python3"), _python),
    "npm": lambda words, facts: _installed("npm", program_forms.NPM, words, facts),
    **dict.fromkeys(
        ("pip", "pip3"),
        lambda words, facts: _installed("pip", program_forms.PIP, words, facts),
    ),
    "ps": _ps,
    "tar": _archive,
    "unzip": _unzip,
}
