"""What a page gets with a request, and the other requests that one answer decides."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Client, open_server, read_until, send_order

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def follow_new_conversation(
    served: AbstractAsyncContextManager[Client],
) -> AsyncGenerator[Any]:
    """Yield a socket of a new conversation, to which the first message was sent."""
    async with served as client, client.follow(await client.begin()) as socket:
        await send_order(socket, "user_message", text="Go.")
        yield socket


def edits(*names: str) -> list[tuple[str, str]]:
    return [("write_file", f'{{"path": "{name}", "content": "x"}}') for name in names]


async def read_requests(socket: Any, count: int) -> list[dict[str, Any]]:
    return [(await read_until(socket, "tool_approval_request"))[-1] for _ in range(count)]


async def test_an_approval_request_names_the_mode_that_would_allow_the_call(
    tmp_path: Path,
) -> None:
    async with follow_new_conversation(
        open_server(tmp_path, edits("a.txt"), "Done.")
    ) as socket:
        (request,) = await read_requests(socket, 1)

    assert request["easier_mode"] == "accept-edits"
    assert "conditions" not in request


async def test_an_approval_request_for_a_command_has_its_sandbox_and_network_conditions(
    tmp_path: Path,
) -> None:
    command = ("bash", '{"command": "touch a.txt"}')
    async with follow_new_conversation(open_server(tmp_path, [command], "Done.")) as socket:
        (request,) = await read_requests(socket, 1)

    conditions = request["conditions"]
    assert set(conditions) == {"sandboxed", "network", "opened", "hosts", "shown"}
    assert not conditions["network"]


async def test_setting_a_permission_mode_allows_the_waiting_requests(
    tmp_path: Path,
) -> None:
    async with follow_new_conversation(
        open_server(tmp_path, edits("a.txt", "b.txt"), "Done.")
    ) as socket:
        await read_requests(socket, 2)
        await send_order(socket, "set_mode", mode="accept-edits")
        await read_until(socket, "result")

    assert {path.name for path in tmp_path.glob("*.txt")} == {"a.txt", "b.txt"}


async def test_a_rule_typed_at_one_request_allows_the_waiting_requests_that_it_covers(
    tmp_path: Path,
) -> None:
    calls = edits("a.txt", "b.txt", "c.md")
    async with follow_new_conversation(open_server(tmp_path, calls, "Done.")) as socket:
        first, _, last = await read_requests(socket, 3)
        answer = {"call_id": first["call_id"], "hash": first["hash"], "allowed": True}
        await send_order(
            socket, "tool_approval_response", **answer, grant="session",
            rule="write_file(./*.txt)",
        )  # fmt: skip
        await read_until(socket, "tool_result")
        await send_order(
            socket, "tool_approval_response", call_id=last["call_id"], hash=last["hash"],
            allowed=False,
        )  # fmt: skip
        await read_until(socket, "result")

    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        "a.txt",
        "b.txt",
    }
