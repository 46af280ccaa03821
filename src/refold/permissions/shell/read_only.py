"""Decides whether a command is read-only, and which files it reads.

It is if every simple command in it is a program of the table in a known form, and every
file that it names may be read freely. First the home, the directory and the words of loops
are substituted for variables. A command that is not known to be read-only may still be
harmless; then the user is asked.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from msgspec import Struct, structs

from refold.permissions.facts import Facts
from refold.permissions.shell import program_forms
from refold.permissions.shell.file_arguments import STRICT_ABOUT_GLOBS, files_of
from refold.permissions.shell.plain_script import SimpleCommand, parse_plain
from refold.permissions.shell.quoting import ShellWord, short_text
from refold.permissions.shell.words import DIRECTORY_MARK, HOME_MARK
from refold.values.path_names import is_steering

_MOST_PLACES = 16
_HARMLESS_FILES = ("/dev/null", "-")
_HIDDEN_GLOB = re.compile(r"(?:^|/)\.[^/]*[*?\[]")
_GLOB_PATTERN = re.compile(r"[*?\[]")
_MAX_COMMANDS = 200  # that loops may make of one command
# One word even when a shell parses it again, and not a glob.
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:,@%+^-]+")


class SurveyedCommand(Struct, frozen=True):
    """A simple command. `problem` says why it may do more than read, or is ""."""

    part: SimpleCommand
    problem: str = ""
    goes: bool = False  # it only changes the directory
    at_home: bool = True  # no `cd` came before
    strays: bool = False  # its output may go to a file that command rules do not cover


def survey(
    text: str, cwd: str, facts: Facts, free: Callable[[str], bool]
) -> tuple[SurveyedCommand, ...]:
    """Each simple command of `text`; none at all if it is not plain.

    `free` says whether a file, links resolved, may be read without asking.
    """
    parts = parse_plain(text)
    surveyed: list[SurveyedCommand] = []
    # Where a command may run; `sure` if all before it in the `&&` list succeeded.
    every: tuple[str, ...] = (posixpath.normpath(cwd),)
    sure = every
    lost = False  # the directory may be unknown
    for index, part in enumerate(parts):
        directories = sure if part.after == "&&" and not part.apart else every
        piped = part.after == "|" or (
            index + 1 < len(parts) and parts[index + 1].after == "|"
        )
        home = len(every) == 1
        if part.values[0] == "cd" and not piped:
            next_directories = _directories_after(part, directories, facts)
            problem = "" if next_directories else "cd may leave the workspace"
            surveyed.append(
                SurveyedCommand(part, problem, goes=bool(next_directories), at_home=home)
            )
            every = tuple(dict.fromkeys((*every, *next_directories)))[:_MOST_PLACES]
            sure = next_directories if part.after != "||" else every
            lost = lost or not next_directories
        else:
            problem = _problem(part, directories, facts, free, piped=part.after == "|")
            problem = problem or ("it may run outside the workspace" if lost else "")
            strays = _may_write_elsewhere(part, directories, facts)
            surveyed.append(SurveyedCommand(part, problem, at_home=home, strays=strays))
            sure = directories
    return tuple(surveyed)


def _may_write_elsewhere(
    part: SimpleCommand, directories: Sequence[str], facts: Facts
) -> bool:
    """Whether output may go outside the workspace, or to a file that instructs agents."""
    reals = [
        real_path_of(output.file, place, facts)
        for output in part.outputs
        for place in directories
    ]
    return any(facts.outside(real) or bool(is_steering(real.split("/"))) for real in reals)


def _directories_after(
    part: SimpleCommand, directories: Sequence[str], facts: Facts
) -> tuple[str, ...]:
    """Where `cd` may lead: bash resolves `..` by name, the system by links. () if outside."""
    if part.loops or part.settings or part.outputs:
        return ()
    try:
        words = next(run_in_directories(part, directories, facts)).words
    except NotKnown:
        return ()
    match words:
        case (_, ShellWord(value=name, glob=False)) if name and not name.startswith("-"):
            ways = [
                posixpath.normpath(posixpath.join(place, name)) for place in directories
            ]
            ways += [facts.follow(posixpath.join(place, name)) for place in directories]
            inside = not any(
                facts.outside(posixpath.normpath(facts.follow(w))) for w in ways
            )
            return tuple(dict.fromkeys(ways))[:_MOST_PLACES] if inside else ()
        case _:
            return ()


def _problem(
    part: SimpleCommand,
    directories: Sequence[str],
    facts: Facts,
    free: Callable[[str], bool],
    *,
    piped: bool,
) -> str:
    """Why the command may do more than read, wherever and however often it runs, or ""."""
    if part.values[0] == "xargs" and not (piped or part.reads or part.fed):
        return "xargs is given nothing to read"
    try:
        every = list(run_in_directories(part, directories, facts))
    except NotKnown as error:
        return str(error)
    problems = (_problem_of_form(command, directories, facts, free) for command in every)
    return next((problem for problem in problems if problem), "")


def _problem_of_form(
    part: SimpleCommand,
    directories: Sequence[str],
    facts: Facts,
    free: Callable[[str], bool],
) -> str:
    name = part.values[0]
    files = files_of(part, facts)
    if files.problem:
        return files.problem
    if part.outputs:
        return f"{_output_to_show(part)} writes to a file"
    if part.spelt:
        return (
            f"{short_text(part.spelt[0])} sets a variable that may change what programs do"
        )
    if any(word.glob for word in part.words) and not facts.sandboxed:
        return "its wildcards match files that are not known before it runs"
    if any(word.glob and _HIDDEN_GLOB.search(word.value) for word in part.words):
        return "its wildcards may match hidden files"
    if any(w.loose for w in part.words) and not (
        name in program_forms.HARMLESS_INNER_PROGRAMS or _after_dashes(part)
    ):
        return "a file's name could be read as an option"
    named = [part.words[index] for index in files.at] or [ShellWord(".")]
    for word in (*named, *part.reads):
        for place in directories:
            real = real_path_of(word, place, facts)
            if not real or not free(real):
                why = (
                    "outside the workspace" if facts.outside(real) else "which is protected"
                )
                return f"{name} reads {real or word.value}, {why}"
    return ""


def _output_to_show(part: SimpleCommand) -> str:
    return short_text(f"{part.outputs[0].operator} {part.outputs[0].file.value}")


def real_path_of(word: ShellWord, place: str, facts: Facts) -> str:
    """The real path of a file that a word names, up to a glob; "" if uncertain."""
    value = word.value
    if value in _HARMLESS_FILES:
        return place
    if word.glob:
        start = _GLOB_PATTERN.split(value)[0]
        if ".." in value[len(start) :].split("/"):
            return ""
        value = start.rpartition("/")[0] or ("/" if value.startswith("/") else ".")
    return posixpath.normpath(facts.follow(posixpath.join(place, value)))


def _after_dashes(part: SimpleCommand) -> bool:
    values = part.values
    dashes = values.index("--") if "--" in values else len(values)
    return not any(w.loose for w in part.words[:dashes]) and (
        values[0] not in STRICT_ABOUT_GLOBS and values[0] not in ("echo", "type", "which")
    )


class NotKnown(Exception):
    """A command is not known before it runs, with the reason."""


def run_in_directories(
    part: SimpleCommand, directories: Sequence[str], facts: Facts
) -> Iterator[SimpleCommand]:
    """Forms that `part` may have when it runs in one of `directories`. Raises `NotKnown`."""
    marked = "".join(word.value for word in (*part.words, *part.reads))
    known = (
        [(HOME_MARK, _known_directory(facts.home, "HOME"))] if HOME_MARK in marked else []
    )
    if DIRECTORY_MARK in marked:
        if len(directories) > 1:
            raise NotKnown("it is not known what $PWD is after cd")
        known.append((DIRECTORY_MARK, _known_directory(directories[0], "PWD")))
    loops = [loop for loop in part.loops if loop.mark in marked]
    count = 1
    for loop in loops:
        count *= len(loop.words)
    if count > _MAX_COMMANDS:
        raise NotKnown(f"its loops run more than {_MAX_COMMANDS} times")
    if not loops and not known:
        yield part
        return
    for values in product(*(loop.words for loop in loops)):
        replacements = [*known, *zip((loop.mark for loop in loops), values, strict=True)]
        yield structs.replace(
            part,
            words=tuple(_substitute(word, replacements) for word in part.words),
            reads=tuple(_substitute(word, replacements) for word in part.reads),
        )


def _known_directory(path: str, name: str) -> ShellWord:
    if not path.startswith("/"):
        raise NotKnown(f"the value of ${name} is not known")
    return ShellWord(path)


def _substitute(
    word: ShellWord, replacements: Sequence[tuple[str, ShellWord]]
) -> ShellWord:
    value, glob, loose = word.value, word.glob, word.loose
    for mark, replacement in replacements:
        if mark not in word.value:
            continue
        splits_again = mark in word.split
        if replacement.glob:
            if word.value != mark:
                raise NotKnown("a file's name becomes a part of another word")
            # Outside of quotes a name with a blank becomes two words.
            glob, loose = True, replacement.loose or splits_again
        elif splits_again and not _PLAIN_WORD.fullmatch(replacement.value):
            raise NotKnown("a word without quotes may become several")
        value = value.replace(mark, replacement.value)
    return ShellWord(value, glob, loose, word.split)
