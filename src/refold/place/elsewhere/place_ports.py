"""Ports of a place, forwarded to this machine: a server there is reached at 127.0.0.1 here.

Nothing else than this machine can connect. What a connection is, is in `far.port_tunnel`.
"""

import socket
import threading
from contextlib import suppress

from msgspec import Struct

from refold.errors import BadInput, ToolFailed
from refold.place.elsewhere.pipe import Pipe, PlaceAnswer
from refold.place.far.port_tunnel import PortTunnel

_LOOPBACK_HOST = "127.0.0.1"


class _Ports(Struct, frozen=True):
    ports: list[int]


def ports_of(pipe: Pipe) -> list[int]:
    """The ports on which programs of the user listen in the place."""
    return pipe.ask("ports").read(_Ports).ports


class ForwardedPort:
    """A listener here for `port` there. `local` is its number: the same, if that is free."""

    def __init__(self, pipe: Pipe, port: int) -> None:
        self._pipe, self.port = pipe, port
        self._listener = _listen(port)
        self.local: int = self._listener.getsockname()[1]
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
        tunnel = PortTunnel(connection, lambda raw: call.send_input(raw))

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
