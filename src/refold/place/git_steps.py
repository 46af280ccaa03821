"""Reads the files in which git stores what it will run when an operation continues.

An example is `git rebase --continue`, which runs the `exec` lines of a list in the repository.
A merge strategy also names a program. git writes these files at every conflict, so they cannot
be mounted read-only like `.git/config`. Instead, `guard_changes` undoes a change by which git
would run more programs.

A change that removes lines or the whole file is not undone, because a rebase makes such
changes. `git rebase` with `--exec`, `-i` or `--edit-todo` needs approval in every mode, and the
approval covers what it writes to these files.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterator

from refold.place.git_targets import parse_settings

STEP_FILES = {
    "rebase-merge": ("git-rebase-todo", "strategy"),
    "rebase-apply": ("strategy",),
    "sequencer": ("todo", "opts"),
}
_TODO_LISTS = ("git-rebase-todo", "todo")
_EXEC_WORDS = ("exec", "x")
# The built-in strategies; any other name is that of a program.
_GIT_STRATEGIES = {"", "octopus", "ort", "ours", "recursive", "resolve", "subtree"}


def step_files(directory: str) -> Iterator[str]:
    """Yield the existing files with the next steps of an operation, in a git directory.

    If the folder of such files is itself a link or a file, the path of the folder is yielded.
    """
    for folder_name, names in STEP_FILES.items():
        folder = f"{directory}/{folder_name}"
        try:
            mode = os.lstat(folder).st_mode
        except OSError:
            continue
        if not stat.S_ISDIR(mode):
            yield folder
            continue
        paths = (f"{folder}/{name}" for name in names)
        yield from (path for path in paths if os.path.lexists(path))


def runs_more(path: str, before: bytes, content: bytes) -> bool:
    """Whether `content` makes git run a program that `before` does not.

    Both are contents of the step file `path`.
    """
    return not _programs(path, content) <= _programs(path, before)


def _programs(path: str, content: bytes) -> Counter[str]:
    """Return the programs that the step file `path` makes git run, and how often each."""
    text = content.decode(errors="surrogateescape")
    name = os.path.basename(path)
    if name in _TODO_LISTS:
        # A line is a word for the action, and its arguments: here a command.
        lines = (line.split(None, 1) for line in text.split("\n"))
        return Counter(words[-1] for words in lines if words and words[0] in _EXEC_WORDS)
    if name == "strategy":
        strategies = {text.strip()}
    else:
        settings = [s for s in parse_settings(text) if s.key == "options.strategy"]
        strategies = {setting.value or "" for setting in settings}
    return Counter(strategies - _GIT_STRATEGIES)
