"""Opens the user's session, and the sessions of its subagents.

A subagent works in the directory of its parent, with the same settings, unless it has a working
tree of its own. `agents` decides what a subagent may do and how long it lives.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from refold._version import __version__
from refold.agents.child import ChildSpec, TreePosition
from refold.agents.children import Children
from refold.agents.worktree import Worktrees
from refold.app.lazy_dependencies import LazyBackground
from refold.app.python_setup import PythonSetup, SessionPython, memo_directory
from refold.app.shared_resources import SharedResources
from refold.app.system_prompt import SessionGround, SystemPromptBuilder
from refold.app.tool_dependencies import SessionResources
from refold.app.turn_context import MovingTurnContext, TurnContext
from refold.app.workspace import Workspace, WorkspaceDirectories
from refold.config.paths import Paths, login_name
from refold.journal.events.kinds import Event
from refold.journal.session_index import SessionIndex
from refold.journal.state.fold import View
from refold.journal.state.session_info import SessionDirectories, SessionInfo
from refold.journal.store.port import Store
from refold.place.port import Snapshots
from refold.rlm.initial_variables import InitialVariables
from refold.rlm.rate_limit import RateLimit
from refold.session.recorder import Recorder
from refold.session.session import Opening, Session, SessionOptions
from refold.tools.contract import FittedImage, ImageData


class Storage(Struct, frozen=True):
    """Where the sessions of a start are stored.

    `store` returns the store of a session by its id: a store of `sessions`, or a store in
    memory that ends with this process.
    """

    paths: Paths
    environ: Mapping[str, str]
    sessions: SessionIndex
    store: Callable[[str], Store]
    rate: RateLimit  # limits the models that code calls


class SessionOpener:
    """Opens the sessions that work in one directory. They share `resources`."""

    def __init__(
        self, shared: SharedResources, resources: SessionResources, storage: Storage
    ) -> None:
        self._shared, self._resources, self._storage = shared, resources, storage

    async def open(
        self,
        id_: str,
        snapshots: Snapshots | None,
        session_options: SessionOptions,
        child: ChildSpec | None = None,
        *,
        read_only: bool = False,
    ) -> tuple[Session, MovingTurnContext]:
        """Lock and open a session, which may be new.

        `child` is set for a subagent. With `read_only`, the session is locked when it gets its
        first event.
        """
        shared, storage = self._shared, self._storage
        durable = shared.settings.durability == "kept"
        record = Recorder(
            storage.store(id_), masks=shared.models.masks, durable=durable, fit=_fit_image,
            person="" if child else login_name(),
        )  # fmt: skip
        record.claim = child.claim if child else 0
        record.at_close = shared.workspace.claim(id_, lambda: record.epoch)
        if shared.traces is not None:
            shared.traces.listen(id_, record)
        own_context = self.turn_context(record, id_, snapshots, child)
        turn_context = MovingTurnContext(
            own_context, partial(self._worktree_context, record, id_, own_context)
        )
        folder = shared.workspace.directory
        shared.models.connections.log(
            "debug" if child else "info", f"opened in {folder} by refold {__version__}", id_
        )
        session = Session(record, turn_context, session_options)
        place = SessionDirectories(folder, shared.workspace.roots[1:])
        resume_hooks = shared.hooks is not None and shared.hooks.run_at_resume
        opening = Opening(place, __version__, id_, resume_hooks=resume_hooks)
        session.prepare(opening, _leave_lost_worktree)
        if read_only:
            await record.fold_without_lock()
        else:
            await record.open()
        if snapshots is not None and not child:
            await shared.workspace.join(id_, record, read_only=read_only)
        if shared.traces is not None:
            await shared.traces.catch_up(id_, record)
        session.background = turn_context.background
        if shared.hooks is not None:
            session.at_end = turn_context.at_end
        return session, turn_context

    def turn_context(
        self,
        record: Recorder,
        id_: str,
        snapshots: Snapshots | None = None,
        child: ChildSpec | None = None,
    ) -> TurnContext:
        """Return the context that a turn of this session would get now.

        The session need not be open. `child` is set for a subagent.
        """
        shared, storage = self._shared, self._storage
        limits = shared.settings.subagents
        root_position = TreePosition(
            deepest=limits.max_depth,
            at_once=limits.max_concurrent,
            total=limits.max_per_turn,
        )
        trees = Worktrees(
            storage.paths.data / "worktrees", storage.environ, shared.workspace.directory
        )
        children = Children(
            record,
            id_,
            self._open_child,
            lambda name: shared.agents.find(name, "child"),
            trees,
            child.position if child else root_position,
        )
        python = self._session_python(record, id_, children, child)
        resources = replace(
            self._resources,
            snapshots=snapshots,
            python=python,
            sessions=storage.sessions if shared.options.keep else None,
        )
        return TurnContext(shared, resources, record, id_, children, child)

    def _session_python(
        self, record: Recorder, id_: str, children: Children, child: ChildSpec | None
    ) -> SessionPython:
        """Return what runs the Python code of a session, or of the subagent `child`."""
        shared, paths = self._shared, self._storage.paths
        directory = shared.workspace.directory
        setup = PythonSetup(
            shared.settings.python,
            directory,
            self._storage.rate,
            self._storage.sessions,
            memo_directory(paths.data, directory),
        )
        initial_variables = shared.options.initial_variables
        if child:
            initial_variables = InitialVariables(dict(child.context), child.attached)
        depth = child.position.coded if child else 0
        return SessionPython(setup, record, id_, children, initial_variables, depth)

    @asynccontextmanager
    async def _open_child(self, child: ChildSpec) -> AsyncGenerator[Session]:
        """Open a subagent's session. In another directory it gets a workspace of its own."""
        # `mode` and `given` are choices of the user, which apply to a child through its parent.
        # No notes are made of a child, because it has no messages of the user.
        session_options = SessionOptions(
            question=self._shared.settings.limits.question_seconds or None, remember=False
        )
        if not child.directory:
            session, _ = await self.open(
                child.id, snapshots=None, session_options=session_options, child=child
            )
            async with session:
                yield session
            return
        workspace = self._child_workspace(child)
        try:
            # A file that is trusted in the parent's directory is trusted in the worktree.
            trusted = bool(self._resources.system_prompt.trust_root)
            opener = self._with_workspace(workspace, trusted=trusted)
            keep = self._shared.options.keep
            snapshots_name = child.id.replace("/", "-")
            snapshots = workspace.snapshots(snapshots_name) if keep else None
            session, _ = await opener.open(child.id, snapshots, session_options, child)
            async with session:
                yield session
        finally:
            workspace.close()

    def _child_workspace(self, child: ChildSpec) -> Workspace:
        """Return the workspace of a subagent that works in another directory."""
        shared, storage = self._shared, self._storage
        roots = WorkspaceDirectories(Path(child.directory), tuple(map(Path, child.roots)))
        return Workspace(
            shared.settings, storage.paths, storage.environ, roots, main=shared.workspace
        )

    def _worktree_context(
        self, record: Recorder, id_: str, own_context: TurnContext, session: SessionInfo
    ) -> TurnContext:
        """Return the turn context of a session in the worktree that it has entered.

        `own_context` is the context in the session's own directory.
        """
        from refold.app.entered_worktree import shares_trust

        shared = self._shared
        assert shared.workspaces is not None  # a session of an app has them
        workspaces = shared.workspaces()
        trusted = bool(self._resources.system_prompt.trust_root) and (
            shared.options.trust or shares_trust(session.directory, session.own_directory)
        )
        opener = self._with_workspace(workspaces.workspace_of(session), trusted=trusted)
        opener = opener._with_background(own_context.background)
        snapshots = workspaces.snapshots(session, id_) if shared.options.keep else None
        return opener.turn_context(record, id_, snapshots)

    def _with_background(self, background: LazyBackground) -> "SessionOpener":
        resources = replace(self._resources, background=background)
        return SessionOpener(self._shared, resources, self._storage)

    def _with_workspace(self, workspace: Workspace, *, trusted: bool) -> "SessionOpener":
        """Return a copy of this opener whose sessions work in `workspace`."""
        shared, storage = self._shared, self._storage
        ground = SessionGround(
            roots=workspace.roots,
            trust=trusted,
            like=self._resources.system_prompt.trust_source if trusted else "",
            why_unreadable=workspace.files.why_unreadable,
            elsewhere=workspace.elsewhere,
        )
        system_prompt = SystemPromptBuilder(
            shared.settings, storage.paths, storage.environ, ground
        )
        resources = replace(self._resources, system_prompt=system_prompt)
        return SessionOpener(replace(shared, workspace=workspace), resources, storage)


def _leave_lost_worktree(view: View) -> Sequence[Event]:
    """Return the event that leaves a session's worktree, if the worktree no longer exists."""
    if view.session.worktree is None:
        return ()
    from refold.app.entered_worktree import missing_worktree_event

    lost = missing_worktree_event(view.session)
    return () if lost is None else (lost,)


def _fit_image(image: ImageData) -> FittedImage:
    from refold.tools.images import fit_image  # imported late: few sessions have an image

    return fit_image(image)
