"""Commands that discard what a checkpoint cannot restore: asked about in mode `sandbox`.

The sandbox keeps a command to the workspace, and a checkpoint restores the files there. It does
not restore ignored files, whole directories of them, or the history of the user's repository.
Code that a program runs (`make clean`, a script) is not seen here. Made for what forbids: of
several readings the worst counts.
"""

import re

from refold.permissions.shell.nested_commands import Running, name_of
from refold.permissions.shell.words import MARKS

_GONE = frozenset({"shred", "srm", "rimraf", "trash", "trash-put", "wipe", "dd"})
# What builds and tools make anew.
_MADE = frozenset(
    [
        "build",
        "dist",
        "out",
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
        "coverage",
        "htmlcov",
        ".coverage",
        ".nyc_output",
        "tmp",
        "temp",
        "logs",
        ".eggs",
        "bazel-bin",
        "bazel-out",
        "cmake-build-debug",
        "cmake-build-release",
    ]
)
_MADE_ENDINGS = (".egg-info", ".pyc", ".o", ".class", ".log", ".tmp")
_REMOVES_TREES = re.compile(
    r"rmtree|rmSync|rmdirSync|removeSync|remove_dir_all|deltree|os\.removedirs|FileUtils\.rm"
)
# git's subcommands that can lose changes, branches or history; with these words only, if given.
_GIT: dict[str, tuple[str, ...]] = {
    "reset": ("--hard", "--merge", "--keep"),
    "clean": (),
    "checkout": ("-f", "--force", "--", ".", "-B", "--ours", "--theirs"),
    "switch": ("-f", "--force", "--discard-changes", "-C"),
    "restore": (),
    "stash": ("drop", "clear"),
    "branch": ("-D", "-d", "-f", "-M", "--delete", "--force"),
    "tag": ("-d", "-f", "--delete", "--force"),
    "rebase": (),
    "filter-branch": (),
    "filter-repo": (),
    "fast-import": (),
    "reflog": ("expire", "delete"),
    "gc": (),
    "prune": (),
    "update-ref": (),
    "symbolic-ref": (),
    "replace": (),
    "worktree": ("remove", "prune"),
    "submodule": ("deinit",),
    "push": (),
}
_WITH_VALUE = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"}
)


def discards(found: Running) -> str:
    """What it would discard, as in "it deletes directories"; "" if nothing is seen."""
    for command in found.commands:
        name, values = name_of(command), [word.value for word in command[1:]]
        if reason := _of(name, values):
            return reason
    texts = [*found.quoted, *(word.value for each in found.commands for word in each)]
    if any(_REMOVES_TREES.search(text) for text in texts):
        return "it holds code that deletes directories"
    return ""


def _of(name: str, values: list[str]) -> str:
    if name in _GONE:
        return f"{name} destroys what it writes over" if name == "dd" else f"it runs {name}"
    if name == "rm" and _recursive(values) and not all(map(_made, _operands(values))):
        return "it deletes directories"
    if name == "find" and not {"-delete", "rm"}.isdisjoint(values):
        return "it deletes what it finds"
    return _of_git(values) if name == "git" else ""


def _recursive(values: list[str]) -> bool:
    return any(
        value == "--recursive" or re.fullmatch(r"-[A-Za-z]*[rR][A-Za-z]*", value)
        for value in values
    ) or any(MARKS.search(value) for value in values if value.startswith("-"))


def _operands(values: list[str]) -> list[str]:
    return [value for value in values if not value.startswith("-")] or [""]


def _made(value: str) -> bool:
    """Does a build or a tool make it again? A name with unknown parts is not known."""
    last = value.rstrip("/").rpartition("/")[2]
    return ".." not in value and (last in _MADE or last.endswith(_MADE_ENDINGS))


def _of_git(values: list[str]) -> str:
    at = 0
    while at < len(values) and values[at].startswith("-"):
        at += 2 if values[at] in _WITH_VALUE else 1
    word, rest = (values[at], values[at + 1 :]) if at < len(values) else ("", [])
    if MARKS.search(word):
        return "it is not known what git does"
    if word not in _GIT or (word == "restore" and "--staged" in rest and "-W" not in rest):
        return ""
    worst = _GIT[word]
    if worst and not any(_is(each, worst) for each in rest):
        return ""
    return f"git {word} can lose changes or history"


def _is(word: str, worst: tuple[str, ...]) -> bool:
    """Also `-fd` for `-f`; a word with unknown parts may be each of them."""
    short = {each[1] for each in worst if len(each) == 2 and each[0] == "-"}
    cluster = re.fullmatch(r"-([A-Za-z]+)", word)
    return (
        word in worst
        or bool(MARKS.search(word))
        or bool(cluster and short & set(cluster[1]))
    )
