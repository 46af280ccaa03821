"""The WebSockets of a conversation and of the list of conversations.

A received frame is an order, and a sent frame is a document. `client.protocol` defines
orders, `views.stream_json` defines documents, and `client.feed` decides who gets which
documents. This module only transports bytes. A client that does not read is disconnected,
and reconnects with the last id that it received.
"""

from contextlib import suppress

import anyio
import msgspec
from fastapi import FastAPI, WebSocket
from starlette.websockets import WebSocketDisconnect

from refold.client.event_documents import Cursor, Newest, parse_cursor
from refold.client.feed import Follower
from refold.client.host import Host
from refold.client.protocol import parse_order
from refold.client.shared_session import SharedSession, problem
from refold.client.subagent_feed import SubagentFeed
from refold.errors import BadInput, RefoldError
from refold.server.api import error_response
from refold.server.rest import CONVERSATION_PATH, check_exists, open_conversation
from refold.views.stream_json.documents import Error

_TOO_SLOW = "you read too slowly: connect again with the last id"
_CONVERSATION_CLOSED = "the conversation was closed here: connect again"
_NO_TEXT = "an order is text, and this frame is binary"
_NO_ORDERS = "a subagent takes no orders here: send them to the conversation it works for"


def add_websocket(app: FastAPI, host: Host) -> None:
    @app.websocket(f"{CONVERSATION_PATH}/ws")
    async def follow(  # pyright: ignore[reportUnusedFunction] - a route
        socket: WebSocket,
        id_: str,
        after: str | None = None,
        newest: int = 0,
        journal: bool = False,
    ) -> None:
        try:
            position: Cursor | Newest | None = None
            if after is not None:
                position = parse_cursor(after)
            elif newest > 0:
                position = Newest(newest)
            await check_exists(host, id_)
            root_id, _, _ = id_.partition("/")  # `id_` may be a subagent, as in ID/child-1
            chat = await open_conversation(host, root_id)
        except RefoldError as error:
            await socket.send_denial_response(error_response(error))
            return
        await socket.accept()
        if chat.session.id == id_:
            await _Connection(socket, chat).run(position, reads_journal=journal)
        else:
            feed = SubagentFeed(host.stored, chat, id_)
            await _follow_subagent(socket, feed, position)

    @app.websocket("/api/conversations/ws")
    async def watch(socket: WebSocket) -> None:  # pyright: ignore[reportUnusedFunction]
        """Send changes of the list as documents `sessions_changed`. Received frames are
        ignored.
        """
        async with host.list_watch.watch() as watcher, anyio.create_task_group() as group:
            await socket.accept()

            async def send() -> None:
                with suppress(WebSocketDisconnect, RuntimeError):  # the client has left
                    while True:
                        news = msgspec.json.encode(await watcher.next())
                        await socket.send_text(news.decode())

            group.start_soon(send)
            while (await socket.receive())["type"] != "websocket.disconnect":
                pass
            group.cancel_scope.cancel()


async def _follow_subagent(
    socket: WebSocket, feed: SubagentFeed, after: Cursor | Newest | None
) -> None:
    """Send the documents of a subagent, and refuse orders."""

    async def send(frame: bytes) -> None:
        await socket.send_text(frame.decode())

    async def follow() -> None:
        """Send the documents until the feed ends; if it fails, send the error, too."""
        with suppress(WebSocketDisconnect, RuntimeError):  # the client has left
            try:
                await feed.run(after, send)
            except RefoldError as error:
                await send(msgspec.json.encode(problem(error)))
            await socket.close(1012, _CONVERSATION_CLOSED)

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        while (message := await socket.receive())["type"] != "websocket.disconnect":
            await send(msgspec.json.encode(_refusal(message.get("text") or "")))
        group.cancel_scope.cancel()


def _refusal(text: str) -> Error:
    """Return the document that refuses an order to a subagent."""
    try:
        order = parse_order(text.encode(errors="surrogatepass"))
    except RefoldError as error:
        return problem(error)
    return problem(BadInput(_NO_ORDERS), order.client_key)


class _Connection:
    """The WebSocket of a client that follows a conversation and sends orders."""

    def __init__(self, socket: WebSocket, session: SharedSession) -> None:
        self._socket, self._session = socket, session

    async def run(self, after: Cursor | Newest | None, *, reads_journal: bool) -> None:
        """Send the documents after `after`, and take orders, until the client leaves.

        If `after` is None, a snapshot comes first; if it is `Newest`, the newest events.
        """
        follower = await self._session.join(after, reads_journal=reads_journal)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._send, follower)
                await self._receive(follower)
                group.cancel_scope.cancel()
        finally:
            self._session.leave(follower)

    async def _send(self, follower: Follower) -> None:
        """Send the documents until the client is too slow, or the conversation is closed."""
        try:
            async for batch in follower.batches():
                for frame in batch:
                    await self._socket.send_text(frame.decode())
            if follower.cut_off:
                await self._socket.close(1013, _TOO_SLOW)
            else:
                await self._socket.close(1012, _CONVERSATION_CLOSED)
        except (WebSocketDisconnect, RuntimeError):  # the client has left
            return

    async def _receive(self, follower: Follower) -> None:
        """Pass on the client's orders until it leaves, or sends something that is not text."""
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                follower.queue_document(msgspec.json.encode(problem(BadInput(_NO_TEXT))))
                await self._socket.close(1003, _NO_TEXT)
                return
            await self._session.receive(text.encode(errors="surrogatepass"), follower)
