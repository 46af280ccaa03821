"""Connects to a server over the older HTTP transport, which has separate addresses.

One address sends events, the other gets messages. The SDK has this transport, too, but accepts
events of at most 1 MiB, and prints a traceback when a server exits. `transports` has the other
transports.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
import mcp_types as types
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared._httpx_utils import (
    request_within_origin,
    sse_within_origin,
)
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from refold.errors import BadInput
from refold.mcp.http_transport import JudgedTransport, http_client
from refold.mcp.servers import ServerConfig
from refold.mcp.transports import MAX_LINE_BYTES, ConnectionEnd, Streams

_Incoming = SessionMessage | Exception


@asynccontextmanager
async def sse(
    config: ServerConfig,
    transport: JudgedTransport,
    login: httpx2.Auth | None,
    connection_end: ConnectionEnd,
) -> AsyncGenerator[Streams]:
    """Yield the streams of a connection: messages of the server, and messages to it.

    A response with an error status raises an `httpx2.HTTPError`.
    """
    client = http_client(transport, dict(config.headers), auth=login)
    async with (
        client,
        sse_within_origin(client, config.url, max_event_size=MAX_LINE_BYTES) as events,
    ):
        events.response.raise_for_status()
        to_session, read = anyio.create_memory_object_stream[_Incoming](0)
        write, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        async with (
            to_session,
            read,
            write,
            from_session,
            anyio.create_task_group() as group,
        ):
            address = await group.start(
                _receive, config.url, events, to_session, connection_end
            )
            group.start_soon(
                _send, client, address, from_session, to_session, connection_end
            )
            yield read, write
            group.cancel_scope.cancel()


async def _receive(
    url: str,
    events: httpx2.EventSource,
    session: MemoryObjectSendStream[_Incoming],
    connection_end: ConnectionEnd,
    *,
    task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Pass the server's events to the session, until the connection ends.

    `task_status` gets the address for messages, which an event "endpoint" names. Raises
    `BadInput` if there is no such event.
    """
    has_endpoint = False
    async with session:
        try:
            async for event in events:
                if event.event == "endpoint" and not has_endpoint:
                    task_status.started(_endpoint(url, event.data))
                    has_endpoint = True
                elif event.event == "message" and event.data:
                    await session.send(_message(event.data))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # the session has ended
        except httpx2.SSEError:
            connection_end.end(f"it sent an event longer than {MAX_LINE_BYTES >> 20} MiB")
        except httpx2.HTTPError as error:
            connection_end.end(str(error) or type(error).__name__)
        if not has_endpoint:
            raise BadInput(connection_end.why or "it named no address for messages")


def _endpoint(url: str, name: str) -> str:
    """Return the address for messages that the server has named, absolute or relative to `url`.

    Raises `BadInput` if it is on another host.
    """
    address = urljoin(url, name)
    here, target = urlsplit(url), urlsplit(address)
    if (here.scheme, here.netloc) != (target.scheme, target.netloc):
        raise BadInput(f"it named the address {address!r} for messages, on another host")
    return address


def _message(data: str) -> _Incoming:
    """Return the message in an event, or the error if it is invalid."""
    try:
        message = types.jsonrpc_message_adapter.validate_json(data, by_name=False)
        return SessionMessage(message)
    except ValidationError as error:
        return error


async def _send(
    client: httpx2.AsyncClient,
    address: str,
    messages: MemoryObjectReceiveStream[SessionMessage],
    session: MemoryObjectSendStream[_Incoming],
    connection_end: ConnectionEnd,
) -> None:
    """Send each message of the session in its own request. A failure ends the connection."""

    async def post(item: SessionMessage) -> None:
        message = item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        try:
            response = await request_within_origin(client, "POST", address, json=message)
            response.raise_for_status()
        except httpx2.HTTPError as error:
            connection_end.end(str(error) or type(error).__name__)
            await session.aclose()

    async with messages, anyio.create_task_group() as group:
        async for item in messages:
            group.start_soon(post, item)
