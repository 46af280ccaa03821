"""Lets a session enter and leave a git worktree, and makes its workspace there.

Settings, rules and trust stay those of the session's own directory; only files, commands,
checkpoints and instructions are taken from the worktree. `agents.named_worktrees` creates the
worktree; `turn_context` builds a turn for the workspace that this module returns.

The agent can change files of the worktree, so the settings in it do not apply. Entering builds
a new turn context, and changes none in place. No further path becomes writable: a session in a
subfolder of a repository does not get the repository's `.git`.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from refold.agents.named_worktrees import (
    NamedTree,
    belongs_to,
    check_name,
    find_tree_at,
    make_tree,
    place_of,
)
from refold.agents.worktree import TreeState, Worktree, Worktrees
from refold.app.workspace import Workspace, WorkspaceDirectories
from refold.config.paths import Paths, paths
from refold.config.project import read_project
from refold.config.settings import Settings
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput, ToolFailed
from refold.journal.events.child_events import WorktreeEntered, WorktreeLeft
from refold.journal.events.kinds import Event
from refold.journal.state.fold import View
from refold.journal.state.session_info import EnteredWorktree, SessionInfo
from refold.place.port import Snapshots
from refold.prompts.repository import root_of
from refold.session.recorder import Recorder
from refold.values.path_names import below
from refold.views.notices import worktree_left_text

_SUBAGENTS_RUNNING = "subagents are running: wait until they have ended, or stop them"
_NOT_ALONE = "other calls of this answer are not done yet: call it alone"
_COMMANDS_RUNNING = "{names} may still use it: stop what runs in the background first"


class Workspaces:
    """The workspaces of one start: `main`, and the workspaces in worktrees.

    `close` closes the workspaces in worktrees, but not `main`.
    """

    def __init__(
        self, settings: Settings, sites: Paths, environ: Mapping[str, str], main: Workspace
    ) -> None:
        self._settings, self._paths = settings, sites
        self._environ, self._main = environ, main
        self._known = dict[tuple[str, ...], Workspace]()
        self._snapshots = dict[tuple[str, str], Snapshots | None]()

    def workspace_of(self, session: SessionInfo) -> Workspace:
        """Return the workspace in the worktree that the session has entered.

        Each root in the repository is replaced by the same folder of the worktree, unless that
        folder is a link out of the worktree. Roots outside of the repository stay. Nothing else
        becomes writable.
        """
        tree = session.worktree
        assert tree is not None
        repository = root_of(self._main.directory)
        roots = [
            _path_in_tree(path, repository, tree.tree) for path in self._main.roots[1:]
        ]
        more = tuple(Path(path) for path in roots if path and os.path.isdir(path))
        key = (session.directory, *map(str, more))
        if key not in self._known:
            directories = WorkspaceDirectories(Path(session.directory), more)
            workspace = Workspace(
                self._settings, self._paths, self._environ, directories, main=self._main
            )
            self._known[key] = workspace
        return self._known[key]

    def snapshots(self, session: SessionInfo, id_: str) -> Snapshots | None:
        """Return the snapshots of a session in its worktree; None without checkpoints."""
        key = (id_, session.directory)
        if key not in self._snapshots:
            self._snapshots[key] = self.workspace_of(session).snapshots(id_)
        return self._snapshots[key]

    def close(self) -> None:
        for workspace in self._known.values():
            workspace.close()


class SessionWorktree:
    """Lets one session enter and leave git worktrees.

    `record` is the session's journal, and `directory` its own directory. A tool calls `enter`,
    `describe_loss` and `leave` (`tools.worktree.WorktreeSwitch`). The other methods are for the
    user, and raise `BadInput`.
    """

    def __init__(
        self, record: Recorder, directory: str, environ: Mapping[str, str]
    ) -> None:
        self._record, self._directory, self._environ = record, directory, environ
        self._trees = Worktrees(Path(directory), environ, directory)

    async def enter(self, name: str, branch: str, call: str) -> str:
        """Enter a worktree, and return a sentence for the model. Raises `ToolFailed`."""
        try:
            tree = await self._enter(name, branch, call)
        except (BadInput, ToolFailed) as error:
            raise ToolFailed(_to_sentence(error)) from error
        return (
            f"From the next step on you work in {tree.inside}, a git worktree on the branch "
            f"{tree.tree.branch}. What was not committed before is not in it."
        )

    async def describe_loss(self) -> tuple[str, str]:
        """Return the path of the current worktree, and what its removal would lose.

        The second text is "" if nothing would be lost.
        """
        try:
            tree = self._current_worktree()
        except BadInput as error:
            raise ToolFailed(_to_sentence(error)) from error
        state = await self._trees.state(_to_worktree(tree))
        return tree.tree, state.loss

    async def leave(self, *, remove: bool, call: str) -> str:
        """Leave the worktree, and return a sentence for the model. Raises `ToolFailed`."""
        try:
            return await self._leave(call, remove=remove)
        except BadInput as error:
            raise ToolFailed(_to_sentence(error)) from error

    async def list_worktrees(self) -> Sequence[tuple[Worktree, TreeState]]:
        """Return the worktrees of the repository, each with its state: what its removal would
        lose.

        Raises `BadInput` outside of a repository.
        """
        try:
            trees = await self._trees.list_trees()
        except ToolFailed as error:
            raise BadInput(str(error)) from error
        existing = [tree for tree in trees if await anyio.Path(tree.directory).is_dir()]
        return [(tree, await self._trees.state(tree)) for tree in existing]

    async def enter_now(self, name: str, branch: str = "") -> None:
        """Enter a worktree between two turns."""
        await self._enter(name, branch, call="")

    async def leave_now(self) -> None:
        await self._leave(call="", remove=False)

    async def remove(self, name: str, *, force: bool) -> str:
        """Remove a worktree, and return a sentence about the result.

        The `name` "" means the current worktree, which the session leaves. Without `force`,
        raises `BadInput` if work would be lost.
        """
        tree = await self._find(name) if name else _to_worktree(self._current_worktree())
        state = await self._trees.state(tree)
        if state.loss and not force:
            raise BadInput(f"{tree.directory} has {state.loss}, which would be lost")
        entered = self._record.view.session.worktree
        if entered and find_tree_at(entered.tree, (tree,)):
            return await self._leave(call="", remove=True)
        self._check_unused(tree.directory)
        branch = await self._trees.remove(tree)
        branch_text = f"; its work is on the branch {branch}" if branch else ""
        return f"The worktree {tree.directory} is removed{branch_text}."

    async def _enter(self, name: str, branch: str, call: str) -> NamedTree:
        """Create or find the worktree `name`, and record that `call` enters it."""
        self._check_can_switch(self._record.view, call)
        named = check_name(name or branch.replace("/", "-"))
        named_tree = await make_tree(named, self._directory, self._environ, branch)
        await self._append(_to_event(named_tree), call)
        return named_tree

    async def _leave(self, call: str, *, remove: bool) -> str:
        """Leave the worktree, and delete it if `remove`. Return a sentence about the result."""
        self._check_can_switch(self._record.view, call)
        entered = self._current_worktree()
        if remove:
            self._check_unused(entered.tree)
            branch = await self._trees.remove(_to_worktree(entered))
        else:
            branch = entered.branch
        outcome = "removed" if remove else "kept"
        left = WorktreeLeft(entered.left, entered.tree, outcome, branch)
        # A worktree that is removed must be left, even if a turn has begun meanwhile.
        await self._append(left, call, always=remove)
        return worktree_left_text(left)

    async def _append(self, event: Event, call: str, *, always: bool = False) -> None:
        """Record `event`, which changes the directory of the session.

        `call` is the id of the tool call, or "". Unless `always`, check again that the session
        may change its directory.
        """

        def make_events(view: View) -> Sequence[Event]:
            if not always:
                self._check_can_switch(view, call)
            return (event,)

        await self._record.append_if(
            make_events, kept=True, author="agent" if call else "person"
        )

    def _check_can_switch(self, view: View, call: str) -> None:
        """Raise `BadInput` if the session cannot change its directory now.

        `call` is the id of the tool call that asks for it, or "".
        """
        open_calls = [step.call.id for step in view.conversation.calls if not step.result]
        if call and open_calls != [call]:
            raise BadInput(_NOT_ALONE)
        if not call and view.turn.seq:
            raise BadInput("a turn of this session is running: wait, or stop it")
        if view.children.running:
            raise BadInput(_SUBAGENTS_RUNNING)

    def _check_unused(self, tree: str) -> None:
        """Raise `BadInput` if a background command runs in this worktree."""
        running = self._record.view.background.running
        names = [
            command.name for command in running if below(command.started.directory, tree)
        ]
        if names:
            raise BadInput(_COMMANDS_RUNNING.format(names=", ".join(names)))

    def _current_worktree(self) -> EnteredWorktree:
        """Return the worktree that the session is in. Raises `BadInput` if it is in none."""
        worktree = self._record.view.session.worktree
        if worktree is None:
            raise BadInput("this session works in no worktree")
        return worktree

    async def _find(self, name: str) -> Worktree:
        """Return the worktree `name` of this repository. Raises `BadInput` if there is none."""
        place = place_of(check_name(name), self._directory)
        if tree := find_tree_at(place, await self._trees.list_trees()):
            return tree
        raise BadInput(
            f"there is no worktree {name!r}: {place} does not belong to this repository"
        )


def missing_worktree_event(session: SessionInfo) -> WorktreeLeft | None:
    """Return the event that leaves the worktree of a session if it is gone, otherwise None."""
    tree = session.worktree
    if tree is None:
        return None
    has_links = any(os.path.realpath(p) != p for p in (tree.tree, session.directory))
    exists = os.path.isdir(session.directory) and not has_links
    if exists and belongs_to(tree.tree, root_of(tree.left)):
        return None
    return WorktreeLeft(tree.left, tree.tree, outcome="gone")


def shares_trust(inside: str, directory: str) -> bool:
    """Whether the settings files in the worktree `inside` count as trusted.

    They do if the user trusts the repository of `directory`, and each settings file of the
    worktree equals the trusted one in `directory`, byte for byte.
    """
    places = paths(os.environ)
    folders = TrustedFolders(places.folders)
    root = root_of(directory)
    if folders.find_trusted_above(directory, root) != root:
        return False
    inner, trusted = (
        read_project(Path(path), places.settings) for path in (inside, directory)
    )
    if inner.problem:
        return False
    if not inner.files:
        return True
    is_unchanged = inner.hashes.items() <= trusted.hashes.items()
    return is_unchanged and folders.state(trusted) == "trusted"


def _to_event(named_tree: NamedTree) -> WorktreeEntered:
    inside, tree = map(os.path.realpath, (named_tree.inside, named_tree.tree.directory))
    return WorktreeEntered(inside, tree, named_tree.tree.branch, named_tree.tree.base)


def _to_worktree(entered: EnteredWorktree) -> Worktree:
    return Worktree(entered.tree, entered.branch, entered.base)


def _to_sentence(error: BadInput | ToolFailed) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def _path_in_tree(path: str, repository: str, tree: str) -> str:
    """Return the path in the worktree `tree` for a path of the repository.

    Return "" if the path in the worktree is a link out of the worktree. A path outside of the
    repository is returned unchanged.
    """
    if not below(path, repository):
        return path
    moved = os.path.realpath(os.path.join(tree, os.path.relpath(path, repository)))
    return moved if below(moved, os.path.realpath(tree)) else ""
