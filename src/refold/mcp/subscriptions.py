"""Subscribes to resources that sessions have read, and reports a change once to each of them.

A server is subscribed to only if it declares that it can be. Since the protocol 2026-07-28 one
stream names all resources (`subscriptions/listen`); older ones have a request for each
(`resources/subscribe`). `connection` calls `Subscriptions` in its thread. Each session takes its
sentences from `ResourceNews` with its next request to the model (`engine.model_call`).
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from refold.mcp import transports
from refold.mcp.resource_news import ResourceNews
from refold.values.printable_names import shorten
from refold.values.text import escape_outside

MAX_SUBSCRIPTIONS = 100  # of one server
_ANSWER_SECONDS = 5.0  # that a server may take to subscribe
_MAX_URI_CHARS = 300
_LISTEN_PAUSE_SECONDS = 2.0  # before a stream that ended is opened again


class Subscriptions:
    """The resources of one server that were read, the newest last.

    They stay when the server is connected again, and are subscribed to again then.
    """

    def __init__(self, server: str, news: ResourceNews, log: Callable[[str], None]) -> None:
        self._server, self._news, self._log = server, news, log
        # The sessions that have read a resource, and have had no report of a change since.
        self._readers = dict[str, set[str]]()
        self._client: Client | None = None
        self._requested = set[str]()  # URIs that this client has asked for
        self._group: TaskGroup | None = None  # of the connection
        self._stream: anyio.CancelScope | None = None  # that is open now

    @asynccontextmanager
    async def subscribe_while_reading(
        self, client: Client, uri: str, session: str
    ) -> AsyncGenerator[None]:
        """Subscribe to a resource, which the block reads: no change after that is missed."""
        if not _can_subscribe(client):
            yield
            return
        readers = self._readers[uri] = self._readers.pop(uri, set())
        readers.add(session)
        self._news.discard(session, self._sentence(uri))
        await self._drop_oldest(client)
        await self._subscribe(client, uri)
        try:
            yield
        except BaseException:  # nothing was read, so there is nothing to report
            readers.discard(session)
            raise

    async def start(self, client: Client, group: TaskGroup) -> None:
        """Use this connection, which ends with `group`.

        Subscribe again to what a session waits for, if there was another connection before.
        """
        self._group, self._stream = group, None
        if _can_subscribe(client):
            waiting = (uri for uri, readers in self._readers.items() if readers)
            await self._subscribe(client, *waiting)

    def note_update(self, uri: str) -> None:
        """Report a change to those that read the resource, or the one that it is a part of.

        A session gets one report, until it reads the resource again.
        """
        for known, readers in self._readers.items():
            if readers and (uri == known or uri.startswith(f"{known.rstrip('/')}/")):
                for session in readers:
                    self._news.add(session, self._sentence(known))
                readers.clear()

    async def _drop_oldest(self, client: Client) -> None:
        while len(self._readers) > MAX_SUBSCRIPTIONS:
            uri = next(iter(self._readers))
            del self._readers[uri]
            if self._client is client and uri in self._requested:
                self._requested.discard(uri)
                if _listens(client):  # the next stream lacks it
                    continue
                params = types.UnsubscribeRequestParams(uri=uri)
                await self._request(client, types.UnsubscribeRequest(params=params))

    async def _subscribe(self, client: Client, *uris: str) -> None:
        if self._client is not client:  # a lost connection has lost its subscriptions
            self._client, self._requested = client, set[str]()
        new = [uri for uri in uris if uri not in self._requested]
        self._requested.update(new)
        if new and _listens(client):
            await self._listen(client)
            return
        for uri in new:
            params = types.SubscribeRequestParams(uri=uri)
            await self._request(client, types.SubscribeRequest(params=params))

    async def _listen(self, client: Client) -> None:
        """Open a stream for all resources, and then close the one before: no change is missed."""
        opened = anyio.Event()
        if self._group is not None:
            self._group.start_soon(self._keep_stream, client, opened)
            with anyio.move_on_after(_ANSWER_SECONDS):
                await opened.wait()

    async def _keep_stream(self, client: Client, on_open: anyio.Event) -> None:
        """Keep a stream open until a newer one replaces it. The message handler gets the changes."""
        with anyio.CancelScope() as scope:
            before, self._stream = self._stream, scope
            while self._client is client:
                try:
                    async with client.listen(
                        resource_subscriptions=[*self._requested]
                    ) as changes:
                        if before is not None:
                            before.cancel()
                        on_open.set()
                        async for _ in changes:
                            pass
                except (MCPError, ValidationError, TimeoutError) as error:
                    self._log(
                        f"does not report changes of resources: {transports.reason(error)}"
                    )
                    break
                except SubscriptionLost as error:
                    self._log(f"reports changes of resources no longer: {error}")
                await anyio.sleep(_LISTEN_PAUSE_SECONDS)
        on_open.set()

    async def _request(
        self, client: Client, request: types.SubscribeRequest | types.UnsubscribeRequest
    ) -> None:
        """Send a request. Failures are ignored: the resource can be read without the
        subscription.
        """
        try:  # the method of the client warns on the screen
            with anyio.fail_after(_ANSWER_SECONDS):
                await client.session.send_request(request, types.EmptyResult)
        except (MCPError, ValidationError, TimeoutError) as error:
            self._log(f"did not answer {request.method}: {transports.reason(error)}")

    def _sentence(self, uri: str) -> str:
        name = shorten(escape_outside(" ".join(uri.split())), _MAX_URI_CHARS)
        return (
            f"The resource {name!r} of the MCP server {self._server} has changed since it "
            "was read."
        )


def _can_subscribe(client: Client) -> bool:
    resources = client.server_capabilities.resources
    return resources is not None and bool(resources.subscribe)


def _listens(client: Client) -> bool:
    return client.protocol_version in MODERN_PROTOCOL_VERSIONS
