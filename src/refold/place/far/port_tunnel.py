"""Transfers a TCP connection over the pipe between a place and this machine.

Both ends of a forwarded port use it. Each end sends what it reads from its socket, and writes
to the socket what it receives. An end stops sending while the other end has `WINDOW_BYTES`
still to write, so a slow reader delays only its own connection. Bytes are not changed, and each
direction ends separately.

`listening_ports` lists the ports of this machine that can be forwarded.
"""

import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

_CONNECT_SECONDS = 10.0
WINDOW_BYTES = 512 * 1024
PIECE_BYTES = 64 * 1024
_DATA_FRAME, _END_FRAME, _WRITTEN_FRAME = b"d", b"e", b"w"
_LISTEN_STATE = "0A"  # the state of a listening socket in /proc/net/tcp
# 0.0.0.0, 127.0.0.1, :: and ::1, as they are written there.
_OWN_ADDRESSES = ("00000000", "0100007F", "0" * 32, "0" * 24 + "01000000")


class PortTunnel:
    """One end of a tunnel for the socket `connection`.

    `send` sends a frame to the other end. `read_start`, if given, reads the first piece from
    the socket, at most `PIECE_BYTES`; b"" ends that direction. `run` returns when both
    directions have ended.
    """

    def __init__(
        self,
        connection: socket.socket,
        send: Callable[[bytes], None],
        read_start: Callable[[socket.socket], bytes] | None = None,
    ) -> None:
        self._connection, self._send = connection, send
        self._read_next = read_start or _read_piece
        self._news = threading.Condition()
        self._credit = WINDOW_BYTES  # how many bytes may be sent now
        self._waiting: deque[bytes] = deque()  # data that arrived and is not yet written
        self._waiting_bytes = 0
        self._input_ended = False  # the other end sends no more data
        self._has_written = False  # all data, after the input has ended
        self._finishes = False  # the tunnel is closed after all data is written
        self._closed = False

    def run(self) -> None:
        """Copy in both directions until both have ended, then close the connection."""
        writer = threading.Thread(target=self._write, daemon=True)
        writer.start()
        try:
            self._read()
            writer.join()
        finally:
            self.close()
            writer.join()
            self._connection.close()

    def on_frame(self, raw: bytes) -> None:
        """Process a frame from the other end, without blocking."""
        kind, data = raw[:1], raw[1:]
        with self._news:
            if kind == _DATA_FRAME:
                self._waiting.append(data)
                self._waiting_bytes += len(data)
            elif kind == _WRITTEN_FRAME:
                self._credit = min(self._credit + int(data or b"0"), WINDOW_BYTES)
            elif kind == _END_FRAME:
                self._input_ended = True
            self._news.notify_all()
            exceeds_window = self._waiting_bytes > WINDOW_BYTES
        if exceeds_window:  # the other end sends more than it may
            self.close()

    def finish(self) -> None:
        """Close the tunnel after writing what has arrived, because the other end has left."""
        with self._news:
            self._input_ended = self._finishes = True
            self._news.notify_all()
            has_written = self._has_written
        if has_written:
            self.close()

    def close(self) -> None:
        """End both directions at once. What still waits is not written."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        """Send what the socket receives, as far as the other end permits, and then the end."""
        with suppress(OSError):
            while True:
                data = self._read_next(self._connection)
                # only the first piece may be read in another way
                self._read_next = _read_piece
                if not data:
                    break
                with self._news:
                    self._news.wait_for(self._may_send)
                    if self._closed:
                        return
                    self._credit -= len(data)
                self._send(_DATA_FRAME + data)
        self._send(_END_FRAME)

    def _may_send(self) -> bool:
        return self._closed or self._credit >= PIECE_BYTES

    def _write(self) -> None:
        """Write what has arrived to the socket, and report to the other end how much."""
        try:
            while True:
                with self._news:
                    self._news.wait_for(
                        lambda: self._closed or self._waiting or self._input_ended
                    )
                    if self._closed:
                        return
                    if not self._waiting:
                        break
                    data = self._waiting.popleft()
                self._connection.sendall(data)
                with self._news:
                    self._waiting_bytes -= len(data)
                self._send(_WRITTEN_FRAME + str(len(data)).encode())
            self._connection.shutdown(socket.SHUT_WR)
            with self._news:
                self._has_written = True
                is_finishing = self._finishes
            if is_finishing:
                self.close()
        except OSError:
            # the program has closed the socket: nothing more can be read either
            self.close()


def _read_piece(connection: socket.socket) -> bytes:
    return connection.recv(PIECE_BYTES)


def connect_to_port(port: int) -> socket.socket:
    """Connect to a server on this machine, by IPv4 or else by IPv6. Raises `OSError`."""
    try:
        connection = socket.create_connection(("127.0.0.1", port), _CONNECT_SECONDS)
    except OSError:
        connection = socket.create_connection(("::1", port), _CONNECT_SECONDS)
    connection.settimeout(None)  # the limit is only for connecting
    return connection


def listening_ports() -> list[int]:
    """Return the ports on which programs of this user listen; none if not Linux."""
    ports: set[int] = set()
    user = str(os.getuid())
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{name}", encoding="ascii") as table:
                rows = [line.split() for line in table][1:]
        except OSError:
            continue
        for row in rows:
            _, local_address, _, state, _, _, _, owner, *_ = row
            address, _, port = local_address.partition(":")
            if state == _LISTEN_STATE and owner == user and address in _OWN_ADDRESSES:
                ports.add(int(port, 16))
    return sorted(ports)
