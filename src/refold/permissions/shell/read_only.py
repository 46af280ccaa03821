"""Decides whether a command line is read-only, and which files it reads.

It is read-only if every simple command in it is a program of the table in a known form, and
every file that it names may be read freely. First, each variable is replaced by its value: the
home, the directory, or a word of a loop. A command that is not known to be read-only may still
be harmless; then the user is asked.
"""

import math
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from msgspec import Struct, structs

from refold.permissions.facts import Facts
from refold.permissions.shell import program_forms
from refold.permissions.shell.file_arguments import STRICT_ABOUT_GLOBS, files_of
from refold.permissions.shell.plain_script import parse_plain
from refold.permissions.shell.quoting import ShellWord, short_text
from refold.permissions.shell.simple_commands import SimpleCommand
from refold.permissions.shell.words import DIRECTORY_MARK, HOME_MARK
from refold.values.path_names import is_steering

_MAX_DIRECTORIES = 16
_HARMLESS_FILES = ("/dev/null", "-")
_HIDDEN_GLOB = re.compile(r"(?:^|/)\.[^/]*[*?\[]")
_GLOB_PATTERN = re.compile(r"[*?\[]")
_MAX_COMMANDS = 200  # that the loops in one command may produce
# A word that is still one word when a shell parses it again, and is not a glob.
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:,@%+^-]+")


class SurveyedCommand(Struct, frozen=True):
    """A simple command. `problem` says why it may do more than read, or is ""."""

    part: SimpleCommand
    problem: str = ""
    changes_directory: bool = False  # the command only changes the directory
    at_home: bool = True  # no `cd` came before
    # its output may go to a file that command rules do not cover
    writes_elsewhere: bool = False


def survey(
    text: str, cwd: str, facts: Facts, may_read: Callable[[str], bool]
) -> tuple[SurveyedCommand, ...]:
    """Return the simple commands of `text`, each with its problem; () if the script is not
    plain.

    `may_read` decides whether a file, with links resolved, may be read without asking.
    """
    parts = parse_plain(text)
    surveyed: list[SurveyedCommand] = []
    # The directories in which the next command may run.
    possible: tuple[str, ...] = (posixpath.normpath(cwd),)
    # The directories if the next command follows `&&`, so the last one has succeeded.
    after_success = possible
    may_have_left = False  # whether a `cd` may have left the workspace
    for index, part in enumerate(parts):
        next_operator = parts[index + 1].after if index + 1 < len(parts) else ""
        continues_list = part.after == "&&" and not part.after_group_edge
        directories = after_success if continues_list else possible
        reads_pipe = part.after == "|"
        writes_pipe = next_operator == "|"
        at_home = len(possible) == 1
        # A `cd` in a pipe runs in a shell of its own.
        if part.values[0] == "cd" and not reads_pipe and not writes_pipe:
            next_directories = _directories_after(part, directories, facts)
            command = SurveyedCommand(
                part,
                problem="" if next_directories else "cd may leave the workspace",
                changes_directory=bool(next_directories),
                at_home=at_home,
            )
            possible = tuple(dict.fromkeys((*possible, *next_directories)))
            possible = possible[:_MAX_DIRECTORIES]
            after_success = next_directories if part.after != "||" else possible
            may_have_left = may_have_left or not next_directories
        else:
            problem = _problem(part, directories, facts, may_read, piped=reads_pipe)
            if may_have_left and not problem:
                problem = "it may run outside the workspace"
            command = SurveyedCommand(
                part,
                problem,
                at_home=at_home,
                writes_elsewhere=_may_write_elsewhere(part, directories, facts),
            )
            after_success = directories
        surveyed.append(command)
    return tuple(surveyed)


def _may_write_elsewhere(
    part: SimpleCommand, directories: Sequence[str], facts: Facts
) -> bool:
    """Whether a command may write output outside the workspace, or to a file that instructs
    agents.

    `directories` are those in which the command may run.
    """
    reals = [
        real_path_of(output.file, directory, facts)
        for output in part.outputs
        for directory in directories
    ]
    return any(facts.outside(real) or bool(is_steering(real.split("/"))) for real in reals)


def _directories_after(
    part: SimpleCommand, directories: Sequence[str], facts: Facts
) -> tuple[str, ...]:
    """Return the directories that `cd` may lead to; () if one is unknown or outside.

    `directories` are those in which `cd` may run. A path with `..` can lead to two, because
    bash resolves `..` by name, but the system by links.
    """
    if part.loops or part.settings or part.outputs:
        return ()
    try:
        words = next(commands_in_directories(part, directories, facts)).words
    except NotKnown:
        return ()
    if len(words) != 2:
        return ()
    target = words[1]
    if target.glob or not target.value or target.value.startswith("-"):
        return ()
    joined = [posixpath.join(directory, target.value) for directory in directories]
    by_name = [posixpath.normpath(path) for path in joined]
    by_links = [facts.follow(path) for path in joined]
    paths = [*by_name, *by_links]
    if any(facts.outside(posixpath.normpath(facts.follow(path))) for path in paths):
        return ()
    return tuple(dict.fromkeys(paths))[:_MAX_DIRECTORIES]


def _problem(
    part: SimpleCommand,
    directories: Sequence[str],
    facts: Facts,
    may_read: Callable[[str], bool],
    *,
    piped: bool,
) -> str:
    """Return why the command may do more than read, or "".

    The command is judged for each directory and each value of a loop variable. `piped`: its
    input is the output of another command.
    """
    if part.values[0] == "xargs" and not (piped or part.reads or part.has_inline_input):
        return "xargs is given nothing to read"
    try:
        commands = list(commands_in_directories(part, directories, facts))
    except NotKnown as error:
        return str(error)
    problems = (
        _problem_of_form(command, directories, facts, may_read) for command in commands
    )
    return next((problem for problem in problems if problem), "")


def _problem_of_form(
    part: SimpleCommand,
    directories: Sequence[str],
    facts: Facts,
    may_read: Callable[[str], bool],
) -> str:
    """Return why a command without variables may do more than read, or ""."""
    name = part.values[0]
    files = files_of(part, facts)
    if files.problem:
        return files.problem
    if part.outputs:
        return f"{_output_to_show(part)} writes to a file"
    if part.spelled_settings:
        setting = short_text(part.spelled_settings[0])
        return f"{setting} sets a variable that may change what programs do"
    if any(word.glob for word in part.words) and not facts.sandboxed:
        return "its wildcards match files that are not known before it runs"
    if any(word.glob and _HIDDEN_GLOB.search(word.value) for word in part.words):
        return "its wildcards may match hidden files"
    if _may_expand_to_options(part):
        return "a file's name could be read as an option"
    # Without a file the command reads the directory in which it runs.
    named = [part.words[index] for index in files.indexes] or [ShellWord(".")]
    for word in (*named, *part.reads):
        for directory in directories:
            real = real_path_of(word, directory, facts)
            if real and may_read(real):
                continue
            where = "outside the workspace" if facts.outside(real) else "which is protected"
            return f"{name} reads {real or word.value}, {where}"
    return ""


def _output_to_show(part: SimpleCommand) -> str:
    return short_text(f"{part.outputs[0].operator} {part.outputs[0].file.value}")


def real_path_of(word: ShellWord, directory: str, facts: Facts) -> str:
    """Return the real path of the file that a word names in `directory`; "" if it is uncertain.

    For a word with a glob, return the folder in which the glob is expanded. /dev/null and `-`
    are harmless and count as `directory`.
    """
    path = word.value
    if path in _HARMLESS_FILES:
        return directory
    if word.glob:
        before_glob = _GLOB_PATTERN.split(path)[0]
        if ".." in path[len(before_glob) :].split("/"):
            return ""
        current = "/" if path.startswith("/") else "."
        path = before_glob.rpartition("/")[0] or current
    return posixpath.normpath(facts.follow(posixpath.join(directory, path)))


def _may_expand_to_options(part: SimpleCommand) -> bool:
    """Whether a word begins with a glob, so that a file's name could be read as an option."""
    if part.values[0] in program_forms.HARMLESS_INNER_PROGRAMS:
        return False
    if not any(word.begins_with_glob for word in part.words):
        return False
    return not _has_globs_after_dashes_only(part)


def _has_globs_after_dashes_only(part: SimpleCommand) -> bool:
    """Whether words that begin with a glob come only after `--`, so none can be an option.

    The result is False for programs for which `--` does not ensure that.
    """
    values = part.values
    if values[0] in STRICT_ABOUT_GLOBS or values[0] in ("echo", "type", "which"):
        return False
    dashes_index = values.index("--") if "--" in values else len(values)
    return not any(word.begins_with_glob for word in part.words[:dashes_index])


class NotKnown(Exception):
    """Raised, with the reason, for a command that is not known before it runs."""


def commands_in_directories(
    part: SimpleCommand, directories: Sequence[str], facts: Facts
) -> Iterator[SimpleCommand]:
    """Yield `part` with values for its variables, once for each combination of loop words.

    Raises `NotKnown` if a value is not known, for example `$PWD` with several `directories`, or
    if there are too many combinations.
    """
    all_values = "".join(word.value for word in (*part.words, *part.reads))
    known = list[tuple[str, ShellWord]]()
    if HOME_MARK in all_values:
        known.append((HOME_MARK, _known_directory(facts.home, "HOME")))
    if DIRECTORY_MARK in all_values:
        if len(directories) > 1:
            raise NotKnown("it is not known what $PWD is after cd")
        known.append((DIRECTORY_MARK, _known_directory(directories[0], "PWD")))
    loops = [loop for loop in part.loops if loop.mark in all_values]
    if math.prod(len(loop.words) for loop in loops) > _MAX_COMMANDS:
        raise NotKnown(f"its loops run more than {_MAX_COMMANDS} times")
    if not loops and not known:
        yield part
        return
    loop_marks = [loop.mark for loop in loops]
    for loop_words in product(*(loop.words for loop in loops)):
        replacements = [*known, *zip(loop_marks, loop_words, strict=True)]
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
    """Return a word with the marks replaced by other words.

    Raises `NotKnown` if the result may be several words.
    """
    value, glob, begins_with_glob = word.value, word.glob, word.begins_with_glob
    for mark, replacement in replacements:
        if mark not in word.value:
            continue
        splits_again = mark in word.unquoted_marks
        if replacement.glob and word.value != mark:
            raise NotKnown("a file's name becomes a part of another word")
        if replacement.glob:
            glob = True
            # The file `a -n` becomes two words outside of quotes, and the second looks like an
            # option.
            begins_with_glob = replacement.begins_with_glob or splits_again
        elif splits_again and not _PLAIN_WORD.fullmatch(replacement.value):
            raise NotKnown("a word without quotes may become several")
        value = value.replace(mark, replacement.value)
    return ShellWord(value, glob, begins_with_glob, word.unquoted_marks)
