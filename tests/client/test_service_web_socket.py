"""The WebSocket with which a terminal joins a session of a service."""

from collections import deque
from collections.abc import Sequence

import anyio
import pytest
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from refold.client.service.web_socket import Lost, WebSocket

pytestmark = pytest.mark.anyio


class Peer:
    """The stream to a server that answers the handshake with `frames` in the same packet."""

    def __init__(self, frames: Sequence[Frame], *, is_silent: bool = False) -> None:
        self._server, self._frames, self._is_silent = ServerProtocol(), frames, is_silent
        self.received = list[Frame]()
        self._answers = deque[bytes]()

    async def send(self, data: bytes) -> None:
        self._server.receive_data(data)
        for event in self._server.events_received():
            if isinstance(event, Request):
                self._server.send_response(self._server.accept(event))
                for frame in self._frames:
                    self._server.send_frame(frame)
            elif isinstance(event, Frame):
                self.received.append(event)
        answer = b"".join(self._server.data_to_send())
        if answer and not (self._is_silent and self.received):
            self._answers.append(answer)

    async def receive(self, _: int = 0) -> bytes:
        if not self._answers:
            await anyio.sleep_forever()
        return self._answers.popleft()


async def test_messages_in_the_packet_of_the_handshake_are_received() -> None:
    peer = Peer([
        Frame(Opcode.TEXT, b"one"),
        Frame(Opcode.TEXT, b"tw", fin=False), Frame(Opcode.CONT, b"o"),
    ])  # fmt: skip
    socket = WebSocket(peer)  # type: ignore[arg-type]

    answer = await socket.shake_hands(
        "http://127.0.0.1:1/ws", [("authorization", "Bearer x")]
    )
    messages = socket.messages()
    received = [await anext(messages), await anext(messages)]
    await messages.aclose()
    await socket.send(b"an order")

    assert answer.status_code == 101
    assert received == [b"one", b"two"]
    assert [frame.data for frame in peer.received] == [b"an order"]


async def test_a_server_that_answers_no_ping_is_lost() -> None:
    peer = Peer([], is_silent=True)
    socket = WebSocket(peer, ping_seconds=0.01)  # type: ignore[arg-type]

    await socket.shake_hands("http://127.0.0.1:1/ws", [])
    messages = socket.messages()
    with pytest.raises(Lost, match=r"has sent nothing for 0\.02 s"):
        await anext(messages)

    assert [frame.opcode for frame in peer.received] == [Opcode.PING]
