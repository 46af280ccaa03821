"""The sessions of a web node: it shows them and takes orders, and runs none.

Its role in the database may read lines and place orders. Any node that dies loses nothing: a page
connects to another one with the last id that it had.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

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
from refold.errors import BadInput
from refold.journal.session_index import SessionIndex
from refold.session.recorder import acting_person

_NO_DELETION = "a web node may not delete sessions: run `refold sessions delete {id}` as a worker's user"


class WebHost(Host):
    """Use it in `async with host.run()`.

    With `is_shared`, people of several tenants use the node, and it reads no file that a
    session names: each is opened in the directory of `paths`, which is empty.
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
        runner, self._bus = services.runner(), services.bus("web")
        self._orders = services.orders(runner)
        ports = Ports(self._orders, runner)
        super().__init__(index, paths, launch_at, ports=ports)

    @asynccontextmanager
    async def run(self, *, drain: bool = False, reason: str = "") -> AsyncGenerator[None]:
        """Within the block it shows sessions. What workers run continues after it."""
        async with super().run(), anyio.create_task_group() as group:
            group.start_soon(self._orders.run)
            group.start_soon(self._bus.run)
            yield
            group.cancel_scope.cancel()

    async def create(
        self, conversation: NewConversation, id_: str = "", claim: int = 0
    ) -> Conversation:
        """Have a worker begin a conversation, in a directory there."""
        id_ = id_ or await to_thread.run_sync(self.home.new_id, time.time())
        values = msgspec.json.encode(conversation)
        begin_order = await self._orders.begin(id_, values, acting_person())
        await begin_order.result()
        return await self.open(id_)

    async def delete(self, id_: str) -> None:
        raise BadInput(_NO_DELETION.format(id=id_))

    def _find_directory(self, id_: str) -> SessionDirectory:
        if self._is_shared:
            return SessionDirectory(self.paths.directory)
        return super()._find_directory(id_)

    async def _open_there(self, id_: str, launch: Launch) -> Conversation:
        return await self._begin_joined(id_, self._follow(launch, id_))

    @asynccontextmanager
    async def _follow(self, launch: Launch, id_: str) -> AsyncGenerator[JoinedConversation]:
        follow = follow_session(launch, id_, self._orders, self._bus)
        async with follow as (session, sink):
            chat = JoinedConversation(session, launch, "")
            sink.report_problem = chat.feed.broadcast
            yield chat
