"""Forwards ports of a place to this machine: a server there is reached at 127.0.0.1 here.

Only this machine can connect. `far.port_tunnel` transfers the data of a connection.

Browsers must use a special name below `localhost`. At 127.0.0.1 they would send the place the
cookies of all servers of this machine, refold's included, because cookies do not depend on the
port.
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
    """Return the ports in the place on which programs of its user listen."""
    return pipe.ask("ports").read(_Ports).ports


class ForwardedPort:
    """Listens on this machine, and forwards connections to `port` in the place.

    `local` is the port number on this machine: the same number if it is free. `link` is the
    address for browsers. A browser that uses another name than one below `localhost` is
    redirected to `link`.
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
        """Stop listening, and close the open connections."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for tunnel in tuple(self._tunnels):
            tunnel.close()

    def _accept(self) -> None:
        """Forward each client in a thread of its own, until the listener is closed."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # the listener was closed
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Forward one client's connection to the place until it ends."""
        # Frames may arrive before `begin` returns; the tunnel sends nothing before it runs.
        tunnel = PortTunnel(connection, lambda raw: call.send_input(raw), self._read_start)

        def on_frame(answer: PlaceAnswer) -> None:
            """Pass data on to the client. Every other frame is the last one."""
            kind = answer.record.get("kind")
            if kind == "data":
                tunnel.on_frame(answer.raw)
            else:
                tunnel.finish()

        try:
            call = self._pipe.begin("connect", on_frame=on_frame, port=self.port)
        except ToolFailed:
            connection.close()  # the place cannot be reached
            return
        self._tunnels.add(tunnel)
        if self._closed:  # closed in the meantime
            tunnel.close()
        try:
            tunnel.run()
            call.stop()
        finally:
            self._tunnels.discard(tunnel)

    def _read_start(self, connection: socket.socket) -> bytes:
        """Return the first bytes of a client. Redirect a browser that uses a wrong host name.

        For a redirected browser, return b"".
        """
        data = connection.recv(PIECE_BYTES)
        if not (request := _REQUEST_PATTERN.match(data)):
            return data
        while b"\r\n\r\n" not in data and len(data) < PIECE_BYTES:
            if not (piece := connection.recv(PIECE_BYTES - len(data))):
                return data
            data += piece
        head, _, _ = data.partition(b"\r\n\r\n")
        if not _BROWSER_PATTERN.search(head):
            return data
        if host := _HOST_PATTERN.search(head):
            host_name, _, _port = host[1].lower().partition(b":")
            if host_name.endswith(_BROWSER_DOMAIN.encode()):
                return data
        response = _REDIRECT_RESPONSE.format(link=self.link, path=request[1].decode())
        connection.sendall(response.encode())
        connection.shutdown(socket.SHUT_RDWR)
        return b""


def _host_name(address: str) -> str:
    """Return a place's own host name, which separates its cookies and its storage."""
    return f"place-{sha256(address.encode(errors='surrogateescape')).hexdigest()[:8]}{_BROWSER_DOMAIN}"


def _listen(port: int) -> socket.socket:
    """Return a listening socket on `port`, or on a free port if `port` is in use."""
    for number in (port, 0):  # 0 means any free port
        listener = socket.socket()
        try:
            listener.bind((_LOOPBACK_HOST, number))
        except OSError:
            listener.close()
            continue
        listener.listen()
        return listener
    raise BadInput(f"no port of this machine is free for port {port} of the place")
