"""Does a command only look, and at which files?

A command looks if every simple command in it is a program of the table in a form that
the table knows, and every file it names lies where reading is free. What is not certain
is not looking; it may still be fine, and then somebody says so.
"""

import posixpath
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from refold.permissions.facts import Facts
from refold.permissions.shell import programs
from refold.permissions.shell.git import sort_out_git
from refold.permissions.shell.options import Given, form, sort_out
from refold.permissions.shell.plain import Part, Word, plain
from refold.permissions.shell.scripts import only_computes, only_prints, tested

_MOST_PLACES = 16
_ANYWHERE = ("/dev/null", "-")
_HIDDEN_GLOB = re.compile(r"(?:^|/)\.[^/]*[*?\[]")
_GLOB = re.compile(r"[*?\[]")
# Here words after `--` are no operands, or a glob could make them something else.
_STRICT_ABOUT_GLOBS = frozenset(
    ("sed", "awk", "gawk", "mawk", "jq", "find", "date", "test", "[", "printf", "type")
)


class Looked(Struct, frozen=True):
    """A simple command. `problem` says why it is not known to look only, or is ""."""

    part: Part
    problem: str = ""
    goes: bool = False  # it only goes to another directory
    at_home: bool = True  # no `cd` came before


class Files(Struct, frozen=True):
    """The places in a command where its words are files, or why it does not only look."""

    at: Sequence[int] = ()
    problem: str = ""


def survey(
    text: str, cwd: str, facts: Facts, free: Callable[[str], bool]
) -> tuple[Looked, ...]:
    """Each simple command of `text`; none at all where it is not plain.

    `free` says whether a file, links followed, may be read unasked.
    """
    parts = plain(text)
    found: list[Looked] = []
    # Where a command may run: `sure` if all joined to it by `&&` went well.
    every: tuple[str, ...] = (posixpath.normpath(cwd),)
    sure = every
    for at, part in enumerate(parts):
        here = sure if part.after == "&&" else every
        piped = part.after == "|" or (at + 1 < len(parts) and parts[at + 1].after == "|")
        home = len(every) == 1
        if part.values[0] == "cd" and not piped:
            there = _gone(part, here, facts)
            problem = "" if there else "it goes to a directory outside the workspace"
            found.append(Looked(part, problem, goes=bool(there), at_home=home))
            every = tuple(dict.fromkeys((*every, *there)))[:_MOST_PLACES]
            sure = there if part.after != "||" else every
        else:
            found.append(Looked(part, _problem(part, here, facts, free), at_home=home))
            sure = here
    return tuple(found)


def _gone(part: Part, here: Sequence[str], facts: Facts) -> tuple[str, ...]:
    """Where `cd` may lead: bash goes by names, the system by links. () if outside."""
    match part.words:
        case (_, Word(value=name, glob=False)) if name and not name.startswith("-"):
            ways = [posixpath.normpath(posixpath.join(place, name)) for place in here]
            ways += [facts.follow(posixpath.join(place, name)) for place in here]
            inside = not any(
                facts.outside(posixpath.normpath(facts.follow(w))) for w in ways
            )
            return tuple(dict.fromkeys(ways))[:_MOST_PLACES] if inside else ()
        case _:
            return ()


def _problem(
    part: Part, here: Sequence[str], facts: Facts, free: Callable[[str], bool]
) -> str:
    name = part.values[0]
    files = files_of(part, facts)
    if files.problem:
        return files.problem
    if any(word.glob for word in part.words) and not facts.sandboxed:
        return "its words stand for files that are not known before it runs"
    if any(word.glob and _HIDDEN_GLOB.search(word.value) for word in part.words):
        return "its words may stand for hidden files"
    if any(w.loose for w in part.words) and not (
        name in programs.MEEK or _after_dashes(part)
    ):
        return "a file's name could be taken for an option"
    named = [part.words[at] for at in files.at] or [Word(".")]
    for word in named:
        for place in here:
            real = where(word, place, facts)
            if not real or not free(real):
                return f"{name} looks at {real or word.value}, outside the workspace"
    return ""


def where(word: Word, place: str, facts: Facts) -> str:
    """Where a file that a word names really is, up to a glob. "" if that is uncertain."""
    value = word.value
    if value in _ANYWHERE:
        return place
    if word.glob:
        start = _GLOB.split(value)[0]
        if ".." in value[len(start) :].split("/"):
            return ""
        value = start.rpartition("/")[0] or ("/" if value.startswith("/") else ".")
    return posixpath.normpath(facts.follow(posixpath.join(place, value)))


def _after_dashes(part: Part) -> bool:
    values = part.values
    dashes = values.index("--") if "--" in values else len(values)
    return not any(w.loose for w in part.words[:dashes]) and (
        values[0] not in _STRICT_ABOUT_GLOBS and values[0] not in ("echo", "type", "which")
    )


def files_of(part: Part, facts: Facts) -> Files:
    """Its words that are files, if it is a command of the table in a known form."""
    name, words = part.values[0], part.values[1:]
    if len(words) == 1 and _tells(name, words[0], facts):
        return Files()
    if name == "strings" and any(word.startswith("@") for word in words):
        return Files(problem="strings may be told by a file what to read")
    if name in programs.LOOKING:
        takes = form(programs.LOOKING[name])
        if takes.at_most is not None and any(w.glob for w in part.words):
            return Files(problem=f"{name} may be given more files than it reads")
        given = sort_out(words, takes)
        too_many = takes.at_most is not None and len(given.others) > takes.at_most
        if too_many:
            return Files(problem=f"{name} could write to {words[given.others[-1]]}")
        return _found(name, given, names_files=takes.names_files)
    if (
        name in _STRICT_ABOUT_GLOBS
        and name != "find"
        and any(w.glob for w in part.words[:3])
    ):
        return Files(problem=f"the words of {name} are not known before it runs")
    if name in programs.SEARCHING:
        return _searching(name, words)
    return _OWN_WAY[name](words, facts) if name in _OWN_WAY else _unknown(name)


def _tells(name: str, word: str, facts: Facts) -> bool:
    """Does it only say what it is?"""
    if word in programs.TELLING.get(name, ()):
        return facts.sandboxed
    known = (
        name in programs.LOOKING or name in programs.SEARCHING or name in ("sed", "find")
    )
    return known and word in ("--version", "--help")


def _found(name: str, given: Given, *, names_files: bool = True, skip: int = 0) -> Files:
    if given.problem:
        return Files(problem=f"{name} {given.problem} is not known to look only")
    return Files([at + 1 for at in given.others[skip:]] if names_files else ())


def _unknown(name: str) -> Files:
    return Files(problem=f"{name} is not known to look only")


def _searching(name: str, words: Sequence[str]) -> Files:
    given = sort_out(words, form(programs.SEARCHING[name]))
    told = given.options & {"-e", "--regexp", "--files", "--type-list"}
    told = told - {"-e"} if name == "jq" else told
    if name == "jq" and any("import" in w or "include" in w for w in words):
        return Files(problem="jq may be told to read other files")
    return _found(name, given, skip=0 if told else 1)


def _sed(words: Sequence[str], _facts: Facts) -> Files:
    given = sort_out(words, form(programs.SED))
    scripts = given.values or tuple(words[at] for at in given.others[:1])
    if not given.problem and not (scripts and all(map(only_prints, scripts))):
        return Files(problem="this script of sed is not known to print only")
    return _found("sed", given, skip=0 if given.values else 1)


def _awk(words: Sequence[str], _facts: Facts) -> Files:
    given = sort_out(words, form(programs.AWK))
    scripts = [words[at] for at in given.others[:1]]
    if not given.problem and not (scripts and only_computes(scripts[0])):
        return Files(problem="this program of awk is not known to print only")
    return _found("awk", given, skip=1)


def _find(words: Sequence[str], _facts: Facts) -> Files:
    files, at = list[int](), 1 if words[:1] == ["-P"] else 0
    while at < len(words) and words[at][:1] not in ("-", "(", "!", ","):
        files.append(at + 1)
        at += 1
    while at < len(words):
        word = words[at]
        if word in programs.FIND_ALONE:
            at += 1
            continue
        if word not in programs.FIND_WITH | programs.FIND_WITH_FILE or at + 1 >= len(words):
            return Files(problem=f"find {word} is not known to look only")
        if word in programs.FIND_WITH_FILE:
            files.append(at + 2)
        at += 2
    return Files(files)


def _date(words: Sequence[str], _facts: Facts) -> Files:
    given = sort_out(words, form(programs.DATE))
    formats = [words[at] for at in given.others]
    if not given.problem and formats and not (len(formats) == 1 and formats[0][0:1] == "+"):
        return Files(problem="date could set the clock")
    return _found("date", given, names_files=False)


def _git(words: Sequence[str], facts: Facts) -> Files:
    if not facts.sandboxed:
        return Files(problem="git may run what the repository's settings name")
    elsewhere = 2 if words[:1] == ["-C"] else 0
    skipped, given = sort_out_git(["git", *words[elsewhere:]])
    if given.problem:
        return Files(problem=f"git {given.problem} is not known to look only")
    at = [other + skipped + elsewhere for other in given.others]
    if not elsewhere:
        return Files(at)
    if any(words[i - 1].startswith("/") or ".." in words[i - 1].split("/") for i in at):
        return Files(problem="git -C may look somewhere else")
    return Files([2, *at])


def _test(words: Sequence[str], _facts: Facts) -> Files:
    files = tested(words)
    if files is None:
        return Files(problem="test may evaluate its words")
    return Files([at for at, w in enumerate(words, 1) if w in files])


def _bracket(words: Sequence[str], facts: Facts) -> Files:
    if words[-1:] != ["]"]:
        return _unknown("[")
    return _test(words[:-1], facts)


def _echo(_words: Sequence[str], _facts: Facts) -> Files:
    return Files()


def _printf(words: Sequence[str], _facts: Facts) -> Files:
    if not words or (words[0].startswith("-") and words[0] != "--"):
        return _unknown("printf")
    return Files()


def _command(words: Sequence[str], _facts: Facts) -> Files:
    if len(words) > 1 and words[0] in ("-v", "-V"):
        return Files()
    return _unknown("command")


_OWN_WAY: dict[str, Callable[[Sequence[str], Facts], Files]] = {
    "sed": _sed,
    **dict.fromkeys(("awk", "gawk", "mawk"), _awk),
    "find": _find,
    "date": _date,
    "git": _git,
    "test": _test,
    "[": _bracket,
    "echo": _echo,
    "printf": _printf,
    "command": _command,
}
