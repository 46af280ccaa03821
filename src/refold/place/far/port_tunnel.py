"""One TCP connection over the pipe: both ends of a forwarded port use it, and which ports there are.

Each end sends what its socket gives, and writes what comes. It sends at most `WINDOW_BYTES` that
the other end has not written yet, so a slow reader holds up its own connection alone. Bytes are
only passed on: any protocol works, and each direction ends by itself.
"""

import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

WINDOW_BYTES = 512 * 1024
PIECE_BYTES = 64 * 1024
_DATA_FRAME, _END_FRAME, _WRITTEN_FRAME = b"d", b"e", b"w"
_LISTEN_STATE = "0A"  # in /proc/net/tcp
_OWN_ADDRESSES = ("00000000", "0100007F", "0" * 32, "0" * 24 + "01000000")


class PortTunnel:
    """One end. `run` returns when both directions have ended; `close` ends them.

    `read_start` reads the first piece, at most `PIECE_BYTES`; b"" ends that direction.
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
        self._credit, self._waiting_bytes = WINDOW_BYTES, 0
        self._waiting: deque[bytes] = deque()
        self._input_ended = self._closed = self._finishes = self._has_written = False

    def run(self) -> None:
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
        """Take what the other end sent. It never blocks."""
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
            too_much = self._waiting_bytes > WINDOW_BYTES
        if too_much:
            self.close()

    def finish(self) -> None:
        """The other end has gone: write what it sent, then end."""
        with self._news:
            self._input_ended = self._finishes = True
            self._news.notify_all()
            has_written = self._has_written
        if has_written:
            self.close()

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        with suppress(OSError):
            while True:
                data = self._read_next(self._connection)
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
                self._has_written, finishes = True, self._finishes
            if finishes:
                self.close()
        except OSError:
            self.close()  # the program has closed it: nothing more is read either


def _read_piece(connection: socket.socket) -> bytes:
    return connection.recv(PIECE_BYTES)


def connect_to_port(port: int) -> socket.socket:
    """A connection to a server of this machine. Raises `OSError`."""
    try:
        connection = socket.create_connection(("127.0.0.1", port), 10)
    except OSError:
        connection = socket.create_connection(("::1", port), 10)
    connection.settimeout(None)
    return connection


def listening_ports() -> list[int]:
    """The ports on which programs of this user listen. Linux only; elsewhere none."""
    ports: set[int] = set()
    user = str(os.getuid())
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{name}", encoding="ascii") as table:
                rows = [line.split() for line in table][1:]
        except OSError:
            continue
        for row in rows:
            address, _, port = row[1].partition(":")
            if row[3] == _LISTEN_STATE and row[7] == user and address in _OWN_ADDRESSES:
                ports.add(int(port, 16))
    return sorted(ports)
