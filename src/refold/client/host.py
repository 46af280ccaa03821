"""Keeps many sessions open in one process, for clients that connect and leave.

A session is opened when a client requests it: its journal is folded, and read again when
another process writes it. Opening writes nothing and takes no lock. Orders are placed in
`Orders`; the `session_worker` of this process leases the session and carries them out, with
or without a client. A `Conversation` is one such session. `LaunchAt` starts refold in a
directory.
"""

import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct

from refold.client.choices import Offer, offers
from refold.client.deletion import delete_session
from refold.client.elsewhere import (
    AddressRights,
    address_of_directory,
    resolve_address,
    stand_in_directory,
)
from refold.client.host_ports import LocalOrders, LocalRunner, SessionClaim
from refold.client.hosted_conversation import (
    Conversation,
    JoinedConversation,
    OwnConversation,
    Ports,
)
from refold.client.launch import Launch, OpenedSession, finish_notes
from refold.client.list_watch import ListWatch
from refold.client.new_conversation import (
    EditorConversation,
    NewConversation,
    check_choices,
    record_choices,
    with_setup,
)
from refold.client.own_workspace import make_workspace
from refold.client.remote_session import attach
from refold.client.resume import SessionDirectory, find_directory
from refold.client.session import Session
from refold.client.session_socket import socket_path
from refold.client.session_worker import IDLE_SECONDS, SessionWorker
from refold.client.stored_sessions import StoredSessions
from refold.errors import BadInput, Held, JournalError
from refold.journal.session_index import SessionIndex
from refold.values.path_names import below

POLL_SECONDS = 2.0  # between two checks for entries of other processes
_STOPPED = "the server was stopped"

# Starts refold in a directory with additional roots. It reads files: call it in a thread.
LaunchAt: TypeAlias = Callable[[Path, Sequence[Path], NewConversation], Launch]


class HostPaths(Struct, frozen=True):
    """The directories of a host: by default a session works in `directory`.

    `state` has refold's own files, and `checkpoints` the snapshots of workspaces.
    Conversations must begin in or below one of the `roots`; without roots they may begin
    anywhere. `rights` are the rules for workspaces on other machines, which are below no
    root.
    """

    directory: Path
    state: Path
    checkpoints: Path
    roots: tuple[Path, ...] = ()
    rights: AddressRights = AddressRights()

    @property
    def workspaces(self) -> Path:
        return self.state / "workspaces"


class Host:
    """The conversations that are open in this process. Use it in `async with host.run()`.

    With `is_joinable`, other processes can join the sessions whose writer lock this process
    holds. `ports` replaces the queues of this process, for example by those of a cluster.
    """

    _conversation_type: type[OwnConversation] = OwnConversation

    def __init__(
        self,
        index: SessionIndex,
        paths: HostPaths,
        launch_at: LaunchAt,
        idle_seconds: float = IDLE_SECONDS,
        *,
        is_joinable: bool = False,
        ports: Ports | None = None,
    ) -> None:
        self.home = index
        self.paths = paths
        self.stored = StoredSessions(index)
        self.list_watch = ListWatch(self.stored)
        self._launch_at = launch_at
        ports_here = Ports(LocalOrders(), LocalRunner(self._read_claim), is_joinable)
        self._ports = ports or ports_here
        self._idle_seconds = idle_seconds
        self._worker = SessionWorker(
            self._ports.orders, self._ports.runner, self._runnable, idle_seconds,
            prepare=self._prepare, has_others=ports is not None,
        )  # fmt: skip
        self._conversations = dict[str, Conversation]()
        # The conversations that were opened with earlier settings.
        self._outdated = set[Conversation]()
        # Starts of closed conversations whose notes are not made yet, by directory.
        self._launches_for_notes = dict[Sequence[str], Launch]()
        self._has_closed = anyio.Event()
        # At the end, one process makes the notes of all open conversations.
        self._ending = False
        self._opening = dict[str, anyio.Event]()  # sessions that are being opened
        self._group: TaskGroup | None = None  # while `run` runs
        self._ended = anyio.Event()  # set at the end of any conversation, and replaced

    @asynccontextmanager
    async def run(
        self, *, drain: bool = False, reason: str = _STOPPED
    ) -> AsyncGenerator[None]:
        """Keep conversations open within the block. At its end running turns are stopped,
        with `reason` as the recorded cause; with `drain` they are finished first.
        """
        async with anyio.create_task_group() as self._group:
            self._group.start_soon(self._worker.run)
            self._group.start_soon(self._watch_conversations)
            self._group.start_soon(self.list_watch.run)
            self._group.start_soon(self._make_notes)
            try:
                yield
            finally:
                self._ending = True
                stop_reason = "" if drain else reason  # "": turns finish first
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as closing:
                        for id_ in tuple(self._conversations):
                            closing.start_soon(self.close, id_, stop_reason)
                    self._group.cancel_scope.cancel()
                    await to_thread.run_sync(finish_notes, self._take_closed())

    def conversation(self, id_: str) -> Conversation | None:
        """Return the conversation with this id; None if it is not open in this process."""
        return self._conversations.get(id_)

    @property
    def conversations(self) -> Sequence[Conversation]:
        """The conversations that are open in this process."""
        return tuple(self._conversations.values())

    async def create(self, conversation: NewConversation) -> Conversation:
        """Begin a conversation. Raises `BadInput` for invalid values."""
        async with self._worker.creating():
            return await self._begin(conversation)

    async def _begin(
        self, conversation: NewConversation, id_: str = "", claim: int = 0
    ) -> Conversation:
        """Begin a conversation with the id `id_`. "" gives the conversation a new id.

        `claim` is the number of the claim under which it is leased; 0 means without a claim.
        """
        directory = await to_thread.run_sync(self._directory, conversation)
        launch = await to_thread.run_sync(self._launch_at, directory, (), conversation)
        try:
            check_choices(launch, conversation)
            opened = await launch.start(id_, claim)
            await record_choices(Session(launch, opened), conversation)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await launch.aclose()
            raise
        self._store_start_values(opened.engine.view.session.id, conversation)
        chat = self._add_conversation(launch, opened)
        await self._ports.runner.wake(chat.session.id)  # a worker releases the writer lock
        return chat

    async def open(self, id_: str, setup: EditorConversation | None = None) -> Conversation:
        """Return the conversation with this full id, opened here or joined in another process.

        `setup` has the values that an editor passes; an open conversation ignores them.
        """
        # Each conversation is opened once. Others are not delayed meanwhile, although the
        # workspace of this one may be hard to reach.
        while (being_opened := self._opening.get(id_)) is not None:
            await being_opened.wait()
        if (chat := self._conversations.get(id_)) is not None:
            return chat
        is_opened = anyio.Event()
        self._opening[id_] = is_opened
        try:
            return await self._open_here(id_, setup)
        finally:
            del self._opening[id_]
            is_opened.set()

    async def _open_here(self, id_: str, setup: EditorConversation | None) -> Conversation:
        """Open the conversation in its directory, with its stored start values."""
        place = await to_thread.run_sync(self._find_directory, id_)
        values = with_setup(self._load_start_values(id_), setup)
        launch = await to_thread.run_sync(
            self._launch_at, place.directory, place.roots, values
        )
        try:
            return await self._open_conversation(id_, launch)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await launch.aclose()
            raise

    def _find_directory(self, id_: str) -> SessionDirectory:
        """Return the directory on this machine in which a session is opened."""
        return find_directory(self.home, id_, self.paths.directory)

    async def _open_conversation(self, id_: str, launch: Launch) -> Conversation:
        """Join the session where it is open; open it here if it cannot be joined."""
        holder = await to_thread.run_sync(self.stored.holder, id_)
        if holder and (joined := await self._join(id_, launch, holder)):
            return joined
        return self._add_conversation(launch, await launch.open_read_only(id_), holder)

    async def _prepare(self, claim: SessionClaim) -> None:
        """Do nothing: a client has opened the session before. A subclass opens it."""

    async def _join(self, id_: str, launch: Launch, holder: str) -> Conversation | None:
        """Join the session in the process `holder`. Return None if it has no socket."""
        with suppress(Held):
            return await self._begin_joined(id_, self._attach(launch, id_, holder))
        return None

    @asynccontextmanager
    async def _attach(
        self, launch: Launch, id_: str, holder: str
    ) -> AsyncGenerator[JoinedConversation]:
        """Join the session in the process `holder`, and yield it as a conversation."""
        async with attach(launch, id_) as session:
            chat = JoinedConversation(session, launch, holder)
            chat.check_directory = self.check_directory
            yield chat

    async def _begin_joined(
        self, id_: str, joined: AbstractAsyncContextManager[JoinedConversation]
    ) -> Conversation:
        """Register a joined conversation, and keep it registered until it is closed."""
        assert self._group is not None, "the host is used within `run`"
        return await self._group.start(self._run_joined, id_, joined)

    async def _run_joined(
        self,
        id_: str,
        joined: AbstractAsyncContextManager[JoinedConversation],
        *,
        task_status: TaskStatus[Conversation],
    ) -> None:
        """Join and follow a conversation of another process until it is closed."""
        async with joined as chat:
            self._conversations[id_] = chat
            task_status.started(chat)
            await self._run(id_, chat)

    async def offers(self, kind: str) -> Sequence[Offer]:
        """Return the choices for a new conversation in the directory of the server."""
        async with self.start_in() as launch:
            return await to_thread.run_sync(offers, launch, kind)

    @asynccontextmanager
    async def start_in(self, directory: str = "") -> AsyncGenerator[Launch]:
        """Yield a start of refold, to read the settings in a directory ("": the server's).

        Raises `BadInput` if `directory` is not a directory, or may not be chosen.
        """
        conversation = NewConversation(workspace=directory)
        path = await to_thread.run_sync(self._directory, conversation)
        launch = await to_thread.run_sync(self._launch_at, path, (), conversation)
        try:
            yield launch
        finally:
            with anyio.CancelScope(shield=True):
                await launch.aclose()

    def reload_settings(self) -> None:
        """Close conversations once nothing runs in them: clients reopen them with new
        settings.
        """
        assert self._group is not None, "the host is used within `run`"
        for id_, chat in self._conversations.items():
            self._outdated.add(chat)  # those at work are closed later, in a regular check
            if isinstance(chat, OwnConversation) and not (chat.at_work or chat.closing):
                self._group.start_soon(self.close, id_, "")

    async def delete(self, id_: str) -> None:
        """Delete a conversation for good. Raises `Held` while another process has it open."""
        await self.close(id_)
        await to_thread.run_sync(delete_session, self.home, self.paths.checkpoints, id_)
        file = self._start_values_file(id_)
        await to_thread.run_sync(partial(file.unlink, missing_ok=True))

    async def close(self, id_: str, reason: str = _STOPPED) -> None:
        """Close a conversation, if it is open, and wait for its end. Its turn is stopped for
        `reason`; "" lets the turn finish first.
        """
        if (chat := self._conversations.get(id_)) is None:
            return
        if isinstance(chat, OwnConversation):
            chat.close_to_orders()
            await self._ports.runner.stop(id_, reason)
        chat.close()
        while self._conversations.get(id_) is chat:
            await self._ended.wait()  # it is set at the end of any conversation

    def _add_conversation(
        self, launch: Launch, opened: OpenedSession, holder: str = ""
    ) -> Conversation:
        chat = self._conversation_type(launch, opened, self._ports, holder)
        chat.check_directory = self.check_directory
        self._conversations[chat.session.id] = chat
        assert self._group is not None, "the host is used within `run`"
        self._group.start_soon(self._run, chat.session.id, chat)
        return chat

    async def _run(self, id_: str, conversation: Conversation) -> None:
        try:
            await conversation.run()
        except Exception as error:  # a bug in one conversation must not end the others
            conversation.report(error)
            conversation.feed.close()
        finally:
            if isinstance(conversation, OwnConversation) and conversation.was_run:
                launch = conversation.launch
                self._launches_for_notes[launch.directories] = launch
                self._has_closed.set()
            del self._conversations[id_]
            self._outdated.discard(conversation)
            self._ended.set()  # `close` waits for it
            self._ended = anyio.Event()

    async def _make_notes(self) -> None:
        """Start the processes that make notes of closed conversations, one at a time."""
        while True:
            await self._has_closed.wait()
            if self._ending:
                return
            self._has_closed = anyio.Event()
            process = await to_thread.run_sync(finish_notes, self._take_closed())
            while process is not None and process.poll() is None:  # noqa: ASYNC110
                await anyio.sleep(POLL_SECONDS)

    def _take_closed(self) -> Sequence[Launch]:
        """Return a `Launch` for the directories of each conversation closed since the last
        call.

        A local variable of the loop in `_make_notes` would keep them in memory.
        """
        launches, self._launches_for_notes = self._launches_for_notes, {}
        return tuple(launches.values())

    async def _read_claim(self, id_: str) -> int:
        """Return the number of the last claim of a worker; 0 if the journal cannot be read."""
        try:
            store = await to_thread.run_sync(self.home.store, id_)
            return await store.read_claim()
        except JournalError:  # the lease fails with the same error, and reports it
            return 0

    def _runnable(self, id_: str) -> OwnConversation | None:
        """Return the open conversation that a worker can run; None if there is none."""
        chat = self._conversations.get(id_)
        return chat if isinstance(chat, OwnConversation) and not chat.closing else None

    async def _watch_conversations(self) -> None:
        while True:
            await anyio.sleep(min(POLL_SECONDS, self._idle_seconds / 4))
            for id_ in tuple(self._conversations):
                await self._check_conversation(id_)

    async def _check_conversation(self, id_: str) -> None:
        """Read what other processes have recorded in a conversation; close an idle one."""
        assert self._group is not None, "the host is used within `run`"
        if (chat := self._conversations.get(id_)) is None:
            return
        if isinstance(chat, OwnConversation):
            with suppress(JournalError, OSError):  # the next check reads the journal again
                await self._check_holder(id_, chat)
            if chat in self._outdated and not (chat.at_work or chat.closing):
                self._group.start_soon(self.close, id_, "")
                return
        now = anyio.current_time()
        if chat.busy:
            chat.idle_since = now
        elif now - chat.idle_since > self._idle_seconds and not chat.closing:
            self._group.start_soon(self.close, id_, "")

    async def _check_holder(self, id_: str, chat: OwnConversation) -> None:
        """Tell the clients whether another process writes the session now.

        If that process can be joined, close the conversation: its clients connect again.
        """
        if chat.session.has_lease:
            # A file was uploaded without a claim; the worker releases the lock.
            if not chat.claimed:
                await self._ports.runner.wake(id_)
            return
        if not chat.feed.followers:
            return
        has_news = await chat.has_news()
        if not has_news and not chat.holder:  # so no other process has begun to write it
            return
        holder = await to_thread.run_sync(self.stored.holder, id_)
        if chat.session.has_lease:  # this process has taken the lock in the meantime
            return
        chat.set_holder(holder)
        if holder and socket_path(self.home.path(id_), os.environ).exists():
            chat.close()  # its clients connect again, and join the other process

    def _directory(self, conversation: NewConversation) -> Path:
        """Return the directory of a new conversation, which is made if it has its own.
        Raises `BadInput` if the directory is not allowed.
        """
        workspace, name = conversation.workspace, conversation.workspace_name
        if conversation.own_workspace:
            if workspace:
                raise BadInput("give a workspace, or own_workspace, and not both")
            new_id = self.home.new_id(time.time())
            return make_workspace(self.paths.workspaces, name, new_id)
        if name:
            raise BadInput("workspace_name is for own_workspace: give both")
        if not workspace:
            return self.paths.directory
        if address := resolve_address(workspace, self.paths.rights.named):
            return self._directory_elsewhere(address)
        directory = os.path.expanduser(workspace)
        if not os.path.isabs(directory) or not os.path.isdir(directory):
            raise BadInput(f"{workspace!r} is not a directory on this machine")
        real = os.path.realpath(directory)
        self.check_directory(real)
        return Path(real)

    def check_directory(self, directory: str) -> None:
        """Raise `BadInput` unless clients may choose this directory for a conversation."""
        real = os.path.realpath(directory)
        if not self.allows(real):
            raise BadInput(
                f"{directory!r} is not below {self._root_names}: choose a folder there"
            )
        if address := address_of_directory(real):
            self.paths.rights.check(address, self.stored.recent_directories)

    def _directory_elsewhere(self, address: str) -> Path:
        if self.paths.roots:  # then only folders below them may be chosen
            raise BadInput(f"{address!r} is not below {self._root_names}")
        self.paths.rights.check(address, self.stored.recent_directories)
        return stand_in_directory(address)

    @property
    def _root_names(self) -> str:
        return " or ".join(map(str, self.paths.roots))

    def allows(self, path: str) -> bool:
        """Whether a conversation may begin in the real path `path`."""
        return not self.paths.roots or is_within(path, self.paths.roots)

    def _store_start_values(self, id_: str, conversation: NewConversation) -> None:
        """Store the start values that the journal does not record, for later openings."""
        values = NewConversation(
            preset=conversation.preset,
            system_prompt=conversation.system_prompt,
            log_requests=conversation.log_requests,
        )
        if values == NewConversation():
            return
        file = self._start_values_file(id_)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.encode(values))

    def _load_start_values(self, id_: str) -> NewConversation:
        try:
            data = self._start_values_file(id_).read_bytes()
            return msgspec.json.decode(data, type=NewConversation)
        except (OSError, msgspec.DecodeError):
            return NewConversation()  # none were stored, or they are damaged

    def _start_values_file(self, id_: str) -> Path:
        return self.paths.state / "conversations" / f"{id_}.json"


def is_within(path: str, roots: Iterable[Path | str]) -> bool:
    """Whether a real path is one of the directories `roots`, or below one of them."""
    return any(below(path, str(root)) for root in roots)
