"""A conversation with a workspace of its own, which lies below refold's directories."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from refold.testing.providers import Reply
from tests.server.serving import Client, open_server, read_until, send_order

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
WRITE = ("write_file", '{"path": "own.txt", "content": "one\\n"}')
EDIT = ("edit_file", '{"path": "own.txt", "old": "one", "new": "two"}')
BASH = ("bash", '{"command": "cat own.txt > b.txt"}')
READS = ("bash", '{"command": "cat own.txt"}')


class Turn(Struct):
    requests: list[dict[str, Any]]
    results: list[dict[str, Any]]
    message: int = 0  # its number


async def run_turn(client: Client, id_: str, *, allow: bool = True) -> Turn:
    """Run one turn, in which the model gives this answer to each request."""
    turn = Turn([], [])
    async with client.follow(id_) as socket:
        await read_until(socket, "status")
        await send_order(socket, "user_message", text="Go.")
        while True:
            document = json.loads(await socket.recv())
            match document["type"]:
                case "tool_approval_request":
                    turn.requests.append(document)
                    answer = {"call_id": document["call_id"], "hash": document["hash"]}
                    await send_order(
                        socket, "tool_approval_response", **answer, allowed=allow
                    )
                case "user_message":
                    turn.message = document["seq"]
                case "tool_result":
                    turn.results.append(document)
                case "result":
                    return turn
                case _:
                    pass


async def begin_conversation(client: Client, mode: str) -> tuple[str, Path]:
    before = set(client.host.paths.workspaces.glob("*"))
    id_ = await client.begin(own_workspace=True, mode=mode)
    (path,) = set(client.host.paths.workspaces.glob("*")) - before
    return id_, path


@pytest.mark.parametrize(
    ("mode", "asked"),
    [
        ("default", ["write_file", "edit_file", "bash"]),
        ("accept-edits", ["bash"]),
        ("sandbox", []),
        ("bypass", []),
    ],
)
async def test_own_workspace_asks_only_for_calls_that_the_mode_asks_for(
    tmp_path: Path, mode: str, asked: list[str]
) -> None:
    calls = [Reply("", calls=(call,)) for call in (WRITE, EDIT, BASH, READS)]
    async with open_server(tmp_path, *calls, "Done.") as client:
        id_, place = await begin_conversation(client, mode)
        done = await run_turn(client, id_)

    assert [request["tool"] for request in done.requests] == asked
    assert not any(request["once"] for request in done.requests)
    assert [result["outcome"] for result in done.results] == ["done"] * 4
    assert (place / "own.txt").read_text() == (place / "b.txt").read_text() == "two\n"
    assert "two" in done.results[-1]["text"]


async def test_own_workspace_is_read_only_in_plan_mode(tmp_path: Path) -> None:
    looks = ("bash", '{"command": "ls"}')
    calls = [Reply("", calls=(call,)) for call in (WRITE, looks)]
    async with open_server(tmp_path, *calls, "Done.") as client:
        id_, place = await begin_conversation(client, "plan")
        done = await run_turn(client, id_)

    assert [result["outcome"] for result in done.results] == ["refused", "done"]
    assert (done.requests, list(place.iterdir())) == ([], [])


@pytest.mark.parametrize("mode", ["default", "accept-edits", "sandbox", "bypass"])
@pytest.mark.parametrize(
    "call",
    [
        ("read_file", '{"path": "../../../config.toml"}'),
        ("write_file", '{"path": "../../../config.toml", "content": ""}'),
        ("write_file", '{"path": "../x.txt", "content": ""}'),
        ("read_file", '{"path": "../other/secret.txt"}'),
        ("write_file", '{"path": ".env", "content": ""}'),
        ("bash", '{"command": "cat ../../../config.toml"}'),
        ("bash", '{"command": "cat ../other/secret.txt"}'),
    ],
    ids=lambda call: f"{call[0]} {json.loads(call[1]).get('path', 'x')}"[:30],
)
async def test_own_workspace_asks_before_any_access_to_data_of_refold(
    tmp_path: Path, mode: str, call: tuple[str, str]
) -> None:
    async with open_server(tmp_path, Reply("", calls=(call,)), "Done.") as client:
        id_, place = await begin_conversation(client, mode)
        (place.parent / "other").mkdir()
        (place.parent / "other/secret.txt").write_text("secret")
        done = await run_turn(client, id_, allow=False)

    (request,) = done.requests
    assert (request["once"], request["rules"]) == (True, [])
    assert [result["outcome"] for result in done.results] == ["refused"]


async def test_own_workspace_hides_other_workspaces_from_commands(tmp_path: Path) -> None:
    call = (
        "bash",
        '{"command": "d=..; cat $d/other/secret.txt; cat $d/$d/$d/config.toml"}',
    )
    async with open_server(tmp_path, Reply("", calls=(call,)), "Done.") as client:
        id_, place = await begin_conversation(client, "sandbox")
        (place.parent / "other").mkdir()
        (place.parent / "other/secret.txt").write_text("VERYSECRET")
        done = await run_turn(client, id_)

    assert "VERYSECRET" not in json.dumps(done.results)


async def test_own_workspace_files_are_restored_by_a_rewind(tmp_path: Path) -> None:
    calls = [Reply("", calls=(call,)) for call in (WRITE, BASH)]
    async with open_server(tmp_path, *calls, "Done.") as client:
        id_, place = await begin_conversation(client, "bypass")
        done = await run_turn(client, id_)
        assert {path.name for path in place.iterdir()} == {"own.txt", "b.txt"}
        async with client.follow(id_) as socket:
            await read_until(socket, "status")
            await send_order(socket, "rewind", to=done.message, what="both")
            await read_until(socket, "files_restored")

    assert list(place.iterdir()) == []
