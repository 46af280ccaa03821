"""Many sessions in one process, for clients that come and go.

Each session is opened when a client asks for it, runs its turns with or without a watcher,
and is closed when it is idle. One conversation is a `SharedSession`. The command line
supplies how to start in a directory (`LaunchAt`); lists and names of all sessions are in
`stored_sessions`.
"""

import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct
from msgspec.structs import replace

from refold.client.choices import Offer, offers
from refold.client.deletion import delete_session
from refold.client.launch import Launch
from refold.client.protocol import SwitchTeams
from refold.client.remote_session import attached
from refold.client.resume import resumed_in
from refold.client.session import Session
from refold.client.shared_session import SharedSession, problem
from refold.client.stored_sessions import StoredSessions
from refold.errors import BadInput, Held, RefoldError, first
from refold.journal.session_index import SessionIndex
from refold.place.port import Editor
from refold.values.modes import MODES, Effort
from refold.views.stream_json.documents import Error
from refold.views.stream_json.snapshot import Status

IDLE = 60.0  # seconds without a client and a turn, after which a conversation is closed
_STOPPED = "the server was stopped"


class NewConversation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a conversation begins with; "" is as in the settings.

    `workspace` is a directory on this machine, "": that of the server. With
    `own_workspace` it is a new one, which belongs to this conversation.
    """

    workspace: str = ""
    own_workspace: bool = False
    model: str = ""
    agent: str = ""
    preset: str = ""
    system_prompt: str = ""
    effort: Effort = ""
    mode: str = ""
    trust: bool = False  # what lies in that directory counts, this time
    name: str = ""
    log_requests: bool = False  # record each model request and response as it is sent
    teams: bool = False  # the agent may lead a team


class EditorConversation(NewConversation, frozen=True, kw_only=True):
    """What an editor hands over with a session, beside what any program may say.

    `mcp_servers` are its user's, as .mcp.json says them; `roots` are more directories.
    `editor` has files of them open.
    """

    roots: tuple[str, ...] = ()
    mcp_servers: Mapping[str, object] = {}
    editor: Editor | None = None


# A start in a directory with more roots. It reads files: it is called in a thread.
LaunchAt: TypeAlias = Callable[[Path, Sequence[Path], NewConversation], Launch]


class HostPaths(Struct, frozen=True):
    """`directory` is where conversations work that name none, `state` a directory of ours,
    `checkpoints` that of the snapshots of workspaces."""

    directory: Path
    state: Path
    checkpoints: Path

    @property
    def workspaces(self) -> Path:
        return self.state / "workspaces"


class Conversation(SharedSession):
    """One that is open here. `run` does its turns."""

    def __init__(self, session: Session, launch: Launch) -> None:
        super().__init__(session, self._stir)
        self.launch, self._news = launch, anyio.Event()
        self._closing = False
        self.idle_since = anyio.current_time()

    @property
    def busy(self) -> bool:
        """A turn or a background command runs, or a client follows it."""
        session = self.session
        beside = bool(session.view.background.running)
        at_work = session.running or session.compacting or not session.idle or beside
        return bool(self.feed.followers) or (at_work and not self.cut_off)

    async def notices(self) -> Sequence[str]:
        """What the user must know about it, once."""
        return await to_thread.run_sync(self.session.notices)

    async def run(self) -> None:
        """Do what is ordered, until it is closed."""
        forget = self.session.on_event(lambda _: self._stir())
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self.feed.run)
                await self._work()
                self.feed.close()
        finally:
            forget()
            with anyio.CancelScope(shield=True):
                await self.launch.aclose()
            self.launch.finish_notes()

    async def close(self, reason: str = "") -> None:
        """Stop the turn, if a reason is given, and let `run` end."""
        if reason:
            self.session.forget_orders()
            with suppress(RefoldError):
                await self.session.interrupt(reason=reason)
        self._closing = True
        self._stir()

    def _stir(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def _work(self) -> None:
        while True:
            news = self._news
            try:
                if not self.cut_off and await self.session.step():
                    self.idle_since = anyio.current_time()
                    continue
            except (
                RefoldError
            ) as error:  # the disk, or the model: the next order tries again
                self.feed.tell(problem(error))
            if self._closing:
                return
            await news.wait()


class JoinedConversation(Conversation):
    """One that another process has open: its turns run there, and clients of both see them."""

    def __init__(self, session: Session, launch: Launch, holder: str) -> None:
        super().__init__(session, launch)
        self._holder = holder

    @property
    def busy(self) -> bool:
        return bool(self.feed.followers)

    def status(self) -> Status:
        return replace(super().status(), held_by=self._holder)

    async def close(self, reason: str = "") -> None:
        """Leave it. What runs there goes on."""
        await super().close()

    async def _work(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._until_it_ends)
            while not self._closing:
                await self._news.wait()
            group.cancel_scope.cancel()

    async def _until_it_ends(self) -> None:
        with suppress(BadInput):  # says that it has ended
            while True:
                await self.session.changed(after=self.session.view.seq)
        self._closing = True
        self._stir()


class Host:
    """Conversations by their id. Use it in `async with host.running()`."""

    def __init__(self, home: SessionIndex, paths: HostPaths, launch_at: LaunchAt) -> None:
        self.home, self.paths = home, paths
        self.stored = StoredSessions(home)
        self._launch_at = launch_at
        self._there = dict[str, Conversation]()
        self._opening = anyio.Lock()
        self._group: TaskGroup | None = None
        self._ended = anyio.Event()

    @asynccontextmanager
    async def running(
        self, *, drain: bool = False, why: str = _STOPPED
    ) -> AsyncGenerator[None]:
        """While in here, conversations can be opened. Then their turns are stopped, and
        their journals say `why`; or, to `drain`, finished.
        """
        async with anyio.create_task_group() as self._group:
            self._group.start_soon(self._close_idle)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    for each in tuple(self._there.values()):
                        await each.close("" if drain else why)
                    while self._there:
                        await self._next_end()
                self._group.cancel_scope.cancel()

    def conversation(self, id_: str) -> Conversation | None:
        """The one with this id, if it is open here."""
        return self._there.get(id_)

    @property
    def conversations(self) -> Sequence[Conversation]:
        """Those that are open here."""
        return tuple(self._there.values())

    async def create(self, wanted: NewConversation) -> Conversation:
        """Begin a conversation. Raises `BadInput` for what cannot be."""
        directory = await to_thread.run_sync(self._directory, wanted)
        launch = await to_thread.run_sync(self._launch_at, directory, (), wanted)
        try:
            _check(launch, wanted)
            session = Session(launch, await launch.start())
            await _choose(session, wanted)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await launch.aclose()
            raise
        self._note(session.id, wanted)
        return self._begun(session, launch)

    async def open(self, id_: str, given: EditorConversation | None = None) -> Conversation:
        """The conversation with this whole id; joined, where another process has it.

        `given` is what an editor hands over with it, where it is not open yet. Raises `Held`
        where that process cannot be joined.
        """
        async with self._opening:
            if (there := self._there.get(id_)) is not None:
                return there
            where = await to_thread.run_sync(
                resumed_in, self.home, id_, self.paths.directory
            )
            wanted = _with(self._noted(id_), given)
            launch = await to_thread.run_sync(
                self._launch_at, where.directory, where.roots, wanted
            )
            try:
                session = Session(launch, await launch.resume(id_))
            except Held as held:
                return await self._join(id_, launch, held)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await launch.aclose()
                raise
            return self._begun(session, launch)

    async def _join(self, id_: str, launch: Launch, held: Held) -> Conversation:
        assert self._group is not None, "it is used in `running`"
        holder = await to_thread.run_sync(self.stored.holder, id_)
        try:
            return await self._group.start(self._run_joined, id_, launch, holder)
        except Held:
            await launch.aclose()
            raise held from None  # it says who has it

    async def _run_joined(
        self,
        id_: str,
        launch: Launch,
        holder: str,
        *,
        task_status: TaskStatus[Conversation],
    ) -> None:
        async with attached(launch, id_) as session:
            made = JoinedConversation(session, launch, holder)
            self._there[id_] = made
            task_status.started(made)
            await self._run(id_, made)

    async def offers(self, what: str) -> Sequence[Offer]:
        """What can be chosen for a new conversation in the directory of the server."""
        launch = await to_thread.run_sync(
            self._launch_at, self.paths.directory, (), NewConversation()
        )
        try:
            return await to_thread.run_sync(offers, launch, what)
        finally:
            await launch.aclose()

    async def delete(self, id_: str) -> None:
        """Delete it for good. Raises `Held` while another process has it."""
        await self.close(id_)
        await to_thread.run_sync(delete_session, self.home, self.paths.checkpoints, id_)
        await to_thread.run_sync(partial(self._note_file(id_).unlink, missing_ok=True))

    async def close(self, id_: str) -> None:
        """Close it here, if it is open; its turn is stopped."""
        if (there := self._there.get(id_)) is not None:
            await there.close(_STOPPED)
            while self._there.get(id_) is there:
                await self._next_end()

    def _begun(self, session: Session, launch: Launch) -> Conversation:
        made = Conversation(session, launch)
        self._there[session.id] = made
        assert self._group is not None, "it is used in `running`"
        self._group.start_soon(self._run, session.id, made)
        return made

    async def _run(self, id_: str, conversation: Conversation) -> None:
        try:
            await conversation.run()
        except Exception as error:  # a bug in one conversation must not end the others
            said = f"refold itself failed: {type(error).__name__}: {first(error)}"
            conversation.feed.tell(Error(kind="failure", reason=said))
            conversation.feed.close()
        finally:
            del self._there[id_]
            self._ended.set()

    async def _next_end(self) -> None:
        self._ended = anyio.Event()
        await self._ended.wait()

    async def _close_idle(self) -> None:
        while True:
            await anyio.sleep(IDLE / 4)
            now = anyio.current_time()
            for each in self.conversations:
                if each.busy:
                    each.idle_since = now
                elif now - each.idle_since > IDLE:
                    await each.close()

    def _directory(self, wanted: NewConversation) -> Path:
        if wanted.own_workspace:
            if wanted.workspace:
                raise BadInput("give a workspace, or own_workspace, and not both")
            self.paths.workspaces.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = self.paths.workspaces / self.home.new_id(time.time())
            made.mkdir(mode=0o700)
            return made
        directory = Path(wanted.workspace).expanduser() if wanted.workspace else None
        if directory is None:
            return self.paths.directory
        if not directory.is_absolute() or not directory.is_dir():
            raise BadInput(f"{wanted.workspace!r} is not a directory on this machine")
        return Path(os.path.realpath(directory))

    def _note(self, id_: str, wanted: NewConversation) -> None:
        """Keep what no event of the session says, for the next process that opens it."""
        kept = NewConversation(
            preset=wanted.preset,
            system_prompt=wanted.system_prompt,
            log_requests=wanted.log_requests,
        )
        if kept == NewConversation():
            return
        file = self._note_file(id_)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.encode(kept))

    def _noted(self, id_: str) -> NewConversation:
        try:
            return msgspec.json.decode(
                self._note_file(id_).read_bytes(), type=NewConversation
            )
        except (OSError, msgspec.DecodeError):
            return NewConversation()

    def _note_file(self, id_: str) -> Path:
        return self.paths.state / "conversations" / f"{id_}.json"


def _with(noted: NewConversation, given: EditorConversation | None) -> NewConversation:
    if given is None:
        return noted
    return replace(
        given,
        preset=noted.preset,
        system_prompt=noted.system_prompt,
        log_requests=noted.log_requests,
    )


def _check(launch: Launch, wanted: NewConversation) -> None:
    if wanted.mode and wanted.mode not in MODES:
        raise BadInput(f"{wanted.mode!r} is not a mode: {', '.join(MODES)}")
    launch.check_model()


async def _choose(session: Session, wanted: NewConversation) -> None:
    """Record what was chosen, so that it holds wherever the session is resumed."""
    if wanted.agent:
        await session.set_agent(wanted.agent)
    if wanted.model:
        await session.set_model(wanted.model)
    if wanted.effort:
        await session.set_effort(wanted.effort)
    if wanted.teams:
        await session.send(SwitchTeams(on=True))
    if wanted.mode:
        await session.set_mode(MODES[wanted.mode])
    if wanted.name:
        await session.rename(wanted.name)
