"""A request is written as HTTP/1.1 says, and nothing in it can be read as another one."""

import subprocess
import sys
from typing import Any

import anyio
import pytest

from refold.errors import BadInput
from refold.provider.http import HttpConnection


class Sent:
    """A connection that records the bytes that are sent over it."""

    def __init__(self) -> None:
        self.data = b""

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self.data += data


def send_request(
    target: str, headers: tuple[tuple[str, str], ...], body: bytes | None
) -> bytes:
    stream: Any = Sent()

    async def main() -> None:
        await HttpConnection(stream).send(target, headers, body, 5)

    anyio.run(main)
    return stream.data


def test_request_body_is_sent_with_its_length() -> None:
    assert send_request("/v1/chat", (("host", "here:80"), ("x-a", "b c")), b"{}") == (
        b"POST /v1/chat HTTP/1.1\r\nhost: here:80\r\nx-a: b c\r\ncontent-length: 2\r\n\r\n{}"
    )


def test_request_without_a_body_is_a_get() -> None:
    assert (
        send_request("/", (("host", "here"),), None)
        == b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("target", "header"),
    [
        ("/a HTTP/1.1\r\nx: y", ("x", "y")),
        ("/a b", ("x", "y")),
        ("/ä", ("x", "y")),
        ("/", ("x", "y\r\nhost: other")),
        ("/", ("x", "y\nz")),
        ("/", ("x", "y\0")),
        ("/", ("x y", "z")),
        ("/", ("x", "ä")),
    ],
)
def test_header_that_would_inject_another_request_is_not_sent(
    target: str, header: tuple[str, str]
) -> None:
    with pytest.raises(BadInput, match="does not allow"):
        send_request(target, (("host", "here"), header), b"{}")


def test_importing_a_provider_does_not_import_h11() -> None:
    code = "import sys, refold.provider.openai_chat; print('h11' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"
