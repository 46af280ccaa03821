"""A conversation over a WebSocket, as a page or a program has it."""

from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from refold.provider.port import RequestSent
from refold.testing.providers import Reply, ScriptedProvider
from tests.server.serving import open_server, read_until, send_order

pytestmark = pytest.mark.anyio


async def test_a_message_is_answered_with_numbered_documents(tmp_path: Path) -> None:
    async with open_server(tmp_path, "Hello.") as client:
        id_ = await client.begin()
        async with client.follow(id_) as socket:
            await send_order(socket, "user_message", text="Hi.", client_key="k1")
            stream_documents = await read_until(socket, "result")
            taken_documents = [
                data for data in stream_documents if data["type"] == "order_taken"
            ]
            taken_documents = (
                taken_documents or (await read_until(socket, "order_taken"))[-1:]
            )

    events = [
        data for data in stream_documents if "seq" in data and data["type"] != "status"
    ]
    assert [data["type"] for data in stream_documents[:2]] == ["snapshot", "status"]
    assert stream_documents[-1]["text"] == "Hello."
    assert {event["conversation"] for event in events} == {id_}
    assert [event["id"] for event in events] == sorted({event["id"] for event in events})
    assert taken_documents == [{"type": "order_taken", "client_key": "k1", "changed": True}]


async def test_invalid_frames_get_errors_and_other_clients_are_unaffected(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, "Hello.") as client:
        id_ = await client.begin()
        async with client.follow(id_) as other:
            await read_until(other, "status")
            async with client.follow(id_) as socket:
                await read_until(socket, "status")
                for frame in (
                    "{", "[]", "null", "7", '"x"', "[" * 100_000, '{"type": "' + "x" * 9999 + '"}',
                    '{"type": "user_message"}', '{"type": "user_message", "text": 7}',
                    '{"type": "user_message", "text": "a", "surplus": 1}', '{"type": "no_such"}',
                    '{"type": "set_mode", "mode": "\\ud800"}', '{"type": "user_message", "text": " "}',
                ):  # fmt: skip
                    await socket.send(frame)
                    assert (await read_until(socket, "error"))[-1]["kind"] == "BadInput"
                await socket.send(b"\x00\xff")
                with pytest.raises(ConnectionClosed) as binary:
                    await read_until(socket, "never")
            async with client.follow(id_) as socket:
                with pytest.raises(ConnectionClosed) as large:
                    await _send_and_wait(socket, "x" * 10_000_000)
            await send_order(other, "user_message", text="Hi.")
            stream_documents = await read_until(other, "result")

    assert binary.value.rcvd is not None
    assert binary.value.rcvd.code == 1003
    assert large.value.rcvd is None or large.value.rcvd.code == 1009
    assert stream_documents[-1]["text"] == "Hello."


async def test_the_first_answer_to_a_request_wins_and_the_second_client_is_informed(
    tmp_path: Path,
) -> None:
    asks = Reply("", calls=(("bash", '{"command": "touch x"}'),))
    async with open_server(tmp_path, asks, "Then not.") as client:
        id_ = await client.begin()
        async with client.follow(id_) as one, client.follow(id_) as two:
            await send_order(one, "user_message", text="Go.")
            request = (await read_until(one, "tool_approval_request"))[-1]
            assert (await read_until(two, "tool_approval_request"))[-1] == request
            data = {"call_id": request["call_id"], "allowed": False}
            await send_order(two, "tool_approval_response", **data, client_key="blind")
            blind = (await read_until(two, "error"))[-1]
            await send_order(one, "tool_approval_response", **data, hash=request["hash"])
            late_document = (await read_until(two, "tool_approval_result"))[-1]
            late = {**data, "allowed": True, "hash": request["hash"], "client_key": "late"}
            await send_order(two, "tool_approval_response", **late)
            error = (await read_until(two, "error"))[-1]
            ended = (await read_until(one, "result"))[-1]

    assert (blind["client_key"], "hash" in blind["reason"]) == ("blind", True)
    assert late_document["verdict"] == "deny"
    assert error["client_key"] == "late"
    assert ended["text"] == "Then not."
    assert not (tmp_path / "x").exists()


async def test_a_message_sent_twice_with_one_client_key_is_stored_once(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, "Hello.") as client:
        id_ = await client.begin()
        async with client.follow(id_) as socket:
            for _ in range(2):
                await send_order(socket, "user_message", text="Hi.", client_key="k")
            await read_until(socket, "result")
        messages = (await client.ask("GET", f"/api/conversations/{id_}/messages")).json

    assert [(m["role"], m["text"]) for m in messages] == [
        ("user", "Hi."),
        ("assistant", "Hello."),
    ]


async def test_a_turn_continues_after_its_client_disconnects(tmp_path: Path) -> None:
    async with open_server(tmp_path, "Hello.") as client:
        id_ = await client.begin()
        async with client.follow(id_) as socket:
            await send_order(socket, "user_message", text="Hi.", client_key="k")
            await read_until(socket, "order_taken")
        async with client.follow(id_, "0") as socket:
            stream_documents = await read_until(socket, "result")

    assert stream_documents[-1]["text"] == "Hello."


async def _send_and_wait(socket: ClientConnection, text: str) -> None:
    await socket.send(text)
    await read_until(socket, "never")


class Overheard(ScriptedProvider):
    """Reports the request that it received, as a wire does when requests are logged."""

    async def stream(self, request: Any) -> Any:
        if request.trace:
            yield RequestSent("POST https://model.example", b"{}")
        async for delta in super().stream(request):
            yield delta


async def test_conversation_flags_apply_from_the_next_turn(tmp_path: Path) -> None:
    async with open_server(tmp_path, provider=lambda: Overheard(*"abc")) as client:
        id_ = await client.begin(teams=True)
        recorded = list[int]()
        async with client.follow(id_) as socket:
            status = (await read_until(socket, "status"))[-1]
            for text, on in (("a", True), ("b", False), ("c", None)):
                await send_order(socket, "user_message", text=text)
                await read_until(socket, "result")
                answer = await client.ask("GET", f"/api/conversations/{id_}/requests")
                recorded.append(len(answer.json))
                if on is not None:
                    await send_order(socket, "toggle_tracing", on=on)
                    assert (await read_until(socket, "tracing_changed"))[-1]["on"] is on
            await send_order(socket, "toggle_teams", on=False)
            assert (await read_until(socket, "teams_changed"))[-1]["on"] is False
            await send_order(socket, "status")
            after = (await read_until(socket, "status"))[-1]

    assert recorded == [0, 1, 1]
    flags = [(s["choices"]["teams"], s["choices"]["tracing"]) for s in (status, after)]
    assert flags == [(True, False), (False, False)]
