"""Commits of the user's repository, to compare the files with.

The repository of the snapshots reads them from the user's objects, so nothing of the user's
repository is run: neither its settings nor its programs. Branches are not known here; a commit is
named by its hash (`prompts.repository` reads HEAD).
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

MAX_COMMITS = 50  # that are listed
_MAX_SUBJECT_CHARS = 200
_HASH_PATTERN = re.compile(r"[0-9a-f]{40}")


class CommitHistory:
    """The commits of the repository that `directory` lies in."""

    def __init__(self, snapshots: SnapshotRepository, directory: str) -> None:
        self._snapshots = snapshots
        self._top = repository_around(directory)
        self.objects = user_objects(self._top) if self._top else ""
        if self.objects and not has_only_files(self.objects):
            self.objects = ""

    def newest(self, head: str) -> tuple[Commit, ...]:
        """`head` and the commits before it. None, if they cannot be read."""
        if not self.objects or not _HASH_PATTERN.fullmatch(head):
            return ()
        try:
            output = self._log(head, f"--max-count={MAX_COMMITS}")
        except GitFailed:  # a shallow clone lacks earlier ones
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
        """The files of a commit, for those `roots` that are in its repository.

        Raises `ToolFailed` if there is no such commit.
        """
        if not self.objects or not _HASH_PATTERN.fullmatch(commit):
            raise ToolFailed(f"There is no commit {commit[:60]!r} here.")
        self._git("cat-file", "-e", f"{commit}^{{commit}}")
        return tuple(
            (root, self._tree(commit, os.path.relpath(root, self._top)))
            for root in roots
            if repository_around(root) == self._top
        )

    def authors(self, head: str, path: str, seconds: float) -> tuple[tuple[str, int], ...]:
        """Who changed a file, an absolute path, in its newest commits before `head`, and how often.

        Raises `ToolFailed` if that takes longer than `seconds`.
        """
        if not self.objects or not _HASH_PATTERN.fullmatch(head):
            return ()
        name = os.path.relpath(path, self._top)
        output = self._git(
            "--literal-pathspecs", "log", f"--max-count={MAX_COMMITS}", "--no-color",
            "--format=%an", head, "--", name, seconds=seconds,
        )  # fmt: skip
        names = output.decode(errors="replace").splitlines()
        return tuple(Counter(name[:_MAX_SUBJECT_CHARS] for name in names).most_common())

    def _tree(self, commit: str, path: str) -> str:
        place = "" if path == "." else path
        try:
            return self._git("rev-parse", "--verify", f"{commit}:{place}").decode().strip()
        except GitFailed:  # the directory is new
            return EMPTY_TREE

    def _log(self, head: str, limit_option: str) -> bytes:
        return self._git(
            "log",
            limit_option,
            "--first-parent",
            "--no-color",
            "--format=%H%x00%ct%x00%s",
            head,
        )

    def _git(self, *arguments: str, seconds: float = MAX_BORROWING_SECONDS) -> bytes:
        self._snapshots.create()
        borrowing = self._snapshots.with_lenders(self.objects)
        # git takes paths relative to the top of the work tree: so that is where it is started.
        place = str(self._snapshots.directory)
        process = borrowing.start(*arguments, folder=place, tree=place)
        return process.read(seconds=seconds)
