"""Makes, inspects and removes git working trees, for subagents and for sessions that enter a
tree.

The working tree of a subagent is in refold's data directory; `named_worktrees` decides the path
of a tree with a name. Each has a branch of its own, which begins at the commit that the
session's directory has checked out. The user's own working tree, index and other branches are
never changed; no hook, filter or helper program of the repository is run.
"""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import anyio
from msgspec import Struct

from refold import programs
from refold.errors import ToolFailed
from refold.programs import Programs
from refold.prompts.repository import root_of
from refold.safe_open import check_no_links
from refold.values.path_names import below
from refold.values.printable_names import escape_name

_TIMEOUT_SECONDS = 300.0
_MAX_REASON_CHARS = 300  # of the errors of git
_SUBMODULE_MODE = "160000 "  # the beginning of a submodule's line
_SAFE_SETTINGS = (
    ("core.hooksPath", "/dev/null"), ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"), ("protocol.allow", "never"),
    ("submodule.recurse", "false"), ("gc.auto", "0"), ("maintenance.auto", "false"),
    ("safe.directory", "*"), ("advice.detachedHead", "false"),
)  # fmt: skip


class Worktree(Struct, frozen=True):
    """A working tree. `base` is the commit at which its branch begins."""

    directory: str
    branch: str
    base: str


class TreeState(Struct, frozen=True):
    """The numbers of files and commits that the removal of a working tree would affect."""

    changed: int = 0  # number of files that are not committed
    stray: int = 0  # number of commits that are on no branch and under no tag
    commits: int = 0  # number of commits that are only on its branch

    @property
    def loss(self) -> str:
        """Return a text that says what would be lost; "" if nothing would be."""
        files = "1 file that is" if self.changed == 1 else f"{self.changed} files that are"
        commits = (
            "1 commit that is" if self.stray == 1 else f"{self.stray} commits that are"
        )
        parts = (
            f"{files} not committed" if self.changed else "",
            f"{commits} on no branch" if self.stray else "",
        )
        return " and ".join(filter(None, parts))


class Worktrees:
    """The working trees of the repository to which the session's `directory` belongs.

    Trees of subagents are in `place`, which is created when needed. Methods may raise
    `ToolFailed`, with a sentence for the model or a person, without a period.
    """

    def __init__(self, place: Path, environ: Mapping[str, str], directory: str) -> None:
        self._place = place
        self._directory = directory
        self._environ = environ
        self._git_lock = anyio.Lock()

    @cached_property
    def _programs(self) -> Programs:
        return Programs(self._environ, (self._directory,))

    def tree_of_child(self, session: str, child: str, base: str) -> Worktree:
        """Return the working tree for a child of this session. The tree need not exist.

        `base` is the commit at which the tree's branch begins.
        """
        root, *subagents = session.split("/")  # such as ID/child-1/child-2
        name = "-".join((*subagents, child))
        return Worktree(str(self._place / root / name), f"refold/{root}-{name}", base)

    async def base(self) -> str:
        """Return the commit that is checked out in the session's directory."""
        return await anyio.to_thread.run_sync(self._base_commit)

    async def make(self, tree: Worktree, inside: str) -> None:
        """Create the working tree, unless it exists, and the directory `inside` it."""
        async with self._git_lock:
            await anyio.to_thread.run_sync(self._make_tree, tree, inside)

    async def remove_if_unchanged(self, tree: Worktree) -> bool:
        """Remove a working tree with its branch, unless it has changed files or new commits.

        Return False if the tree was kept for that reason.
        """
        async with self._git_lock:
            return await anyio.to_thread.run_sync(self._remove_if_unchanged, tree)

    async def list_trees(self) -> Sequence[Worktree]:
        """Return the linked working trees of the repository, without the main working tree."""
        return await anyio.to_thread.run_sync(self._list_trees)

    async def has_branch(self, branch: str) -> bool:
        return bool(await anyio.to_thread.run_sync(self._commit_of, self._root, branch))

    async def state(self, tree: Worktree) -> TreeState:
        return await anyio.to_thread.run_sync(self._state, tree)

    async def remove(self, tree: Worktree) -> str:
        """Remove a working tree, whatever it contains.

        Return the name of the tree's branch if the branch remains, because it has commits of
        its own or is not refold's; "" if the branch is removed, too.
        """
        async with self._git_lock:
            return await anyio.to_thread.run_sync(self._remove, tree)

    def child_directory(self, tree: Worktree) -> str:
        """Return the directory in which a child works: the folder in its tree that corresponds
        to the session's directory.
        """
        folder = os.path.relpath(os.path.realpath(self._directory), self._root)
        return os.path.normpath(os.path.join(tree.directory, folder))

    @property
    def _root(self) -> str:
        return root_of(self._directory)

    def _base_commit(self) -> str:
        """Return the commit of HEAD, at which branches begin. Raises `ToolFailed` without a
        commit.
        """
        root = self._repository()
        try:
            return self._run(root, "rev-parse", "--verify", "HEAD^{commit}").strip()
        except ToolFailed as error:
            raise ToolFailed(
                f"The repository {escape_name(root)} has no commit to begin at: commit first "
                f"({error})"
            ) from error

    def _repository(self) -> str:
        """Return the root of the repository. Raises `ToolFailed` if git cannot be used
        there.
        """
        root = self._root
        if not os.path.lexists(os.path.join(root, ".git")):
            raise ToolFailed(
                f"{escape_name(self._directory)} is not a git repository, so no working "
                "tree can be made"
            )
        # Imported late: few sessions need it.
        from refold.place.guarded_paths import proven_repository

        if not proven_repository(root):
            raise ToolFailed(
                f"The .git in {escape_name(root)} leads to a repository that does not know this "
                "folder, so no working tree is made"
            )
        if not self._programs.find("git"):
            raise ToolFailed("git is not installed")
        return root

    def _make_tree(self, tree: Worktree, inside: str) -> None:
        """Make the working tree, and the directory `inside` in it.

        A tree that was begun before is completed.
        """
        if not os.path.lexists(os.path.join(tree.directory, ".git")):
            self._make_place()
            self._run(self._root, "worktree", "prune")
            if self._commit_of(self._root, tree.branch):
                arguments = ("--", tree.directory, tree.branch)
            else:  # the branch is created, too
                branch = ("--no-track", "-b", tree.branch)
                arguments = (*branch, "--", tree.directory, tree.base)
            self._run(self._root, "worktree", "add", "--no-checkout", *arguments)
        if os.listdir(tree.directory) == [".git"]:
            # The files are checked out after the tree is made, because only in the tree all
            # filters are known: settings may depend on the directory in which git runs and
            # on the branch.
            self._run(tree.directory, "reset", "--hard", "--quiet")
        if not below(os.path.realpath(inside), os.path.realpath(tree.directory)):
            raise ToolFailed(
                f"{escape_name(inside)} leads out of the working tree, by a link on the branch "
                f"{tree.branch}: work in the root of the repository, or take another branch"
            )
        os.makedirs(inside, exist_ok=True)

    def _make_place(self) -> None:
        """Create the directory for working trees. Raises `ToolFailed`."""
        try:
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_no_links(self._place)
        except OSError as error:
            place = escape_name(str(self._place))
            raise ToolFailed(f"No working tree in {place}: {error.strerror}") from error

    def _remove_if_unchanged(self, tree: Worktree) -> bool:
        """Remove the tree and its branch, and return True; keep a changed tree, and return
        False.

        Return True for a tree that does not exist, too.
        """
        if not os.path.isdir(tree.directory):
            return True
        if self._count_changed(tree.directory):
            return False
        # HEAD may be another branch than that of the tree.
        head = self._commit_of(tree.directory, "HEAD")
        branch_tip = self._commit_of(self._root, tree.branch)
        if head != tree.base or branch_tip != tree.base:
            return False
        self._run(self._root, "worktree", "remove", "--force", "--", tree.directory)
        self._run(self._root, "update-ref", "-d", f"refs/heads/{tree.branch}", tree.base)
        return True

    def _list_trees(self) -> Sequence[Worktree]:
        """Return the linked trees, with their newest commit as `base`.

        The main tree, which git lists first, is left out.
        """
        output = self._run(self._repository(), "worktree", "list", "--porcelain", "-z")
        blocks = output.strip("\0").split("\0\0")  # one for each tree
        trees = list[Worktree]()
        for block in blocks[1:]:
            rows = (row.partition(" ") for row in block.split("\0"))
            values = {name: value for name, _, value in rows}
            branch = values.get("branch", "").removeprefix("refs/heads/")
            trees.append(
                Worktree(values.get("worktree", ""), branch, values.get("HEAD", ""))
            )
        return trees

    def _state(self, tree: Worktree) -> TreeState:
        """Return how many files and commits the removal of the tree would affect."""
        changed = self._count_changed(tree.directory)
        all_refs = ("--branches", "--tags", "--remotes")
        stray = self._run(tree.directory, "rev-list", "--count", "HEAD", "--not", *all_refs)
        only_on_branch = "0"
        if tree.branch and self._commit_of(self._root, tree.branch):
            other_refs = (f"--exclude={tree.branch}", *all_refs)
            branch = f"refs/heads/{tree.branch}"
            only_on_branch = self._run(
                self._root, "rev-list", "--count", branch, "--not", *other_refs
            )
        return TreeState(changed, int(stray), int(only_on_branch))

    def _remove(self, tree: Worktree) -> str:
        """Remove the tree; return its branch if that remains, otherwise "".

        A branch that refold has created is deleted if no commits are only on it.
        """
        has_own_commits = bool(self._state(tree).commits)
        self._run(self._root, "worktree", "remove", "--force", "--", tree.directory)
        tip = self._commit_of(self._root, tree.branch) if tree.branch else ""
        if not tip:  # there is no such branch
            return ""
        is_of_refold = tree.branch.startswith("refold/")
        if has_own_commits or not is_of_refold:
            return tree.branch
        self._run(self._root, "update-ref", "-d", f"refs/heads/{tree.branch}", tip)
        return ""

    def _count_changed(self, folder: str) -> int:
        """Return the number of files that are not committed. A submodule with files counts as
        one file.

        git must not inspect a submodule, because it would run the filters in its settings.
        """
        options = (
            "--porcelain",
            "-z",
            "--untracked-files=all",
            "--ignore-submodules=dirty",
        )
        count = self._run(folder, "status", *options).count("\0")  # one after each file
        for row in self._run(folder, "ls-files", "--stage", "-z").split("\0"):
            if row.startswith(_SUBMODULE_MODE):
                _, _, submodule = row.partition("\t")
                if _has_files(os.path.join(folder, submodule)):
                    count += 1
        return count

    def _commit_of(self, folder: str, name: str) -> str:
        """Return the commit to which `name`, HEAD or a branch, refers; "" if it has none."""
        named = name if name == "HEAD" else f"refs/heads/{name}"
        try:
            return self._run(folder, "rev-parse", "--verify", "-q", named).strip()
        except ToolFailed:
            return ""

    def _run(self, folder: str, *arguments: str) -> str:
        """Run git with all filters of the repository switched off, and return its output.

        Raises `ToolFailed` if git fails.
        """
        # If the repository has no filters, git reports an error, and prints nothing.
        _, printed_keys, _ = self._run_git(
            folder, "config", "-z", "--name-only", "--get-regexp", r"^filter\."
        )
        keys = dict.fromkeys(printed_keys.split("\0"))
        switched_off = tuple((key, _filter_off_value(key)) for key in keys if key)
        code, output, errors = self._run_git(folder, *arguments, extra=switched_off)
        if code:
            reason = " ".join(errors.split())[:_MAX_REASON_CHARS]
            raise ToolFailed(
                f"git {arguments[0]} failed in {escape_name(folder)}: {reason}"
            )
        return output

    def _run_git(
        self, folder: str, *arguments: str, extra: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, str, str]:
        """Run git with the `extra` settings, and return exit status, stdout and stderr."""
        try:
            process = programs.run(
                (self._programs.find("git"), *arguments),
                _TIMEOUT_SECONDS,
                cwd=folder,
                env=self._environment((*_SAFE_SETTINGS, *extra)),
            )
        except (OSError, programs.TimedOut) as error:
            raise ToolFailed(
                f"git could not be run in {escape_name(folder)}: {error}"
            ) from error
        return (
            process.returncode,
            process.stdout.decode(errors="replace"),
            process.stderr.decode(errors="replace"),
        )

    def _environment(self, settings: Sequence[tuple[str, str]]) -> Mapping[str, str]:
        """Return the environment for git with the git `settings`.

        Git settings and keys of this process are left out. The `settings` are passed as
        variables and not as options: a repository chooses the names of its filters, and in an
        option a "=" in such a name would begin the value.
        """
        variables = {"GIT_CONFIG_COUNT": str(len(settings))}
        for n, (key, value) in enumerate(settings):
            variables |= {f"GIT_CONFIG_KEY_{n}": key, f"GIT_CONFIG_VALUE_{n}": value}
        return {
            "PATH": self._programs.path,
            "HOME": "/nonexistent",
            "LC_ALL": "C",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            **variables,
        }


def _has_files(folder: str) -> bool:
    """Whether the folder has entries; False if it cannot be read."""
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False


def _filter_off_value(key: str) -> str:
    """Return the value that switches off a filter of the repository, which would run a
    program.
    """
    return "false" if key.endswith(".required") else ""
