"""Makes, inspects and removes git working trees: of subagents, and of sessions that enter one.

A working tree of a subagent is in our data directory; `named_worktrees` says where one is that
has a name. Each has a branch, which begins at the commit that is checked out. The user's own
working tree, index and other branches are never changed; no hook, filter or helper program of
the repository is run.
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
_SUBMODULE_MODE = "160000 "  # the beginning of a submodule's line
_SAFE_SETTINGS = (
    ("core.hooksPath", "/dev/null"), ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"), ("protocol.allow", "never"),
    ("submodule.recurse", "false"), ("gc.auto", "0"), ("maintenance.auto", "false"),
    ("safe.directory", "*"), ("advice.detachedHead", "false"),
)  # fmt: skip


class Worktree(Struct, frozen=True):
    """`base` is the commit at which its branch begins."""

    directory: str
    branch: str
    base: str


class TreeState(Struct, frozen=True):
    """What the removal of a working tree would lose, and what would remain."""

    changed: int = 0  # files that are not committed
    stray: int = 0  # commits that are on no branch and under no tag
    commits: int = 0  # commits that are on its branch alone

    @property
    def loss(self) -> str:
        """What would be lost, in words; "" if nothing."""
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
    """The working trees of one repository, that of the session's `directory`.

    All are in `place`, which is made when needed. Every method raises `ToolFailed`, with a
    sentence for the model or a person, without its period.
    """

    def __init__(self, place: Path, environ: Mapping[str, str], directory: str) -> None:
        self._place, self._directory = place, directory
        self._environ = environ
        self._alone = anyio.Lock()

    @cached_property
    def _programs(self) -> Programs:
        return Programs(self._environ, (self._directory,))

    def tree_of_child(self, session: str, child: str, base: str) -> Worktree:
        """The working tree of a child of this session; it need not exist."""
        root, *above = session.split("/")
        name = "-".join((*above, child))
        return Worktree(str(self._place / root / name), f"refold/{root}-{name}", base)

    async def base(self) -> str:
        """The commit that is checked out in the session's directory."""
        return await anyio.to_thread.run_sync(self._base_commit)

    async def make(self, tree: Worktree, inside: str) -> None:
        """Create the working tree, unless it exists, with the directory `inside` it."""
        async with self._alone:
            await anyio.to_thread.run_sync(self._make, tree, inside)

    async def remove_if_unchanged(self, tree: Worktree) -> bool:
        """Remove a working tree with its branch if nothing was changed in it. Return False
        if it was kept.
        """
        async with self._alone:
            return await anyio.to_thread.run_sync(self._remove_if_unchanged, tree)

    async def list_trees(self) -> Sequence[Worktree]:
        """The linked working trees of the repository, without its main one."""
        return await anyio.to_thread.run_sync(self._list_trees)

    async def has_branch(self, branch: str) -> bool:
        return bool(await anyio.to_thread.run_sync(self._commit, self._root, branch))

    async def state(self, tree: Worktree) -> TreeState:
        return await anyio.to_thread.run_sync(self._state, tree)

    async def remove(self, tree: Worktree) -> str:
        """Remove a working tree, whatever it contains. Returns the branch that stays,
        because it has commits of its own or is not refold's; or "".
        """
        async with self._alone:
            return await anyio.to_thread.run_sync(self._remove, tree)

    def child_directory(self, tree: Worktree) -> str:
        """The child's directory: the same folder of the tree that its parent works in."""
        way = os.path.relpath(os.path.realpath(self._directory), self._root)
        return os.path.normpath(os.path.join(tree.directory, way))

    @property
    def _root(self) -> str:
        return root_of(self._directory)

    def _base_commit(self) -> str:
        root = self._repository()
        try:
            return self._run(root, "rev-parse", "--verify", "HEAD^{commit}").strip()
        except ToolFailed as error:
            raise ToolFailed(
                f"The repository {escape_name(root)} has no commit to begin at: commit first "
                f"({error})"
            ) from error

    def _repository(self) -> str:
        root = self._root
        if not os.path.lexists(os.path.join(root, ".git")):
            raise ToolFailed(
                f"{escape_name(self._directory)} is not a git repository, so no working "
                "tree can be made"
            )
        from refold.place.guarded_paths import proven_repository  # few sessions need it

        if not proven_repository(root):
            raise ToolFailed(
                f"The .git in {escape_name(root)} leads to a repository that does not know this "
                "folder, so no working tree is made"
            )
        if not self._programs.find("git"):
            raise ToolFailed("git is not installed")
        return root

    def _make(self, tree: Worktree, inside: str) -> None:
        if not os.path.lexists(os.path.join(tree.directory, ".git")):
            self._make_place()
            self._run(self._root, "worktree", "prune")
            known = self._commit(self._root, tree.branch)
            new = ("--no-track", "-b", tree.branch, "--", tree.directory, tree.base)
            arguments = ("--", tree.directory, tree.branch) if known else new
            self._run(self._root, "worktree", "add", "--no-checkout", *arguments)
        if os.listdir(tree.directory) == [".git"]:
            # Only in the tree all of its filters are known: settings may depend on where
            # git runs and on the branch. So its files come after it is made.
            self._run(tree.directory, "reset", "--hard", "--quiet")
        if not below(os.path.realpath(inside), os.path.realpath(tree.directory)):
            raise ToolFailed(
                f"{escape_name(inside)} leads out of the working tree, by a link on the branch "
                f"{tree.branch}: work in the root of the repository, or take another branch"
            )
        os.makedirs(inside, exist_ok=True)

    def _make_place(self) -> None:
        try:
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_no_links(self._place)
        except OSError as error:
            place = escape_name(str(self._place))
            raise ToolFailed(f"No working tree in {place}: {error.strerror}") from error

    def _remove_if_unchanged(self, tree: Worktree) -> bool:
        if not os.path.isdir(tree.directory):
            return True
        changed = self._count_changed(tree.directory)
        head = self._commit(tree.directory, "HEAD")
        branch = self._commit(self._root, tree.branch)
        if changed or (head, branch) != (tree.base, tree.base):
            return False
        self._run(self._root, "worktree", "remove", "--force", "--", tree.directory)
        self._run(self._root, "update-ref", "-d", f"refs/heads/{tree.branch}", tree.base)
        return True

    def _list_trees(self) -> Sequence[Worktree]:
        output = self._run(self._repository(), "worktree", "list", "--porcelain", "-z")
        blocks = (block.split("\0") for block in output.strip("\0").split("\0\0"))
        trees = [
            {name: value for name, _, value in (row.partition(" ") for row in rows)}
            for rows in blocks
        ]
        return [
            Worktree(
                tree.get("worktree", ""),
                tree.get("branch", "").removeprefix("refs/heads/"),
                tree.get("HEAD", ""),
            )
            for tree in trees[1:]
        ]

    def _state(self, tree: Worktree) -> TreeState:
        changed = self._count_changed(tree.directory)
        every = ("--branches", "--tags", "--remotes")
        stray = self._run(tree.directory, "rev-list", "--count", "HEAD", "--not", *every)
        own = "0"
        if tree.branch and self._commit(self._root, tree.branch):
            named = (f"refs/heads/{tree.branch}", "--not", f"--exclude={tree.branch}")
            own = self._run(self._root, "rev-list", "--count", *named, *every)
        return TreeState(changed, int(stray), int(own))

    def _remove(self, tree: Worktree) -> str:
        commits = self._state(tree).commits
        self._run(self._root, "worktree", "remove", "--force", "--", tree.directory)
        tip = self._commit(self._root, tree.branch) if tree.branch else ""
        if not tip or commits or not tree.branch.startswith("refold/"):
            return tree.branch if tip else ""
        self._run(self._root, "update-ref", "-d", f"refs/heads/{tree.branch}", tip)
        return ""

    def _count_changed(self, folder: str) -> int:
        """How many files are not committed. A submodule with files counts as one.

        git must not look into a submodule: the filters that its settings name would run.
        """
        quiet = ("--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=dirty")
        files = self._run(folder, "status", *quiet).count("\0")
        staged = self._run(folder, "ls-files", "--stage", "-z").split("\0")
        modules = [
            row.partition("\t")[2] for row in staged if row.startswith(_SUBMODULE_MODE)
        ]
        return files + sum(_has_files(os.path.join(folder, module)) for module in modules)

    def _commit(self, folder: str, name: str) -> str:
        named = name if name == "HEAD" else f"refs/heads/{name}"
        try:
            return self._run(folder, "rev-parse", "--verify", "-q", named).strip()
        except ToolFailed:
            return ""

    def _run(self, folder: str, *arguments: str) -> str:
        _, filters, _ = self._run_git(
            folder, (), "config", "-z", "--name-only", "--get-regexp", r"^filter\."
        )
        keys = dict.fromkeys(filters.split("\0"))
        off = tuple((key, _filter_off_value(key)) for key in keys if key)
        code, output, complaint = self._run_git(folder, off, *arguments)
        if code:
            complaint = " ".join(complaint.split())[:300]
            raise ToolFailed(
                f"git {arguments[0]} failed in {escape_name(folder)}: {complaint}"
            )
        return output

    def _run_git(
        self, folder: str, extra: Sequence[tuple[str, str]], *arguments: str
    ) -> tuple[int, str, str]:
        """Exit status, stdout and stderr."""
        try:
            process = programs.run(
                (self._programs.find("git"), *arguments),
                _TIMEOUT_SECONDS,
                cwd=folder,
                env=self._environment((*_SAFE_SETTINGS, *extra)),
            )
            output, err = process.stdout, process.stderr
            return (
                process.returncode,
                output.decode(errors="replace"),
                err.decode(errors="replace"),
            )
        except (OSError, programs.TimedOut) as error:
            raise ToolFailed(
                f"git could not be run in {escape_name(folder)}: {error}"
            ) from error

    def _environment(self, settings: Sequence[tuple[str, str]]) -> Mapping[str, str]:
        """An environment without anything of ours: neither git settings nor keys.

        Settings are passed here, where names may contain any character: a repository names its
        filters.
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
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False


def _filter_off_value(key: str) -> str:
    """The value that switches off a filter of the repository, which would run a program."""
    return "false" if key.endswith(".required") else ""
