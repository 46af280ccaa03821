"""Runs an HTTP proxy and a SOCKS proxy on the loopback, and makes a certificate.

A proxy connects to the requested port on this machine, for any host.
"""

import shutil
import ssl
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute, SocketStream

OPENSSL = shutil.which("openssl") or ""
NAMES = "IP:127.0.0.1,IP:127.0.0.2,DNS:model.example,DNS:site.example"

with_openssl = pytest.mark.skipif(not OPENSSL, reason="openssl is not installed")


def new_certificate() -> bytes:
    """Return a certificate for `NAMES` that no authority has signed, and its key."""
    completed_process = subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=test", "-addext", f"subjectAltName={NAMES}",
         "-keyout", "-", "-out", "-"],
        check=True, capture_output=True,
    )  # fmt: skip
    return completed_process.stdout


def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@asynccontextmanager
async def http_proxy() -> AsyncGenerator[tuple[str, list[str]]]:
    """Yield the address of a proxy that opens tunnels, and the first lines of its requests."""
    texts = list[str]()

    async def serve(client: SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await client.receive()
        texts.append(head.decode().split("\r\n")[0])
        port = int(texts[-1].split()[1].rpartition(":")[2])
        await client.send(b"HTTP/1.1 200 OK\r\n\r\n")
        await _lead(client, port)

    async with _listening(serve) as port:
        yield f"http://user:pass@127.0.0.1:{port}", texts


@asynccontextmanager
async def socks_proxy(
    login: bytes = b"", status: int = 0
) -> AsyncGenerator[tuple[str, list[str]]]:
    """Yield the address of a SOCKS 5 proxy that answers with `status`, and the requested hosts."""
    texts = list[str]()

    async def serve(client: SocketStream) -> None:
        version, ways = await _exactly(client, 2)
        assert version == 5
        method = b"\x02" if login else b"\x00"
        assert method in await _exactly(client, ways)
        await client.send(b"\x05" + method)
        if login:
            assert await _exactly(client, len(login)) == login
            await client.send(b"\x01\x00")
        head = await _exactly(client, 4)
        length = 4 if head[3] == 1 else (await _exactly(client, 1))[0]
        host = await _exactly(client, length)
        port = int.from_bytes(await _exactly(client, 2))
        text = ".".join(map(str, host)) if head[3] == 1 else host.decode()
        texts.append(f"{text}:{port}")
        await client.send(bytes((5, status, 0, 1, 127, 0, 0, 1, 0, 0)))
        if not status:
            await _lead(client, port)

    async with _listening(serve) as port:
        yield f"127.0.0.1:{port}", texts


@asynccontextmanager
async def _listening(
    serve: Callable[[SocketStream], Awaitable[None]],
) -> AsyncGenerator[int]:
    async def converse(client: SocketStream) -> None:
        async with client:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):  # it left
                await serve(client)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, converse)
        yield listener.extra(SocketAttribute.local_port)
        group.cancel_scope.cancel()


async def _exactly(stream: SocketStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += await stream.receive(size - len(data))
    return data


async def _lead(client: SocketStream, port: int) -> None:
    async with (
        await anyio.connect_tcp("127.0.0.1", port) as server,
        anyio.create_task_group() as group,
    ):
        group.start_soon(_carry, client, server)
        group.start_soon(_carry, server, client)


async def _carry(source: ByteStream, target: ByteStream) -> None:
    try:
        async for data in source:
            await target.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    await target.aclose()
