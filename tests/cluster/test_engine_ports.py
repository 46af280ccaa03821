"""`refold cluster check` finds ports of Temporal and NATS that are open to everyone, and `status` counts."""

import json
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from refold.cluster.engine_ports import open_ports


@contextmanager
def server(answer: bytes, *, waits: bool = False) -> Generator[str]:
    """Yield a server that sends this to the first client, or, if it `waits`, after what it
    receives.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                if waits:
                    connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("info", "is_open"),
    [
        ({}, True),
        ({"auth_required": True}, False),
        ({"tls_required": True}, True),
        ({"tls_required": True, "tls_verify": True}, False),
    ],
)
def test_open_ports_reports_nats_without_a_login(
    info: dict[str, bool], is_open: bool
) -> None:
    with server(b"INFO " + json.dumps(info).encode() + b"\r\n") as address:
        problems = open_ports("", f"nats://user:secret@{address}")

    assert len(problems) == (1 if is_open else 0)
    assert all(address in problem for problem in problems)
    assert "secret" not in "".join(problems)


@pytest.mark.parametrize(
    ("answer", "is_open"),
    [
        (bytes(3) + b"\x04" + bytes(5), True),
        (b"\x15\x03\x01\x00\x02\x02\x16", False),
        (b"", False),
    ],
)
def test_open_ports_reports_temporal_without_tls(answer: bytes, is_open: bool) -> None:
    with server(answer, waits=True) as address:
        problems = open_ports(address, "")

    assert len(problems) == (1 if is_open else 0)
    assert all(address in problem for problem in problems)


def test_open_ports_reports_no_unreachable_or_unconfigured_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert open_ports("", "") == []
    assert open_ports(f"127.0.0.1:{port}", f"nats://127.0.0.1:{port}") == []
