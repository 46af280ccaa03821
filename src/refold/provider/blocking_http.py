"""GET requests for code that runs in a thread of its own, over the connections of `http`.

Downloads use it, so that proxies, certificates and addresses are those of every other request.
Redirects are followed. It keeps no connection.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import urljoin, urlsplit

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec import Struct

from refold.provider.connect import Broken, Endpoint, endpoint_of, proxy_of
from refold.provider.error_mapping import ResponseStart
from refold.provider.http import HttpConnection, connect_http, unreachable_because
from refold.provider.resolver import AddressRefused

_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class StatusError(OSError):
    """An answer with another status. `headers` are those of the answer, in lower case."""

    def __init__(self, start: ResponseStart) -> None:
        super().__init__(f"the server answered with status {start.status}")
        self.status, self.headers = start.status, start.headers


class Requesting(Struct, frozen=True):
    """What belongs to each request on its way: asked again for the place of a redirect.

    `addresses` resolves a place and judges it, if no proxy leads there. Raises `OSError`.
    """

    headers: Callable[[str], Sequence[tuple[str, str]]] = lambda url: ()
    addresses: Callable[[Endpoint], Awaitable[Sequence[str]]] | None = None


PLAIN = Requesting()


class Download:
    """An answer with status 200 or 206."""

    def __init__(
        self,
        portal: BlockingPortal,
        connection: HttpConnection,
        start: ResponseStart,
        seconds: float,
    ) -> None:
        self._portal, self._connection, self._seconds = portal, connection, seconds
        self.status, self.headers = start.status, start.headers

    def read(self) -> bytes:
        """The next piece; empty at the end, also where it broke off: its length is known."""
        return self._portal.call(_chunk, self._connection, self._seconds)

    def read_all(self, limit: int) -> bytes:
        """All pieces, or the first until there are more than `limit` bytes."""
        content = bytearray()
        while len(content) <= limit and (piece := self.read()):
            content += piece
        return bytes(content)


@contextmanager
def open_url(
    url: str,
    environ: Mapping[str, str],
    *,
    first: int = 0,
    seconds: float = 30.0,
    requesting: Requesting = PLAIN,
) -> Generator[Download]:
    """What lies at an address, from byte `first`. Raises `OSError` and `BadInput`."""
    with start_blocking_portal() as portal:
        for _ in range(_MAX_REDIRECTS):
            connection = portal.call(_connected, url, environ, seconds, requesting)
            headers = [("range", f"bytes={first}-")] if first else []
            headers += requesting.headers(url)
            try:
                start = portal.call(_asked, connection, url, headers, seconds)
                if start.status in (200, 206):
                    yield Download(portal, connection, start, seconds)
                    return
            finally:
                portal.call(connection.aclose)
            url = _next(url, start)
        raise OSError(f"it was redirected more than {_MAX_REDIRECTS} times")


def _next(url: str, start: ResponseStart) -> str:
    target = start.headers.get("location", "")
    if start.status not in _REDIRECTS or not target:
        raise StatusError(start)
    target = urljoin(url, target)
    if url.startswith("https:") and not target.startswith("https:"):
        raise OSError(f"{urlsplit(url).hostname} redirects to an address without TLS")
    return target


async def _connected(
    url: str, environ: Mapping[str, str], seconds: float, requesting: Requesting
) -> HttpConnection:
    where, addresses = endpoint_of(url.partition("#")[0]), ()
    try:
        with anyio.fail_after(seconds):
            if requesting.addresses and not proxy_of(where, environ):
                addresses = await requesting.addresses(where)
            return await connect_http(where, environ, addresses=addresses)
    except AddressRefused:
        raise
    except TimeoutError:
        raise OSError(f"no connection within {seconds:g} s") from None
    except OSError as error:
        raise OSError(unreachable_because(error)) from error


async def _asked(
    connection: HttpConnection,
    url: str,
    more: Sequence[tuple[str, str]],
    seconds: float,
) -> ResponseStart:
    parts, headers = urlsplit(url), [("host", endpoint_of(url).authority)]
    headers += [("user-agent", "refold"), ("accept-encoding", "identity"), *more]
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        with anyio.fail_after(seconds):
            await connection.send(target, headers, None, seconds)
            return await connection.head()
    except TimeoutError:
        raise OSError(f"no answer within {seconds:g} s") from None
    except Broken as error:
        raise OSError(f"the server {error}") from error


async def _chunk(connection: HttpConnection, seconds: float) -> bytes:
    try:
        with anyio.fail_after(seconds):
            return connection.arrived() or await connection.next_chunk()
    except TimeoutError:
        raise OSError(f"it has sent nothing for {seconds:g} s") from None
    except Broken:
        return b""
