"""Sends GET requests for downloads, with the client of `http`, from a worker thread.

Redirects are followed, and no connection is kept.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import urljoin, urlsplit

from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec import Struct

from refold.provider.connect import Broken, Stalled, Unconnected, server_address
from refold.provider.error_mapping import ResponseStart
from refold.provider.http import Bounds, HttpClient, HttpRequest, HttpResponse
from refold.provider.resolver import Judge

_MAX_REDIRECTS = 5
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_REQUEST_HEADERS = (("user-agent", "refold"), ("accept-encoding", "identity"))


class StatusError(OSError):
    """Raised for a response with a status other than 200 or 206.

    `headers` maps the names of its headers, in lower case, to their values.
    """

    def __init__(self, start: ResponseStart) -> None:
        super().__init__(f"the server answered with status {start.status}")
        self.status, self.headers = start.status, start.headers


class RequestOptions(Struct, frozen=True):
    """Options of a request, which also apply after each redirect.

    `headers` returns the headers to send to a URL. `addresses` returns the IP addresses of a
    host, or raises `OSError` if a connection to them is not allowed.
    """

    headers: Callable[[str], Sequence[tuple[str, str]]] = lambda url: ()
    addresses: Judge | None = None


NO_OPTIONS = RequestOptions()


class Download:
    """The body of a response with status 200 or 206."""

    def __init__(self, portal: BlockingPortal, answer: HttpResponse) -> None:
        self._portal, self._answer = portal, answer
        self.status, self.headers = answer.reply.status, answer.reply.headers

    def read(self) -> bytes:
        """Read the next piece of the body, or b"" at the end.

        b"" is also returned if the connection broke, so the caller must check the length.
        """
        return self._portal.call(_read_piece, self._answer)

    def read_all(self, limit: int) -> bytes:
        """Read the body, but at most `limit` bytes."""
        content = bytearray()
        while len(content) < limit and (piece := self.read()):
            content += piece
        return bytes(content[:limit])


@contextmanager
def open_url(
    url: str,
    environ: Mapping[str, str],
    *,
    first: int = 0,
    seconds: float = 30.0,
    options: RequestOptions = NO_OPTIONS,
) -> Generator[Download]:
    """Open `url` from byte `first` on, in a `with` block. Raises `OSError` and `BadInput`.

    `seconds` limits each wait for the server.
    """
    client = HttpClient(environ, Bounds(connect=seconds, idle=seconds, size=math.inf))
    own_headers = list(_REQUEST_HEADERS)
    if first:
        own_headers.append(("range", f"bytes={first}-"))
    with start_blocking_portal() as portal:
        for _ in range(1 + _MAX_REDIRECTS):
            parts = urlsplit(url)
            # A user name and a password are not sent.
            _, _, host_and_port = parts.netloc.rpartition("@")
            address = server_address(parts._replace(netloc=host_and_port).geturl())
            request = HttpRequest(address, [*own_headers, *options.headers(url)])
            answer = portal.call(_open, client, request, options.addresses)
            try:
                if answer.reply.status in (200, 206):
                    yield Download(portal, answer)
                    return
            finally:
                portal.call(answer.aclose)
            url = _redirect_target(url, answer.reply)
        raise OSError(f"it was redirected more than {_MAX_REDIRECTS} times")


def _redirect_target(url: str, start: ResponseStart) -> str:
    """Return the address of a redirect. Raises `StatusError` if there is no redirect."""
    location = start.headers.get("location", "")
    if start.status not in _REDIRECT_STATUSES or not location:
        raise StatusError(start)
    target = urljoin(url, location)
    if url.startswith("https:") and not target.startswith("https:"):
        raise OSError(f"{urlsplit(url).hostname} redirects to an address without TLS")
    return target


async def _open(
    client: HttpClient, request: HttpRequest, judge: Judge | None
) -> HttpResponse:
    """Send the request, and return its response. Raises `OSError` if that fails."""
    try:
        return await client.open(request, judge)
    except Unconnected as error:
        raise OSError(error.why) from error
    except Broken as error:
        raise OSError(f"the server {error}") from error


async def _read_piece(answer: HttpResponse) -> bytes:
    """Return the next piece of the body, or b"" at its end or if the connection broke."""
    try:
        return await answer.read()
    except Stalled as error:
        raise OSError(f"it {error}") from error
    except Broken:
        return b""  # as at the end; the caller checks the length
