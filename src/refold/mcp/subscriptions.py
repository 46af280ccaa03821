"""Subscribes to resources that sessions have read, and reports a change once to each of them.

A server is subscribed to only if it declares that it can be, and only over protocols that have
`resources/subscribe`. `connection` calls `Subscriptions` in its thread. Each session takes its
sentences from `ResourceNews` with its next request to the model (`engine.model_call`).
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
from mcp import Client
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

    @asynccontextmanager
    async def during_read(
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

    async def restore(self, client: Client) -> None:
        """Subscribe again to what a session waits for, after the server was connected again."""
        if _can_subscribe(client):
            for uri in [uri for uri, readers in self._readers.items() if readers]:
                await self._subscribe(client, uri)

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
                params = types.UnsubscribeRequestParams(uri=uri)
                await self._request(client, types.UnsubscribeRequest(params=params))

    async def _subscribe(self, client: Client, uri: str) -> None:
        if self._client is not client:  # a lost connection has lost its subscriptions
            self._client, self._requested = client, set[str]()
        if uri not in self._requested:
            self._requested.add(uri)
            params = types.SubscribeRequestParams(uri=uri)
            await self._request(client, types.SubscribeRequest(params=params))

    async def _request(
        self, client: Client, request: types.SubscribeRequest | types.UnsubscribeRequest
    ) -> None:
        """Send a request. It may fail: the resource can be read without it."""
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
    declared = resources is not None and bool(resources.subscribe)
    return declared and client.protocol_version not in MODERN_PROTOCOL_VERSIONS
