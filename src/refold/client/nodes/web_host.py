"""The sessions of a web node: it shows them and takes orders, but runs none.

Its database role may only read lines and place orders. Nothing is lost if a node dies: a
page connects to another node with the last id that it received.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from anyio import to_thread

from refold.client.host import Host, HostPaths, LaunchAt
from refold.client.hosted_conversation import (
    Conversation,
    JoinedConversation,
    Ports,
)
from refold.client.launch import Launch
from refold.client.new_conversation import NewConversation
from refold.client.nodes.followed_session import follow_session
from refold.client.nodes.services import Services
from refold.client.resume import SessionDirectory
from refold.errors import JournalError, RefoldError
from refold.journal.session_index import SessionIndex
from refold.session.recorder import acting_person

_DELETION_REASON = "the conversation is deleted"
# The time between two attempts to end the claims on a session that must be deleted.
_END_CLAIM_SECONDS = 1.0


class WebHost(Host):
    """The host of a web node. Use it in `async with host.run()`.

    With `is_shared`, people of several tenants use the node. The node then reads no file that
    a session names: each session is opened in the directory of `paths`, which is empty.
    """

    def __init__(
        self,
        services: Services,
        index: SessionIndex,
        paths: HostPaths,
        launch_at: LaunchAt,
        *,
        is_shared: bool = False,
    ) -> None:
        self._is_shared = is_shared
        self._runner = services.runner()
        self._bus = services.bus("web")
        self._orders = services.orders(self._runner)
        self._metrics = services.node_metrics("web")
        ports = Ports(self._orders, self._runner)
        super().__init__(index, paths, launch_at, ports=ports)

    @asynccontextmanager
    async def run(self, *, drain: bool = False, reason: str = "") -> AsyncGenerator[None]:
        """Show sessions within the block. Turns that workers run continue after it."""
        async with super().run(), anyio.create_task_group() as group:
            group.start_soon(self._orders.run)
            group.start_soon(self._bus.run)
            if self._metrics is not None:
                group.start_soon(self._metrics.run, lambda: self.conversations)
            yield
            group.cancel_scope.cancel()

    async def create(self, conversation: NewConversation) -> Conversation:
        """Have a worker begin a conversation, in a directory of the worker, and open it
        here.
        """
        id_ = await to_thread.run_sync(self.home.new_id, time.time())
        values = msgspec.json.encode(conversation)
        begin_order = await self._orders.begin(id_, values, acting_person())
        await begin_order.result()
        return await self.open(id_)

    async def delete(self, id_: str) -> None:
        """Stop the conversation's turn, and have a worker delete the conversation for good."""
        await self.close(id_)
        deletion = await self._orders.delete(id_, acting_person())
        problem: RefoldError | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._end_claims, id_)
            try:
                await deletion.result()
            except RefoldError as error:  # raised below, outside of the group
                problem = error
            group.cancel_scope.cancel()
        if problem is not None:
            raise problem

    async def _end_claims(self, id_: str) -> None:
        """Stop the claim on the session and wake it, again and again, until this is cancelled.

        The next claim on the session deletes it.
        """
        while True:
            with suppress(JournalError):
                await self._runner.stop(id_, _DELETION_REASON)
                await self._runner.wake(id_)
            await anyio.sleep(_END_CLAIM_SECONDS)

    def _find_directory(self, id_: str) -> SessionDirectory:
        if self._is_shared:
            return SessionDirectory(self.paths.directory)
        return super()._find_directory(id_)

    async def _open_conversation(self, id_: str, launch: Launch) -> Conversation:
        return await self._begin_joined(id_, self._follow(launch, id_))

    @asynccontextmanager
    async def _follow(self, launch: Launch, id_: str) -> AsyncGenerator[JoinedConversation]:
        """Follow a session that a worker runs, and yield it as a conversation."""
        follow = follow_session(launch, id_, self._orders, self._bus)
        began = time.perf_counter()
        async with follow as (session, sink):
            if self._metrics is not None:
                self._metrics.add_opening(time.perf_counter() - began)
            chat = JoinedConversation(session, launch, holder="")
            sink.report_problem = chat.feed.broadcast
            yield chat
