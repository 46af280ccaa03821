"""Recognizes commands that discard what a checkpoint cannot restore. Mode `sandbox` asks about
them.

The sandbox confines a command to the workspace, and a checkpoint restores the files there. It
does not restore files that git ignores, directories with these, or the history of the user's
repository. Code that a program runs (`make clean`, a script) is not examined. If a command may
have several meanings, the worst one counts.
"""

import re
from collections.abc import Callable
from itertools import pairwise

from refold.permissions.shell.git_read_only import parse_git
from refold.permissions.shell.nested_commands import NestedCommands, name_of
from refold.permissions.shell.words import MARK_PATTERN

_DESTROYING_PROGRAMS = frozenset(
    {"shred", "srm", "rimraf", "trash", "trash-put", "wipe", "dd"}
)
_REMOVING_PROGRAMS = frozenset({"rm", "rmdir", "unlink", *_DESTROYING_PROGRAMS})
# Files and directories that builds and tools can generate again.
_GENERATED_NAMES = frozenset(
    [
        "build",
        "dist",
        "target",
        "node_modules",
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".tox",
        ".nox",
        ".cache",
        ".next",
        ".nuxt",
        ".turbo",
        ".parcel-cache",
        ".svelte-kit",
        ".gradle",
        "htmlcov",
        ".coverage",
        ".nyc_output",
        ".eggs",
        "bazel-bin",
        "bazel-out",
        "cmake-build-debug",
        "cmake-build-release",
    ]
)
_GENERATED_ENDINGS = (".egg-info", ".pyc", ".o", ".class", ".log", ".tmp")
_REMOVES_TREES = re.compile(
    r"rmtree|rmSync|rmdirSync|removeSync|remove_dir_all|deltree|os\.removedirs|FileUtils\.rm"
)
# git's subcommands that preserve changes, branches and history, except with one of these
# words. Any other subcommand may lose them, including aliases.
_GIT_DISCARDS: dict[str, tuple[str, ...]] = {
    "add": (),
    "am": ("--abort", "--skip", "--quit"),
    "apply": (),
    "archive": (),
    "bisect": (),
    "branch": ("-D", "-d", "-f", "-M", "-C", "--delete", "--force"),
    "cherry-pick": ("--abort", "--skip", "--quit"),
    "clone": (),
    "fetch": ("-f", "--force", "-p", "--prune", "-P", "--prune-tags"),
    "format-patch": (),
    "init": (),
    "merge": ("--abort", "--quit"),
    "mv": ("-f", "--force"),
    "notes": ("remove", "prune", "-f", "--force"),
    "pull": ("-f", "--force", "-r", "--rebase"),
    "reflog": ("expire", "delete"),
    "remote": ("remove", "rm", "prune", "rename", "set-url"),
    "revert": ("--abort", "--skip", "--quit"),
    "stash": ("drop", "clear"),
    "submodule": ("deinit", "-f", "--force"),
    "switch": (
        "-f",
        "--force",
        "--discard-changes",
        "-C",
        "--force-create",
        "-m",
        "--merge",
    ),
    "tag": ("-d", "-f", "--delete", "--force"),
    "worktree": ("remove", "prune", "-f", "--force", "-B"),
}
_OVERWRITING_OPTIONS = (
    "-f",
    "--force",
    "-B",
    "-m",
    "--merge",
    "-p",
    "--patch",
    "--ours",
    "--theirs",
)
_NEW_BRANCH = ("-b", "--orphan")
_VALUE_OPTIONS = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"}
)
# paths that checkpoints do not contain
_OUTSIDE_CHECKPOINTS = re.compile(r"(?:/var)?/tmp(?:/|$)|(?:.*/)?\.git(?:/|$)")


def discards(nested: NestedCommands) -> str:
    """Return a clause about what a script discards, such as "it deletes directories", or ""."""
    texts = list(nested.quoted)
    for command in nested.commands:
        name, values = name_of(command), [word.value for word in command[1:]]
        if reason := _loss_reason(name, values):
            return reason
        texts += (word.value for word in command)
    if any(_REMOVES_TREES.search(text) for text in texts):
        return "it holds code that deletes directories"
    return ""


def _loss_reason(name: str, values: list[str]) -> str:
    """Return a clause about what a program discards with these arguments, or ""."""
    if name == "git":
        return _loss_by_git(values)
    if name == "dd":
        return "dd destroys what it writes over"
    if name in _DESTROYING_PROGRAMS:
        return f"it runs {name}"
    if name not in _LOSING_COMMANDS:
        return ""
    reason, loses_something = _LOSING_COMMANDS[name]
    return reason if loses_something(values) else ""


def _removes_directories(values: list[str]) -> bool:
    return _is_recursive(values) and not all(map(_is_generated, _operands(values)))


def _find_removes(values: list[str]) -> bool:
    return not {"-delete", *_REMOVING_PROGRAMS}.isdisjoint(values)


def _moves_outside_checkpoints(values: list[str]) -> bool:
    return any(map(_OUTSIDE_CHECKPOINTS.match, _move_targets(values)))


def _move_targets(values: list[str]) -> list[str]:
    """Return the arguments that may be the target of `mv`: the last, and the one of `-t`."""
    option_with_value = re.compile(r"-[A-Za-z]*t(.+)|--target-directory=(.+)")
    option = re.compile(r"-[A-Za-z]*t|--target-directory")
    targets = list[str]()
    for value in values:
        if match := option_with_value.fullmatch(value):
            targets.append(match[1] or match[2])
    for before, value in pairwise(values):
        if option.fullmatch(before):
            targets.append(value)
    return [*targets, *values[-1:]]


def _is_recursive(values: list[str]) -> bool:
    """Whether one of the arguments is `-r`, `-R` or `--recursive`.

    An option that is not known completely counts, too.
    """
    options = [value for value in values if value.startswith("-")]
    if any(MARK_PATTERN.search(option) for option in options):
        return True
    return any(
        option == "--recursive" or re.fullmatch(r"-[A-Za-z]*[rR][A-Za-z]*", option)
        for option in options
    )


def _operands(values: list[str]) -> list[str]:
    operands = [value for value in values if not value.startswith("-")]
    return operands or [""]  # "" is not a generated name


def _is_generated(value: str) -> bool:
    """Whether the name of a file shows that a build or a tool can generate the file again."""
    last = value.rstrip("/").rpartition("/")[2]
    return ".." not in value and (
        last in _GENERATED_NAMES or last.endswith(_GENERATED_ENDINGS)
    )


def _loss_by_git(values: list[str]) -> str:
    """Return a clause about what git discards with these arguments, or ""."""
    index = 0
    while index < len(values) and values[index].startswith("-"):
        index += 2 if values[index] in _VALUE_OPTIONS else 1
    if index >= len(values):
        return ""
    subcommand, arguments = values[index], values[index + 1 :]
    if MARK_PATTERN.search(subcommand):
        return "what git does here is not known"
    _, options = parse_git(["git", *values[index:]])
    only_reads = not options.problem
    if not subcommand or only_reads or _discards_nothing(subcommand, arguments):
        return ""
    return f"git {subcommand} can lose changes or history"


def _discards_nothing(word: str, arguments: list[str]) -> bool:
    """Whether git with the subcommand `word` discards nothing with these arguments."""
    match word:
        case "checkout":
            return _switches_branch(arguments)
        case "restore":
            staged = any(_is_option(argument, ("-S", "--staged")) for argument in arguments)
            changes_files = any(
                _is_option(argument, ("-W", "--worktree")) for argument in arguments
            )
            return staged and not changes_files
        case "rm":
            return "--cached" in arguments
        # These read, and write only to the file of `--output`.
        case "diff" | "log" | "show":
            return not any(
                argument.startswith("--o") or MARK_PATTERN.search(argument)
                for argument in arguments
            )
        case "commit":  # most words of a commit are its message
            return not any(_is_abbreviation(argument, "--amend") for argument in arguments)
        case _:
            return word in _GIT_DISCARDS and not any(
                _is_option(argument, _GIT_DISCARDS[word]) for argument in arguments
            )


def _switches_branch(arguments: list[str]) -> bool:
    """Whether `git checkout` with these arguments certainly switches branches.

    A word that looks like a file may be a file instead.
    """
    overwriting = (*_OVERWRITING_OPTIONS, "--", ".")
    if any(_is_option(argument, overwriting) for argument in arguments):
        return False
    if any(argument in _NEW_BRANCH for argument in arguments):
        return True
    # A single `-` is the branch before.
    names = [word for word in arguments if not word.startswith("-") or word == "-"]
    return len(names) == 1 and "." not in names[0] and not names[0].endswith("/")


def _is_option(word: str, options: tuple[str, ...]) -> bool:
    """Whether the word is one of these options.

    `-fd` includes `-f`, and `--del` abbreviates `--delete`. A word with a mark, which stands for
    unknown text, may be any option.
    """
    if word in options or MARK_PATTERN.search(word):
        return True
    if any(_is_abbreviation(word, option) for option in options):
        return True
    letters = {option[1] for option in options if len(option) == 2 and option[0] == "-"}
    short_options = re.fullmatch(r"-([A-Za-z]+)", word)
    return bool(short_options and letters & set(short_options[1]))


def _is_abbreviation(word: str, option: str) -> bool:
    return len(word) > 3 and word.startswith("--") and option.startswith(word)


# By program: what it loses, and a function that decides whether it does so with these
# words.
_LOSING_COMMANDS: dict[str, tuple[str, Callable[[list[str]], bool]]] = {
    "rm": ("it deletes directories", _removes_directories),
    "find": ("it deletes what it finds", _find_removes),
    "xargs": ("it deletes what another command lists", _find_removes),
    "parallel": ("it deletes what another command lists", _find_removes),
    "rsync": (
        "it deletes what the other side does not have",
        lambda values: any(value.startswith("--del") for value in values),
    ),
    "mv": ("it moves files to a place without checkpoints", _moves_outside_checkpoints),
    "truncate": ("it shortens files", bool),
    "cp": ("it empties files", lambda values: "/dev/null" in values),
}
