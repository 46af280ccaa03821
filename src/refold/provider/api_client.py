"""Posts JSON to the server of a model provider, and reads the response while it arrives.

Every failure is raised as a `ProviderError` whose message is one sentence without the key.
`http` sends the requests, `error_mapping` explains status codes, and each wire parses its own
responses.
"""

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy

from msgspec.structs import replace

from refold.errors import BadInput, ProviderError, Refused, Unreachable
from refold.provider.connect import Broken, Unconnected, server_address
from refold.provider.error_mapping import Peer, failure, mask_secrets, not_a_stream_error
from refold.provider.http import Bounds, HttpClient, HttpRequest, HttpResponse

_MAX_IDLE_CONNECTIONS = 4  # kept open for the next requests
_MAX_REFUSAL_BYTES = 64 * 1024
_MAX_PAGE_BYTES = 32 * 1024 * 1024


class Http:
    """A client for the server of one provider. It can be shared by concurrent requests."""

    def __init__(
        self,
        peer: Peer,
        headers: Mapping[str, str] = {},
        *,
        secret: str = "",
        bounds: Bounds | None = None,
        environ: Mapping[str, str] = {},
    ) -> None:
        self.peer, self._secret = peer, secret
        self._client = HttpClient(environ, bounds, keep=_MAX_IDLE_CONNECTIONS)
        self._place = server_address(peer.base_url)
        self._path = self._place.target.partition("?")[0].rstrip("/")
        for name, value in headers.items():
            # The library's error would quote the whole value, which is the key.
            if not (value.isascii() and value.isprintable()):
                raise BadInput(
                    f"{peer.key_env or name} holds a character that no key has: "
                    "set it again, without quotes or line breaks"
                )
        self._headers = (
            ("user-agent", "refold"),
            ("content-type", "application/json"),
            ("accept-encoding", "identity"),
            *headers.items(),
        )

    def with_headers(self, added_headers: Mapping[str, str]) -> "Http":
        """Return a client with additional headers. Both clients share their connections."""
        http = copy(self)
        http._headers = (*self._headers, *added_headers.items())
        return http

    def post(
        self, path: str, body: bytes, *, model: str = ""
    ) -> AbstractAsyncContextManager[HttpResponse]:
        """Return a context manager that sends a POST request and yields the response.

        `model` is named in errors. Leaving the `async with` block before the end of the
        response disconnects.
        """
        return self._request(path, body, model)

    async def get(self, path: str) -> bytes:
        """Send a GET request and return the whole response."""
        async with self._request(path, body=None) as answer:
            content, is_complete = await answer.content(_MAX_PAGE_BYTES)
            if not is_complete:
                raise Broken(f"sends more than {_MAX_PAGE_BYTES >> 20} MB at {path}")
            return content

    @asynccontextmanager
    async def _request(
        self, path: str, body: bytes | None, model: str = ""
    ) -> AsyncGenerator[HttpResponse, None]:
        """Yield the response to a request. Raises `ProviderError`, without the key."""
        answer: HttpResponse | None = None
        address = replace(self._place, target=self._path + path)
        try:
            answer = await self._client.open(HttpRequest(address, self._headers, body))
            answer.reply = replace(answer.reply, model=model, now=time.time())
            await self._check(answer)
            yield answer
        except Unconnected as error:
            raise self._mask_secret(self._connection_error(error)) from error
        except Broken as error:
            raise self._mask_secret(
                Unreachable(f"{self.peer.label} at {self.peer.base_url} {error}")
            ) from error
        except ProviderError as error:
            self._mask_secret(error)
            raise
        finally:
            if answer:
                await answer.aclose()

    async def aclose(self) -> None:
        """Close idle connections. The next request opens a new one."""
        await self._client.aclose()

    async def _check(self, answer: HttpResponse) -> None:
        """Raise the error that a response reports, if it has another status than 200.

        A web page with the status 200 is an error, too.
        """
        reply = answer.reply
        if reply.status == 200 and not await _is_page(answer):
            return
        try:
            refusal, _ = await answer.content(_MAX_REFUSAL_BYTES)
        except Broken:
            refusal = answer.reply.body  # the status suffices as an explanation
        reply = replace(reply, body=refusal)
        if reply.status == 200:
            error = not_a_stream_error(self.peer, reply)
        else:
            error = failure(self.peer, reply)
        error.answer = refusal
        raise error

    def _connection_error(self, error: Unconnected) -> ProviderError:
        """Return `Refused` if another attempt would fail, too, and otherwise `Unreachable`."""
        peer = self.peer
        problem = f"cannot reach {peer.label} at {peer.base_url}: {error.why}"
        if error.lasting:
            return Refused(problem)
        url_hint = f"check {peer.url_env}" if peer.url_env else ""
        hints = [hint for hint in (url_hint, peer.advice) if hint] or ["check the network"]
        return Unreachable(f"{problem}; {' and '.join(hints)}")

    def _mask_secret(self, error: ProviderError) -> ProviderError:
        error.args = tuple(mask_secrets(str(arg), self._secret) for arg in error.args)
        return error


async def _is_page(answer: HttpResponse) -> bool:
    """Whether a response is a web page. An event stream that is labelled as HTML is not."""
    if "html" not in answer.reply.headers.get("content-type", ""):
        return False
    start = await answer.peek()
    return not start.lstrip().startswith((b"data:", b"event:", b":", b"{"))
