"""Runs the filter of named hosts, and servers that it may or must not reach."""

import socket
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress

from refold.network.filter import HostFilter
from refold.values.display import HostAttempt
from refold.values.hosts import ReachableHosts

SECONDS = 5.0


class LoopbackServer:
    """Answers each request with the name of the server, and remembers the received bytes.

    With `location`, the answer is a redirect to this address.
    """

    def __init__(self, name: str, *, host: str = "127.0.0.1", location: str = "") -> None:
        self.name, self.received = name, list[bytes]()
        self._status = f"302 Found\r\nLocation: {location}" if location else "200 OK"
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(SECONDS)
            data = b""
            while b"\r\n\r\n" not in data:
                if not (piece := client.recv(65536)):
                    return
                data += piece
            self.received.append(data)
            body = f"{self.name}\n".encode()
            head = f"HTTP/1.1 {self._status}\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            with suppress(TimeoutError):  # later bytes of this connection
                client.settimeout(0.2)
                while more := client.recv(65536):
                    self.received[-1] += more

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # a thread waits in `accept`
        self._listener.close()


class Filtered:
    """A client of the filter."""

    def __init__(self, port: int, attempts: Callable[[], Sequence[HostAttempt]]) -> None:
        self.port, self.attempts = port, attempts

    def ask(self, *pieces: bytes) -> bytes:
        """Send these bytes, and return the whole answer."""
        with socket.create_connection(("127.0.0.1", self.port), SECONDS) as client:
            answer = b""
            with suppress(ConnectionResetError, BrokenPipeError):
                for piece in pieces:
                    client.sendall(piece)
                while data := client.recv(65536):
                    answer += data
            return answer

    def status(self, *pieces: bytes) -> int:
        answer = self.ask(*pieces)
        return int(answer.split(b" ")[1]) if answer else 0


@contextmanager
def run_filtered(
    hosts: ReachableHosts,
    names: Mapping[str, Sequence[str]] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    idle_seconds: float = SECONDS,
) -> Generator[Filtered]:
    """Run the filter. `names` are the answers of a name server, by host.

    The machine resolves other names.
    """

    async def resolve(host: str, port: int) -> Sequence[str]:
        known = names or {}
        if host in known:
            return known[host]
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(str(row[4][0]) for row in rows))

    serving = HostFilter(environ or {}, resolve=resolve, idle_seconds=idle_seconds)
    serving.begin()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    end = serving.open(listener, hosts)
    served = Filtered(port, end)
    try:
        yield served
    finally:
        end()
        serving.close()
