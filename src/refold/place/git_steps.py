"""Finds the files in which git notes what it will run when it continues, and reads what that is.

`git rebase --continue` runs the `exec` lines of a list in the repository, and a merge strategy is
the name of a program. git writes these files with every conflict, so no mount can protect them as it
protects `.git/config`: `guard_changes` undoes a change by which git would run more.

Only one thing counts: whether the new content makes git run more. A rebase itself removes
lines, and in the end the list. `git rebase` with `--exec`, `-i` or `--edit-todo` asks in
every mode, and a yes accepts what that command leaves.
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
# Those that are a part of git; the name of any other is that of a program.
_GIT_STRATEGIES = {"", "octopus", "ort", "ours", "recursive", "resolve", "subtree"}


def step_files(directory: str) -> Iterator[str]:
    """Step files that exist in this repository directory, and links in place of their folders."""
    for folder, names in STEP_FILES.items():
        above = f"{directory}/{folder}"
        try:
            mode = os.lstat(above).st_mode
        except OSError:
            continue
        if not stat.S_ISDIR(mode):
            yield above
            continue
        paths = (f"{above}/{name}" for name in names)
        yield from (path for path in paths if os.path.lexists(path))


def runs_more(path: str, before: bytes, content: bytes) -> bool:
    """Whether `content` makes git run something that the content `before` does not."""
    return not _programs(path, content) <= _programs(path, before)


def _programs(path: str, content: bytes) -> Counter[str]:
    text, name = content.decode(errors="surrogateescape"), os.path.basename(path)
    if name in _TODO_LISTS:
        lines = (line.split(None, 1) for line in text.split("\n"))
        return Counter(words[-1] for words in lines if words and words[0] in _EXEC_WORDS)
    if name == "strategy":
        return Counter({text.strip()} - _GIT_STRATEGIES)
    named = (s for s in parse_settings(text) if s.key == "options.strategy")
    return Counter({setting.value or "" for setting in named} - _GIT_STRATEGIES)
