"""Ports of a place, forwarded to this machine: a server there is reached at 127.0.0.1 here.

Nothing else than this machine can connect. What a connection is, is in `far.port_tunnel`.

Browsers reach it by a name of its own below `localhost`. At 127.0.0.1 they would send the place the
cookies of all servers of this machine, refold's among them, because cookies have no port.
"""

import re
import socket
import threading
from contextlib import suppress
from hashlib import sha256

from msgspec import Struct

from refold.errors import BadInput, ToolFailed
from refold.place.elsewhere.pipe import Pipe, PlaceAnswer
from refold.place.far.port_tunnel import PIECE_BYTES, PortTunnel

_LOOPBACK_HOST = "127.0.0.1"
_BROWSER_DOMAIN = ".localhost"
_REQUEST_PATTERN = re.compile(rb"[A-Z]{3,10} (/[!-~]*) HTTP/1\.[01]\r\n")
_BROWSER_PATTERN = re.compile(rb"\r\n(?:sec-fetch-[a-z]+:|cookie:[^\r\n]*refold-)", re.I)
_HOST_PATTERN = re.compile(rb"\r\nhost:[ \t]*([^\r\n]*)", re.I)
_REDIRECT_RESPONSE = (
    "HTTP/1.1 307 Temporary Redirect\r\nLocation: {link}{path}\r\n"
    "Content-Length: 0\r\nConnection: close\r\n\r\n"
)


class _Ports(Struct, frozen=True):
    ports: list[int]


def ports_of(pipe: Pipe) -> list[int]:
    """The ports on which programs of the user listen in the place."""
    return pipe.ask("ports").read(_Ports).ports


class ForwardedPort:
    """A listener here for `port` there. `local` is its number: the same, if that is free.

    `link` is for browsers; one that comes by another name is led there.
    """

    def __init__(self, pipe: Pipe, port: int) -> None:
        self._pipe, self.port = pipe, port
        self._listener = _listen(port)
        self.local: int = self._listener.getsockname()[1]
        self.link = f"http://{_host_name(pipe.address.text)}:{self.local}"
        self._tunnels = set[PortTunnel]()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections, and end those that are open."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for tunnel in tuple(self._tunnels):
            tunnel.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # it was closed
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # Frames may come before `begin` returns; the tunnel sends none before it runs.
        tunnel = PortTunnel(connection, lambda raw: call.send_input(raw), self._read_start)

        def on_frame(answer: PlaceAnswer) -> None:
            kind = answer.record.get("kind")
            if kind == "data":
                tunnel.on_frame(answer.raw)
            else:
                tunnel.finish()

        try:
            call = self._pipe.begin("connect", b"", on_frame, port=self.port)
        except ToolFailed:
            connection.close()  # the place cannot be reached
            return
        self._tunnels.add(tunnel)
        if self._closed:  # meanwhile
            tunnel.close()
        try:
            tunnel.run()
            call.stop()
        finally:
            self._tunnels.discard(tunnel)

    def _read_start(self, connection: socket.socket) -> bytes:
        """Read the first bytes of a client; b"" if it is a browser, which was redirected to
        `link`.
        """
        data = connection.recv(PIECE_BYTES)
        if not (request := _REQUEST_PATTERN.match(data)):
            return data
        while b"\r\n\r\n" not in data and len(data) < PIECE_BYTES:
            if not (piece := connection.recv(PIECE_BYTES - len(data))):
                return data
            data += piece
        head = data.partition(b"\r\n\r\n")[0]
        host = _HOST_PATTERN.search(head)
        if host and host[1].lower().partition(b":")[0].endswith(_BROWSER_DOMAIN.encode()):
            return data
        if not _BROWSER_PATTERN.search(head):
            return data
        response = _REDIRECT_RESPONSE.format(link=self.link, path=request[1].decode())
        connection.sendall(response.encode())
        connection.shutdown(socket.SHUT_RDWR)
        return b""


def _host_name(address: str) -> str:
    """A name for the place: its cookies and storage are not those of another one."""
    return f"place-{sha256(address.encode(errors='surrogateescape')).hexdigest()[:8]}{_BROWSER_DOMAIN}"


def _listen(port: int) -> socket.socket:
    for number in (port, 0):
        listener = socket.socket()
        try:
            listener.bind((_LOOPBACK_HOST, number))
        except OSError:
            listener.close()
            continue
        listener.listen()
        return listener
    raise BadInput(f"no port of this machine is free for port {port} of the place")
