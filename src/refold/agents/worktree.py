"""Git working trees for children that change files apart from their parent's.

A working tree is in our data directory and has a branch of its own, which begins at the commit
that is checked out. The user's own working tree, index and branches are never changed; no hook,
filter or helper program of the repository is run.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from refold import programs
from refold.errors import ToolFailed
from refold.programs import Programs
from refold.prompts.repository import root_of
from refold.safe_open import unlinked
from refold.values.printable_names import escaped

_SECONDS = 300.0
_PLAIN = (
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


class Worktrees:
    """The working trees of the children of one session, which works in `directory`.

    All are in `place`, which is made when needed. Every method raises `ToolFailed`, with a
    sentence for the model.
    """

    def __init__(self, place: Path, environ: Mapping[str, str], directory: str) -> None:
        self._place, self._directory = place, directory
        found = Programs(environ, (directory,))
        self._git, self._path = found.find("git"), found.path
        self._alone = anyio.Lock()

    def named(self, session: str, child: str, base: str) -> Worktree:
        """The working tree of a child of this session; it need not exist."""
        root, *above = session.split("/")
        name = "-".join((*above, child))
        return Worktree(str(self._place / root / name), f"refold/{root}-{name}", base)

    async def base(self) -> str:
        """The commit that is checked out in the session's directory."""
        return await anyio.to_thread.run_sync(self._base)

    async def make(self, tree: Worktree, inside: str) -> None:
        """Create the working tree, unless it exists, with the directory `inside` it."""
        async with self._alone:
            await anyio.to_thread.run_sync(self._make, tree, inside)

    async def removed(self, tree: Worktree) -> bool:
        """Remove it with its branch if nothing was changed. False: it was kept."""
        async with self._alone:
            return await anyio.to_thread.run_sync(self._removed, tree)

    def inside(self, tree: Worktree) -> str:
        """The child's directory: the same folder of the tree that its parent works in."""
        way = os.path.relpath(os.path.realpath(self._directory), self._root)
        return os.path.normpath(os.path.join(tree.directory, way))

    @property
    def _root(self) -> str:
        return root_of(self._directory)

    def _base(self) -> str:
        root = self._root
        if not os.path.lexists(os.path.join(root, ".git")):
            raise ToolFailed(
                f"{escaped(self._directory)} is not a git repository, so no working "
                "tree can be made: call task without worktree."
            )
        if not self._git:
            raise ToolFailed("git is not installed: call task without worktree.")
        try:
            return self._run(root, "rev-parse", "--verify", "HEAD^{commit}").strip()
        except ToolFailed as error:
            raise ToolFailed(
                f"The repository {escaped(root)} has no commit to begin at: commit first, or "
                f"call task without worktree. ({error})"
            ) from error

    def _make(self, tree: Worktree, inside: str) -> None:
        if not os.path.lexists(os.path.join(tree.directory, ".git")):
            self._make_place()
            self._run(self._root, "worktree", "prune")
            known = self._commit(self._root, tree.branch)
            new = ("--no-track", "-b", tree.branch, tree.directory, tree.base)
            how = (tree.directory, tree.branch) if known else new
            self._run(self._root, "worktree", "add", *how)
        os.makedirs(inside, exist_ok=True)

    def _make_place(self) -> None:
        try:
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            unlinked(self._place)
        except OSError as error:
            where = escaped(str(self._place))
            raise ToolFailed(f"No working tree in {where}: {error.strerror}.") from error

    def _removed(self, tree: Worktree) -> bool:
        if not os.path.isdir(tree.directory):
            return True
        changed = self._run(
            tree.directory, "status", "--porcelain", "--untracked-files=all"
        )
        head = self._commit(tree.directory, "HEAD")
        branch = self._commit(self._root, tree.branch)
        if changed.strip() or (head, branch) != (tree.base, tree.base):
            return False
        self._run(self._root, "worktree", "remove", "--force", tree.directory)
        self._run(self._root, "update-ref", "-d", f"refs/heads/{tree.branch}", tree.base)
        return True

    def _commit(self, folder: str, name: str) -> str:
        named = name if name == "HEAD" else f"refs/heads/{name}"
        try:
            return self._run(folder, "rev-parse", "--verify", "-q", named).strip()
        except ToolFailed:
            return ""

    def _run(self, folder: str, *arguments: str) -> str:
        _, filters, _ = self._call(
            folder, (), "config", "-z", "--name-only", "--get-regexp", r"^filter\."
        )
        keys = dict.fromkeys(filters.split("\0"))
        off = tuple((key, _off(key)) for key in keys if key)
        code, said, complaint = self._call(folder, off, *arguments)
        if code:
            complaint = " ".join(complaint.split())[:300]
            raise ToolFailed(f"git {arguments[0]} failed in {escaped(folder)}: {complaint}")
        return said

    def _call(
        self, folder: str, more: Sequence[tuple[str, str]], *arguments: str
    ) -> tuple[int, str, str]:
        """Exit status, stdout and stderr."""
        try:
            done = programs.run(
                (self._git, *arguments),
                _SECONDS,
                cwd=folder,
                env=self._environment((*_PLAIN, *more)),
            )
            out, err = done.stdout, done.stderr
            return (
                done.returncode,
                out.decode(errors="replace"),
                err.decode(errors="replace"),
            )
        except (OSError, programs.TimedOut) as error:
            raise ToolFailed(
                f"git could not be run in {escaped(folder)}: {error}"
            ) from error

    def _environment(self, settings: Sequence[tuple[str, str]]) -> Mapping[str, str]:
        """An environment without anything of ours: neither git settings nor keys.

        Settings are passed here, where names may contain any character: a repository names its
        filters.
        """
        given = {"GIT_CONFIG_COUNT": str(len(settings))}
        for n, (key, value) in enumerate(settings):
            given |= {f"GIT_CONFIG_KEY_{n}": key, f"GIT_CONFIG_VALUE_{n}": value}
        return {
            "PATH": self._path,
            "HOME": "/nonexistent",
            "LC_ALL": "C",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            **given,
        }


def _off(key: str) -> str:
    """The value that switches off a filter of the repository, which would run a program."""
    return "false" if key.endswith(".required") else ""
