"""Folders over HTTP: recent ones, those below the roots, and new ones with a name."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.server.serving import Client, open_server, read_until, send_order

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def list_in(client: Client, path: Path | str) -> Any:
    return await client.ask("GET", f"/api/folders/list?path={quote(str(path))}")


async def test_folders_are_listed_below_the_roots_only(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for path in (root / "b", root / "A" / "deep", root / ".hidden", outside / "x"):
        path.mkdir(parents=True)
    (root / "file").write_text("")
    (root / "leads-out").symlink_to(outside)
    (root / "leads-in").symlink_to(root / "A")
    async with open_server(root, roots=(root,)) as client:
        top = await list_in(client, root)
        deep = await list_in(client, root / "A")
        refused = [
            await list_in(client, path)
            for path in (
                outside, "/", "", "A", f"{root}/../outside", root / "leads-out", "a\0b",
                root / "nothing", root / "file", f"{root}-beside",
            )
        ]  # fmt: skip

    assert [folder["name"] for folder in top.json["folders"]] == ["A", "b", "leads-in"]
    assert (top.json["parent"], deep.json["parent"]) == ("", str(root))
    assert [folder["path"] for folder in deep.json["folders"]] == [str(root / "A/deep")]
    assert [answer.status for answer in refused] == [404] * len(refused)


async def test_without_roots_folders_of_the_home_and_of_the_server_are_offered(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path) as client:
        choices = (await client.ask("GET", "/api/folders")).json

    assert choices["usual"] == str(tmp_path)
    assert [folder["path"] for folder in choices["roots"]] == [
        str(tmp_path),
        os.path.realpath(os.environ["HOME"]),
    ]


async def test_recent_folders_are_existing_folders_of_conversations(
    tmp_path: Path,
) -> None:
    old, new, gone = (tmp_path / name for name in ("old", "new", "gone"))
    async with open_server(tmp_path, "Hello.") as client:
        for path in (gone, old, new):
            path.mkdir()
            async with client.follow(await client.begin(workspace=str(path))) as socket:
                await send_order(socket, "user_message", text="Hi.")
                await read_until(socket, "result")
        gone.rmdir()
        choices = (await client.ask("GET", "/api/folders")).json

    assert [folder["name"] for folder in choices["recent"]] == ["new", "old"]


async def test_a_conversation_begins_only_below_the_roots(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    async with open_server(root, roots=(root,)) as client:
        refused = [
            await client.ask("POST", "/api/conversations", {"workspace": str(path)})
            for path in (outside, root / "link", "~nobody-of-this-name/x")
        ]
        inside = await client.ask("POST", "/api/conversations", {"workspace": str(root)})
        settings = await client.ask("GET", f"/api/settings/rules?folder={outside}")

    assert [answer.status for answer in refused] == [400, 400, 400]
    assert f"is not below {root}" in refused[0].json["reason"]
    assert (inside.status, settings.status) == (201, 400)


async def test_a_new_workspace_gets_the_requested_name_or_the_next_free_one(
    tmp_path: Path,
) -> None:
    wanted = {"own_workspace": True, "workspace_name": "Invoices 2026"}
    async with open_server(tmp_path) as client:
        created = [await client.ask("POST", "/api/conversations", wanted) for _ in range(2)]
        chats = [client.host.conversation(answer.json["id"]) for answer in created]
        places = [Path(chat.session.view.session.directory) for chat in chats if chat]

    assert [answer.status for answer in created] == [201, 201]
    assert [place.name for place in places] == ["Invoices 2026", "Invoices 2026 2"]
    assert {place.parent for place in places} == {client.host.paths.workspaces}


@pytest.mark.parametrize("name", ["../up", "a/b", ".git", "-x", "x\ny", "x" * 61, "x."])
async def test_an_invalid_name_of_a_new_workspace_is_refused(
    tmp_path: Path, name: str
) -> None:
    wanted = {"own_workspace": True, "workspace_name": name}
    async with open_server(tmp_path) as client:
        refused = await client.ask("POST", "/api/conversations", wanted)
        workspaces = list(client.host.paths.workspaces.glob("*"))

    assert (refused.status, workspaces) == (400, [])
    assert "cannot be the name of a folder" in refused.json["reason"]
