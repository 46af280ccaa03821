"""Subscribes to resources that sessions have read, and reports a change once to each session.

A server gets subscriptions only if it declares support for them. Since the protocol 2026-07-28,
one stream reports on all resources (`subscriptions/listen`); older versions have a request for
each (`resources/subscribe`). `connection` calls `Subscriptions` in its thread. Each session
takes its sentences from `ResourceNews` before its next model request (`engine.model_call`).
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

MAX_SUBSCRIPTIONS = 100  # to one server
_ANSWER_SECONDS = 5.0  # for a server to subscribe
_MAX_URI_CHARS = 300
_LISTEN_PAUSE_SECONDS = 2.0  # before a closed stream is opened again


class Subscriptions:
    """The resources of one server that sessions have read, the newest last.

    When the server is reconnected, the resources are subscribed to again.
    """

    def __init__(self, server: str, news: ResourceNews, log: Callable[[str], None]) -> None:
        self._server, self._news, self._log = server, news, log
        # The sessions that have read a resource, and have had no report of a change since
        # then.
        self._readers = dict[str, set[str]]()
        self._client: Client | None = None
        self._requested = set[str]()  # URIs to which this client has subscribed
        self._group: TaskGroup | None = None  # the tasks of the connection
        self._stream: anyio.CancelScope | None = None  # the scope of the open stream

    @asynccontextmanager
    async def subscribe_while_reading(
        self, client: Client, uri: str, session: str
    ) -> AsyncGenerator[None]:
        """Subscribe to a resource before the block reads it, so that no change is missed."""
        if not _can_subscribe(client):
            yield
            return
        readers = self._readers.pop(uri, set[str]())
        self._readers[uri] = readers  # now the newest of the resources
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
        """Use a new connection: subscribe again to the resources that sessions have read.

        Resources whose change was already reported are left out. `group` runs the connection's
        tasks.
        """
        self._group, self._stream = group, None
        if _can_subscribe(client):
            uris = (uri for uri, readers in self._readers.items() if readers)
            await self._subscribe(client, *uris)

    def note_update(self, uri: str) -> None:
        """Report a change to the sessions that have read the resource, or a resource above it.

        After a report, a session gets no further one until it reads the resource again.
        """
        for read_uri, readers in self._readers.items():
            if uri == read_uri or uri.startswith(f"{read_uri.rstrip('/')}/"):
                for session in readers:
                    self._news.add(session, self._sentence(read_uri))
                readers.clear()

    async def _drop_oldest(self, client: Client) -> None:
        """Forget the oldest resources beyond the limit, and unsubscribe from them."""
        while len(self._readers) > MAX_SUBSCRIPTIONS:
            uri = next(iter(self._readers))
            del self._readers[uri]
            if self._client is client and uri in self._requested:
                self._requested.discard(uri)
                if _has_streams(client):  # the next stream omits the resource
                    continue
                params = types.UnsubscribeRequestParams(uri=uri)
                await self._request(client, types.UnsubscribeRequest(params=params))

    async def _subscribe(self, client: Client, *uris: str) -> None:
        """Subscribe to those of the resources to which this client has not subscribed yet."""
        if self._client is not client:  # a lost connection has lost its subscriptions
            self._client, self._requested = client, set[str]()
        new = [uri for uri in uris if uri not in self._requested]
        self._requested.update(new)
        if new and _has_streams(client):
            await self._listen(client)
            return
        for uri in new:
            params = types.SubscribeRequestParams(uri=uri)
            await self._request(client, types.SubscribeRequest(params=params))

    async def _listen(self, client: Client) -> None:
        """Open a stream for all resources, then close the old one: no change is missed."""
        opened = anyio.Event()
        if self._group is not None:
            self._group.start_soon(self._keep_stream, client, opened)
            with anyio.move_on_after(_ANSWER_SECONDS):
                await opened.wait()

    async def _keep_stream(self, client: Client, on_open: anyio.Event) -> None:
        """Keep a stream open until a newer one replaces it. Set `on_open` when it is open."""
        with anyio.CancelScope() as scope:
            # The previous stream stays open until this one is, so that no change is missed.
            previous = self._stream
            self._stream = scope
            while self._client is client:
                try:
                    async with client.listen(
                        resource_subscriptions=[*self._requested]
                    ) as changes:
                        if previous is not None:
                            previous.cancel()
                        on_open.set()
                        async for _ in changes:
                            pass  # until the stream ends
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
        """Send a request.

        A failure is only logged, because the resource can be read without a subscription.
        """
        try:  # the client's own method prints a warning
            with anyio.fail_after(_ANSWER_SECONDS):
                await client.session.send_request(request, types.EmptyResult)
        except (MCPError, ValidationError, TimeoutError) as error:
            self._log(f"did not answer {request.method}: {transports.reason(error)}")

    def _sentence(self, uri: str) -> str:
        """Return the sentence for the model that a resource has changed, on one line."""
        name = shorten(escape_outside(" ".join(uri.split())), _MAX_URI_CHARS)
        return (
            f"The resource {name!r} of the MCP server {self._server} has changed since it "
            "was read."
        )


def _can_subscribe(client: Client) -> bool:
    """Return whether the server offers subscriptions to its resources."""
    resources = client.server_capabilities.resources
    return resources is not None and bool(resources.subscribe)


def _has_streams(client: Client) -> bool:
    return client.protocol_version in MODERN_PROTOCOL_VERSIONS
