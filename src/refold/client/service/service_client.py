"""Sends requests to a service, and opens its WebSocket, as the person of a token.

Proxies and certificates are those of `provider.connect`. After a `Disconnected` error,
another attempt may succeed; after `BadInput` it would fail again. `joined_session` decides
what is requested.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qs, quote, urlsplit

import anyio
import msgspec
from msgspec import Struct

from refold._version import __version__
from refold.client.service.web_socket import Lost, WebSocket
from refold.errors import BadInput, Disconnected, SetupFault
from refold.provider.connect import Broken, Unconnected, dial, server_address
from refold.provider.http import Bounds, HttpClient, HttpRequest, connection_failure
from refold.values.web_address import WebAddress, address_kind

if TYPE_CHECKING:
    from anyio.abc import ByteStream

T = TypeVar("T")
_BOUNDS = Bounds(connect=10.0, idle=30.0, whole=600.0, size=1024 * 1024 * 1024)
_MAX_QUOTED_CHARS = 200
_MAX_LISTED_IDS = 5  # ids of sessions in an error
_MAX_ANSWER_BYTES = 40  # of an answer in an error
_RETRY_STATUSES = frozenset({429, 502, 503, 504})
_NO_SERVICE = "{origin} is not the address of a refold service: it answered with {answer}"
_REFUSED_TOKEN = (
    "{origin} does not accept this token: it was revoked, has expired, or is of another service. "
    "Make another one there, and set REFOLD_TOKEN ({reason})"
)


class ServiceAddress(Struct, frozen=True):
    """The address of a service, and the id of a session; "" if the address names no session."""

    place: WebAddress
    session: str = ""


class ServiceSession(Struct, frozen=True):
    """A session in the list of a service."""

    id: str
    title: str = ""
    name: str = ""
    changed: float = 0.0


class _Health(Struct, frozen=True):
    version: str


class _Problem(Struct, frozen=True):
    kind: str = ""
    reason: str = ""


def parse_service_url(text: str) -> ServiceAddress:
    """Parse the address of a service, or of a page that shows a session.

    Raises `BadInput` for an invalid address. An address of another machine without TLS is
    invalid, because others could read the token on its way.
    """
    place = server_address(text)
    if not place.tls and not _is_this_machine(place.host):
        raise BadInput(
            f"{place.origin!r} has no TLS, so others could read your token on its way: use an "
            "address that begins with https://"
        )
    # A page of a session has the id of the session as `?c=…`.
    query = parse_qs(urlsplit(text.strip()).query)
    session = query["c"][0] if "c" in query else ""
    return ServiceAddress(server_address(place.origin), session)


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return address_kind(host) == "loopback"
    except ValueError:  # a name, and not an address
        return False


class ServiceClient:
    """Sends requests to one service. Close it with `aclose`."""

    def __init__(self, place: WebAddress, token: str, environ: Mapping[str, str]) -> None:
        self.origin = place.origin
        self._place = place
        self._environ = environ
        self._http = HttpClient(environ, _BOUNDS, keep=1)
        self._headers = (("authorization", f"Bearer {token}"), ("user-agent", "refold"))

    async def check(self) -> None:
        """Raise `BadInput` unless a service that accepts the token is at the address."""
        await self._version()

    async def find_session(self, text: str) -> str:
        """Return the full id of the session that `text` names.

        `text` is the id or the name of the session, or the beginning of either. Raises
        `BadInput` if no session matches, or more than one.
        """
        status, _ = await self._ask(f"/api/conversations/{quote(text, safe='')}")
        if status == 200:  # it is a full id, perhaps of a session that lists do not show
            return text
        sessions = await self.sessions()
        matches = [session.id for session in sessions if session.name == text]
        if not matches:
            matches = [
                session.id
                for session in sessions
                if session.id.startswith(text) or session.name.startswith(text)
            ]
        if len(matches) == 1:
            return matches[0]
        if matches:
            first_ids = ", ".join(matches[:_MAX_LISTED_IDS])
            reason = f"several sessions begin so: {first_ids}"
        else:
            reason = "its page lists those of your tenant"
        raise BadInput(f"{self.origin} has no session {text!r} for you: {reason}")

    async def sessions(self) -> Sequence[ServiceSession]:
        """Return the sessions that the person of the token can see, the last used first."""
        data = await self.get("/api/conversations?limit=1000")
        sessions = self._decode(data, list[ServiceSession])
        return sorted(sessions, key=lambda session: session.changed, reverse=True)

    async def lines(self, session: str, after: int) -> Sequence[bytes]:
        """Return the lines of a journal after event `after`."""
        path = f"/api/conversations/{quote(session, safe='')}/lines?after={after}"
        status, data = await self._ask(path)
        # An older service does not have this path; a missing session is reported as `NotThere`.
        if status == 404 and self._problem(data).kind != "NotThere":
            version = await self._version()
            raise BadInput(
                f"{self.origin} is refold {version}, whose sessions cannot be joined through its "
                f"address by this refold {__version__}: use the newer version on both sides"
            )
        self._raise_error(status, data)
        return data.split(b"\n")[:-1]  # each line ends with a line break

    async def blob(self, session: str, name: str) -> bytes:
        return await self.get(f"/api/conversations/{quote(session, safe='')}/blobs/{name}")

    async def get(self, path: str) -> bytes:
        status, data = await self._ask(path)
        self._raise_error(status, data)
        return data

    @asynccontextmanager
    async def follow(self, session: str) -> AsyncGenerator[WebSocket]:
        """Open the WebSocket of a session. The first documents are those of the open turn."""
        path = f"/api/conversations/{quote(session, safe='')}/ws?newest=1&journal=true"
        stream = await self._connect()
        try:
            socket = WebSocket(stream)
            with anyio.move_on_after(_BOUNDS.idle) as waiting:
                answer = await socket.shake_hands(self.origin + path, self._headers)
                self._raise_error(answer.status_code, bytes(answer.body or b""))
            if waiting.cancelled_caught:
                raise self._unreachable_error(f"it has sent nothing for {_BOUNDS.idle:g} s")
            yield socket
        except Lost as error:
            raise self._unreachable_error(str(error)) from error
        finally:
            await anyio.aclose_forcefully(stream)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _version(self) -> str:
        return self._decode(await self.get("/api/health"), _Health).version

    async def _connect(self) -> "ByteStream":
        """Open a connection for a WebSocket. Raises `BadInput` if trying again would not
        help, and otherwise `Disconnected`.
        """
        try:
            with anyio.fail_after(_BOUNDS.connect):
                return await dial(self._place, self._environ)
        except TimeoutError as error:
            raise self._unreachable_error(
                f"no connection within {_BOUNDS.connect:g} s"
            ) from error
        except SetupFault as error:
            raise BadInput(f"{self.origin} cannot be reached: {error}") from error
        except OSError as error:
            raise self._unreachable_error(connection_failure(error)) from error

    async def _ask(self, path: str) -> tuple[int, bytes]:
        """Send a GET request, and return the status and the body of the answer."""
        place = server_address(self.origin + path)
        try:
            answer = await self._http.open(HttpRequest(place, self._headers))
            try:
                data, _ = await answer.content(int(_BOUNDS.size))
                return answer.reply.status, data
            finally:
                await answer.aclose()
        except Unconnected as error:
            if error.lasting:  # trying again would not help
                raise BadInput(f"{self.origin} cannot be reached: {error.why}") from error
            raise self._unreachable_error(error.why) from error
        except Broken as error:  # its message is a predicate, as in "closed the connection"
            raise self._unreachable_error(f"it {error}") from error

    def _unreachable_error(self, reason: str) -> Disconnected:
        return Disconnected(f"{self.origin} cannot be reached now: {reason}")

    def _raise_error(self, status: int, data: bytes) -> None:
        """Raise the error that an answer with this status reports. Do nothing if it reports
        none.
        """
        if status in (200, 101):
            return
        problem = self._problem(data)
        reason = problem.reason[:_MAX_QUOTED_CHARS] or f"status {status}"
        if status == 401 and problem.kind:
            raise BadInput(_REFUSED_TOKEN.format(origin=self.origin, reason=reason))
        if status in _RETRY_STATUSES:
            raise self._unreachable_error(reason)
        if not problem.kind:
            raise BadInput(
                _NO_SERVICE.format(origin=self.origin, answer=f"status {status}")
            )
        raise BadInput(f"{self.origin}: {reason}")

    def _problem(self, data: bytes) -> _Problem:
        """Return the error in an answer; an empty one if the answer is not from refold."""
        try:
            return msgspec.json.decode(data, type=_Problem)
        except ValueError:
            return _Problem()

    def _decode(self, data: bytes, kind: type[T]) -> T:
        """Decode an answer as `kind`. Raises `BadInput` if that fails: it is not a service
        of refold.
        """
        try:
            return msgspec.json.decode(data, type=kind)
        except ValueError as error:
            answer = repr(data[:_MAX_ANSWER_BYTES].decode(errors="replace"))
            message = _NO_SERVICE.format(origin=self.origin, answer=answer)
            raise BadInput(message) from error
