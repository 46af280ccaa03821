"""Reads commits of the user's repository, so that files can be compared with them.

git runs in refold's own repository, and reads the objects of the user's repository. So neither
the settings nor the programs of the user's repository have an effect. A commit is named by its
hash; this module does not know branches (`prompts.repository` reads HEAD).

No filter is applied, because git would start programs for filters. Therefore files that a
filter changes (Git LFS, line ends) always appear as changed since a commit.

To undo the changes of a single file, a client calls rewind with `only`. That makes checkpoints
before and after, so the undo itself can be undone.
"""

import os
import re
from collections import Counter

from refold.errors import ToolFailed
from refold.place.ignore_rules import repository_around
from refold.place.port import Commit, Trees
from refold.place.snapshot_lender import has_only_files, user_objects
from refold.place.snapshot_repository import (
    EMPTY_TREE,
    MAX_BORROWING_SECONDS,
    GitFailed,
    SnapshotRepository,
)

MAX_COMMITS = 50  # the length of a list of commits
_MAX_SUBJECT_CHARS = 200
_HASH_PATTERN = re.compile(r"[0-9a-f]{40}")


class CommitHistory:
    """Reads the commits of the user's repository that contains `directory`."""

    def __init__(self, snapshots: SnapshotRepository, directory: str) -> None:
        self._snapshots = snapshots
        self._top = repository_around(directory)
        self.objects = user_objects(self._top) if self._top else ""
        if self.objects and not has_only_files(self.objects):
            self.objects = ""

    def newest(self, head: str) -> tuple[Commit, ...]:
        """Return the commit `head` and the commits before it, up to a maximum number.

        Return () if they cannot be read. In a shallow clone, only `head` may be returned.
        """
        if not self.objects or not _HASH_PATTERN.fullmatch(head):
            return ()
        try:
            output = self._log(head, f"--max-count={MAX_COMMITS}")
        except GitFailed:  # a shallow clone lacks earlier commits
            try:
                output = self._log(head, "--no-walk")
            except GitFailed:
                return ()
        rows = (row.split("\0") for row in output.decode(errors="replace").splitlines())
        return tuple(
            Commit(name, subject[:_MAX_SUBJECT_CHARS], float(time_text))
            for name, time_text, subject in rows
        )

    def trees(self, commit: str, roots: tuple[str, ...]) -> Trees:
        """Return the git tree that each directory in `roots` has in a commit.

        Directories outside the repository are left out. Raises `ToolFailed` if the commit does
        not exist.
        """
        if not self.objects or not _HASH_PATTERN.fullmatch(commit):
            raise ToolFailed(f"There is no commit {commit[:60]!r} here.")
        self._git("cat-file", "-e", f"{commit}^{{commit}}")  # fails if it does not exist
        return tuple(
            (root, self._tree(commit, os.path.relpath(root, self._top)))
            for root in roots
            if repository_around(root) == self._top
        )

    def authors(self, head: str, path: str, seconds: float) -> tuple[tuple[str, int], ...]:
        """Return the authors of a file's newest commits, and how many each of them made.

        `path` is absolute, and `head` is the newest commit that counts. The author with the
        most commits comes first. Return () if the repository cannot be read. Raises
        `ToolFailed` if git fails or takes longer than `seconds`.
        """
        if not self.objects or not _HASH_PATTERN.fullmatch(head):
            return ()
        name = os.path.relpath(path, self._top)
        output = self._git(
            "--literal-pathspecs", "log", f"--max-count={MAX_COMMITS}", "--no-color",
            "--format=%an", head, "--", name, seconds=seconds,
        )  # fmt: skip
        authors = output.decode(errors="replace").splitlines()
        counts = Counter(author[:_MAX_SUBJECT_CHARS] for author in authors)
        return tuple(counts.most_common())

    def _tree(self, commit: str, path: str) -> str:
        """Return the name of a directory's git tree in a commit.

        `path` is relative to the repository. If the commit lacks it, return the empty tree.
        """
        path_in_commit = "" if path == "." else path
        name = f"{commit}:{path_in_commit}"
        try:
            return self._git("rev-parse", "--verify", name).decode().strip()
        except GitFailed:  # the directory is new
            return EMPTY_TREE

    def _log(self, head: str, limit_option: str) -> bytes:
        """Return hash, time and subject of commits from `head` back, one commit in a line."""
        return self._git(
            "log",
            limit_option,
            "--first-parent",
            "--no-color",
            "--format=%H%x00%ct%x00%s",  # hash, time and subject
            head,
        )

    def _git(self, *arguments: str, seconds: float = MAX_BORROWING_SECONDS) -> bytes:
        """Return the output of a git command that also finds the user's commits."""
        self._snapshots.create()
        borrowing = self._snapshots.with_lenders(self.objects)
        # git takes paths relative to the top of the work tree, so it is started there.
        directory = str(self._snapshots.directory)
        process = borrowing.start(*arguments, folder=directory, tree=directory)
        return process.read(seconds=seconds)
