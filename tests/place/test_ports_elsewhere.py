"""Ports of a place are reached on this machine, as they are: any bytes, in both directions."""

import socket
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from hashlib import sha256

import pytest

from refold.place.elsewhere.address import PlaceAddress
from refold.place.elsewhere.pipe import Pipe, PlaceSettings
from refold.place.elsewhere.place_ports import ForwardedPort, ports_of

pytestmark = pytest.mark.slow  # the connection sends the program
_SETTINGS = PlaceSettings({"profile": "off", "network": True, "user_namespaces": False})
_LARGE_BYTES = 100 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Generator[Pipe]:
    folder = tmp_path_factory.mktemp("place")
    environ = {"HOME": str(folder), "PATH": "/usr/bin:/bin:/usr/local/bin"}
    pipe = Pipe(PlaceAddress("cmd:sh", "cmd", ("sh",), str(folder)), _SETTINGS, environ)
    yield pipe
    pipe.close()


@pytest.fixture
def serve() -> Generator[Callable[[Callable[[socket.socket], None]], int]]:
    """Start a server that handles each connection in a thread. Returns its port."""
    listeners = list[socket.socket]()

    def start(handle: Callable[[socket.socket], None]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=run, args=(connection,), daemon=True).start()

        def run(connection: socket.socket) -> None:
            with connection:
                handle(connection)

        threading.Thread(target=accept, daemon=True).start()
        return listener.getsockname()[1]

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.fixture
def forward(pipe: Pipe) -> Generator[Callable[[int], ForwardedPort]]:
    opened = list[ForwardedPort]()

    def open_port(port: int) -> ForwardedPort:
        opened.append(ForwardedPort(pipe, port))
        return opened[-1]

    yield open_port
    for port in opened:
        port.close()


def dial(port: ForwardedPort) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port.local))
    connection.settimeout(60)
    return connection


def read_all(connection: socket.socket) -> bytes:
    pieces = list[bytes]()
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def answer_at_the_end(connection: socket.socket) -> None:
    connection.sendall(b"heard " + read_all(connection))


Serve = Callable[[Callable[[socket.socket], None]], int]
Forward = Callable[[int], ForwardedPort]


def test_ports_of_a_workspace_elsewhere_are_listed(pipe: Pipe, serve: Serve) -> None:
    assert serve(answer_at_the_end) in ports_of(pipe)


def test_a_port_of_a_workspace_elsewhere_is_forwarded_to_loopback_only(
    serve: Serve, forward: Forward
) -> None:
    port = forward(serve(answer_at_the_end))

    assert port.local != port.port  # that one is taken by the server, which is here, too
    with dial(port) as connection:
        assert connection.getpeername()[0] == "127.0.0.1"


def test_each_direction_of_a_forwarded_connection_ends_by_itself(
    serve: Serve, forward: Forward
) -> None:
    port = forward(serve(answer_at_the_end))

    with dial(port) as connection:
        connection.sendall(b"words")
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection) == b"heard words"


def test_many_forwarded_connections_are_open_at_a_time(
    serve: Serve, forward: Forward
) -> None:
    port = forward(serve(answer_at_the_end))

    connections = [dial(port) for _ in range(40)]
    for number, connection in enumerate(connections):
        connection.sendall(str(number).encode())
        connection.shutdown(socket.SHUT_WR)
    texts = [read_all(connection) for connection in connections]
    for connection in connections:
        connection.close()

    assert texts == [f"heard {number}".encode() for number in range(40)]


def test_a_large_download_through_a_forwarded_port_is_complete(
    serve: Serve, forward: Forward
) -> None:
    piece = bytes(range(256)) * (_PIECE_BYTES // 256)

    def send(connection: socket.socket) -> None:
        for _ in range(_LARGE_BYTES // _PIECE_BYTES):
            connection.sendall(piece)

    digest, size = sha256(), 0
    with dial(forward(serve(send))) as connection:
        while data := connection.recv(_PIECE_BYTES):
            digest.update(data)
            size += len(data)

    assert size == _LARGE_BYTES
    assert digest.digest() == sha256(piece * (_LARGE_BYTES // _PIECE_BYTES)).digest()


def test_a_reader_that_stops_delays_only_its_own_forwarded_connection(
    serve: Serve, forward: Forward, pipe: Pipe
) -> None:
    sent = list[int]()

    def send(connection: socket.socket) -> None:
        try:
            while True:
                sent.append(connection.send(b"x" * _PIECE_BYTES))
        except OSError:
            return

    with dial(forward(serve(send))) as stuck:
        stuck.recv(1)
        with dial(forward(serve(answer_at_the_end))) as other:
            other.sendall(b"still here")
            other.shutdown(socket.SHUT_WR)
            assert read_all(other) == b"heard still here"
        assert sum(sent) < 64 * _PIECE_BYTES  # the capacity of the sockets and the window


COOKIE_HEADER = "Cookie: refold-0123456789ab=secret"
ADDRESS_HEADER = "Host: 127.0.0.1:8000"


def ask_http(port: ForwardedPort, *headers: str) -> bytes:
    with dial(port) as connection:
        head = "\r\n".join(("GET /a?b HTTP/1.1", *headers))
        for piece in (f"{head}\r\n", "\r\n"):
            connection.sendall(piece.encode())
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


@pytest.mark.parametrize("header", [COOKIE_HEADER, "Sec-Fetch-Mode: navigate"])
def test_a_browser_is_redirected_to_a_host_name_without_cookies_of_this_machine(
    serve: Serve, forward: Forward, header: str
) -> None:
    received = list[bytes]()
    port = forward(serve(lambda connection: received.append(read_all(connection))))
    host = port.link.removeprefix("http://")

    response = ask_http(port, ADDRESS_HEADER, header)

    assert f"\r\nLocation: {port.link}/a?b\r\n".encode() in response
    assert host.partition(":")[0].endswith(".localhost")
    with dial(port) as connection:  # a connection from before has ended then
        connection.shutdown(socket.SHUT_WR)
        read_all(connection)
    assert not any(received)


def test_requests_of_programs_and_to_the_name_of_a_forwarded_port_pass(
    serve: Serve, forward: Forward
) -> None:
    port = forward(serve(answer_at_the_end))
    own = port.link.removeprefix("http://")

    by_name = ask_http(port, f"Host: {own}", "Sec-Fetch-Mode: navigate")
    of_program = ask_http(port, ADDRESS_HEADER, "Cookie: session=1")

    assert by_name.startswith(b"heard GET /a?b HTTP/1.1\r\n")
    assert of_program.startswith(b"heard GET /a?b HTTP/1.1\r\n")


def test_a_forwarded_port_without_a_server_closes_the_connection(
    serve: Serve, forward: Forward
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]

    with dial(forward(number)) as connection, suppress(ConnectionResetError):
        assert connection.recv(1) == b""


def test_closing_a_forwarded_port_ends_its_connections(
    serve: Serve, forward: Forward
) -> None:
    port = forward(serve(answer_at_the_end))
    connection = dial(port)
    connection.sendall(b"x")

    port.close()

    with connection, suppress(ConnectionResetError):
        assert connection.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port.local), 1)
