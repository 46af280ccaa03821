"""Scans the files of a workspace for snapshots: all its roots, and the repositories in them.

A nested repository is scanned as a root of its own. `snapshot_root_scan` scans one root. Lent
contents are those that snapshots take from the user's repository (`snapshot_lender`).
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from refold.errors import ToolFailed
from refold.place.ignore_rules import IgnoreRules, git_folder
from refold.place.port import Trees
from refold.place.snapshot_index import time_and_size
from refold.place.snapshot_repository import (
    GitFailed,
    ScanProgress,
    SnapshotRepository,
)
from refold.place.snapshot_root_scan import RootScan
from refold.values.printable_names import escape_name

_MAX_NESTED_ROOTS = 8  # nested repositories that are scanned
_MAX_SCAN_TRIES = 20  # when files change during a scan
_BAD_PATH = r"(?s)Unable to process path (.*)"


class Scan:
    """Scans the files for one session. Scanning unchanged files again costs one call of git."""

    def __init__(
        self, repository: SnapshotRepository, rules: IgnoreRules, session: str
    ) -> None:
        self._repository, self._rules = repository, rules
        self._session = f"sessions/{session or 'unnamed'}"
        # By root:
        self._trees = dict[str, str]()  # the newest git trees
        self._user_indexes = dict[str, tuple[int, int]]()  # their times and sizes
        self._left_out = dict[str, set[str]]()  # the paths that were left out
        # Files whose earlier content was only in the user's repository, which deleted it.
        self.lost = set[str]()

    def store_lent_contents(self, roots: Sequence[str], progress: ScanProgress) -> None:
        """Store the lent contents of files that are unchanged since the last scan."""
        self._repository.create()
        with self._repository.lock(f"{self._session}/lock") as lock:
            for root in dict.fromkeys((*roots, *self._trees)):
                # the workspace directory that contains `root`, which may be nested in it
                base = next(base for base in roots if f"{root}/".startswith(f"{base}/"))
                scan = RootScan(
                    self._repository,
                    self._rules,
                    place=(root, base),
                    other_roots=(),  # no exclude file is written
                    session=self._session,
                    lock=lock,
                )
                if scan.store_lent_contents(progress):
                    self._trees.pop(root, None)  # a file may have changed in the meantime

    def scan(
        self, roots: Sequence[str], progress: ScanProgress
    ) -> tuple[Trees, tuple[str, ...]]:
        """Return the git trees of `roots` and of repositories in them, and the left-out paths.

        Nested repositories above `_MAX_NESTED_ROOTS` are left out.
        """
        self._repository.create()
        with self._repository.lock(f"{self._session}/lock") as lock:
            entries, left_out = list[tuple[str, str]](), set[str]()
            nested_count = 0
            # Each root comes with the one of `roots` that contains it.
            waiting = [(root, root) for root in roots]
            for root, base in waiting:  # the list grows during the loop
                others = [other for other in roots if other != root]
                scan = RootScan(
                    self._repository,
                    self._rules,
                    place=(root, base),
                    other_roots=others,
                    session=self._session,
                    lock=lock,
                )
                tree, nested_roots = self._scan_root(scan, progress)
                entries.append((root, tree))
                left_out |= {os.path.join(root, path) for path in self._left_out[root]}
                for nested_root in nested_roots:
                    nested_count += 1
                    if nested_count <= _MAX_NESTED_ROOTS:
                        waiting.append((nested_root, base))
                    else:
                        left_out.add(f"{nested_root}/")
            return tuple(entries), tuple(sorted(left_out))

    def _scan_root(self, scan: "RootScan", progress: ScanProgress) -> tuple[str, list[str]]:
        """Update the index of one root. Return the name of its git tree, and the nested roots.

        Files whose names git refuses are left out, and the update is tried again without them.
        Raises `ToolFailed` if too many tries fail.
        """
        scan.prepare()
        root, refused = scan.root, set[str]()
        for _ in range(_MAX_SCAN_TRIES):
            new, changed, nested_roots = scan.changes()
            lost, were_read_again = scan.secure_borrowed(changed, progress)
            self.lost |= lost
            paths = (new | changed.keys() | self._tracked_despite_ignore(scan)) - refused
            left_before = self._left_out.get(root, set())
            try:
                has_changed, left_out = scan.add_to_index(paths, left_before, progress)
            except GitFailed as error:
                bad_path = re.search(_BAD_PATH, error.output)
                if bad_path is None:
                    raise
                refused.add(bad_path[1].removeprefix(scan.prefix))
                continue
            # Files that were left out are not in the index: every scan finds them again.
            self._left_out[root] = left_out | refused
            has_changed |= were_read_again  # a file may have changed after it was compared
            if has_changed or root not in self._trees:
                self._trees[root] = scan.tree()
            scan.set_index_time(has_changed)
            return self._trees[root], nested_roots
        raise ToolFailed(
            f"The files of {escape_name(root)} change too fast for a snapshot."
        )

    def _tracked_despite_ignore(self, scan: "RootScan") -> set[str]:
        """Return ignored files that the user's index tracks; none if the index is unchanged."""
        if not scan.top:  # no repository of the user
            return set()
        user_index = Path(git_folder(scan.top)) / "index"
        state = time_and_size(user_index)
        if state is None or self._user_indexes.get(scan.root) == state:
            return set()
        self._user_indexes[scan.root] = state
        return scan.ignored_files(user_index)
