"""Checks whether the ports of Temporal and NATS are open to everyone.

A process that reaches an open port of Temporal can run sessions. A process that reaches an
open port of NATS can forge live text.
"""

import socket
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

_CONNECT_SECONDS = 5.0
_MAX_INFO_BYTES = 65_536
_TEMPORAL_PORT, _NATS_PORT = 7233, 4222
# The beginning of an HTTP/2 connection, and an empty frame of settings.
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
_SETTINGS_FRAME_TYPE = b"\x04"
_FRAME_HEADER_BYTES, _FRAME_TYPE_BYTE = 9, 3
_NATS_INFO_START = b"INFO "  # followed by JSON
_RECEIVE_BYTES = 4096


class _NatsInfo(Struct, frozen=True):
    auth_required: bool = False
    tls_verify: bool = False


def open_ports(temporal: str, nats: str) -> Sequence[str]:
    """Return sentences about what is unsafe at `temporal` (HOST:PORT) and `nats` (a URL).

    An empty address is skipped, and so is a server that cannot be reached.
    """
    problems = list[str]()
    with suppress(OSError):
        temporal_host, temporal_port = _address(f"//{temporal}", _TEMPORAL_PORT)
        if temporal and _accepts_plain_http2(temporal_host, temporal_port):
            problems.append(
                f"Temporal at {temporal} takes requests without TLS, so every client that reaches it "
                "runs workflows: demand client certificates"
            )
    with suppress(OSError):
        nats_host, nats_port = _address(nats, _NATS_PORT)
        if nats and _admits_anyone(nats_host, nats_port):
            problems.append(
                f"NATS at {nats_host}:{nats_port} asks for neither a login nor a certificate, "
                "so every client that reaches it can forge live text: give its users permissions"
            )
    return problems


def _address(url: str, default_port: int) -> tuple[str, int]:
    """Return host and port of a URL."""
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or default_port


def _accepts_plain_http2(host: str, port: int) -> bool:
    """Return whether a server answers HTTP/2 without TLS."""
    with socket.create_connection((host, port), _CONNECT_SECONDS) as connection:
        connection.sendall(_HTTP2_PREFACE)
        header = connection.recv(_FRAME_HEADER_BYTES)  # of the server's first frame
        frame_type = header[_FRAME_TYPE_BYTE : _FRAME_TYPE_BYTE + 1]
        return frame_type == _SETTINGS_FRAME_TYPE


def _admits_anyone(host: str, port: int) -> bool:
    """Return whether NATS needs neither a login nor a client certificate.

    NATS says this in the first line that it sends.
    """
    with socket.create_connection((host, port), _CONNECT_SECONDS) as connection:
        line = b""
        while not line.endswith(b"\n") and len(line) < _MAX_INFO_BYTES:
            piece = connection.recv(_RECEIVE_BYTES)
            if not piece:  # the server has closed the connection
                return False
            line += piece
    if not line.startswith(_NATS_INFO_START):
        return False
    info = msgspec.json.decode(line.removeprefix(_NATS_INFO_START), type=_NatsInfo)
    return not (info.auth_required or info.tls_verify)
