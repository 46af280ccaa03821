"""Who may have a server work elsewhere: an address can run a program on the machine of the server."""

import os
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import pytest
from anyio import to_thread
from msgspec.structs import replace

from refold.client.elsewhere import AddressRights, find_directory_elsewhere
from tests.network.filtered import LoopbackServer
from tests.server.serving import Client, open_server, read_until, send_order

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def trap(tmp_path: Path) -> tuple[str, Path]:
    """Return an address that leaves a trace when it is used, and the trace."""
    trace = tmp_path / "trace"
    return f"cmd:touch {trace} # {tmp_path}", trace


async def use_everywhere(client: Client, address: str, id_: str) -> list[int]:
    """The answers of all routes that take a folder."""
    answers = [
        await client.ask("POST", "/api/conversations", {"workspace": address}),
        await client.ask("GET", f"/api/settings/model?folder={quote(address)}"),
        await client.ask("GET", f"/api/settings/rules?folder={quote(address)}"),
    ]
    command = await client.ask(
        "POST", f"/api/conversations/{id_}/commands", {"text": f"/cd {address}"}
    )
    assert b"does not take" in command.body or b"is not below" in command.body, command.body
    return [answer.status for answer in answers]


@pytest.mark.parametrize("roots", [False, True])
async def test_without_the_right_every_order_refuses_a_workspace_address(
    tmp_path: Path, roots: bool
) -> None:
    address, trace = trap(tmp_path)
    below = (tmp_path,) if roots else ()
    rights = AddressRights(free=roots)  # a root excludes all addresses
    async with open_server(tmp_path, "Hi.", roots=below, rights=rights) as client:
        id_ = await client.begin()
        statuses = await use_everywhere(client, address, id_)

        stand_in = str(find_directory_elsewhere(address, {}))
        by_path = await client.ask("POST", "/api/conversations", {"workspace": stand_in})
        async with client.follow(id_) as socket:
            await read_until(socket, "status")
            await send_order(socket, "set_directory", directory=stand_in)
            refused = (await read_until(socket, "error"))[-1]

    assert statuses == [400, 400, 400]
    assert by_path.status == 400
    assert "does not take" in refused["reason"] or "is not below" in refused["reason"]
    assert not trace.exists()


async def test_a_conversation_begins_in_a_named_workspace_and_its_status_says_where(
    tmp_path: Path,
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    address = f"cmd:sh # {far}"
    rights = AddressRights({"build": address})
    async with open_server(tmp_path, "Hi.", rights=rights) as client:
        choices = (await client.ask("GET", "/api/folders")).json
        created = (
            await client.ask("POST", "/api/conversations", {"workspace": "build"})
        ).json
        async with client.follow(created["id"]) as socket:
            status = (await read_until(socket, "status"))[-1]

    assert choices["elsewhere"] == [{"name": "build", "path": address}]
    assert choices["free_addresses"] is False
    assert status["address"] == address
    assert f"{os.path.realpath(far)} of " in created["notices"][0]


async def test_a_server_in_a_workspace_elsewhere_is_announced_and_opened(
    tmp_path: Path,
) -> None:
    rights = AddressRights({"build": f"cmd:sh # {tmp_path}"}, recent=True)
    async with open_server(tmp_path, "Hi.", rights=rights) as client:
        created = await client.ask("POST", "/api/conversations", {"workspace": "build"})
        ports = f"/api/conversations/{created.json['id']}/ports"
        async with client.follow(created.json["id"]) as socket:
            with closing(LoopbackServer("over there")) as there:
                while there.port not in (await read_until(socket, "ports"))[-1]["ports"]:
                    pass  # other programs of this machine
                opened = await client.ask("POST", f"{ports}/{there.port}", {})
                assert opened.status == 200, opened.body
                link = str(opened.json["link"])
                body = await to_thread.run_sync(fetch_locally, link)
                listed = (await client.ask("GET", ports)).json
            while there.port in (await read_until(socket, "ports"))[-1]["ports"]:
                pass
        by_nobody = await client.ask("POST", f"{ports}/{there.port}", {}, headers={})
        client.host.paths = replace(client.host.paths, rights=AddressRights())
        refused = await client.ask("POST", f"{ports}/{there.port}", {})
        here = await client.ask("GET", f"/api/conversations/{await client.begin()}/ports")

    assert body == b"over there\n"
    assert {"port": there.port, "link": link} in listed
    assert (by_nobody.status, refused.status, here.status) == (401, 400, 400)
    assert b"run `refold ports` on yours" in refused.body


def fetch_locally(link: str) -> bytes:
    """Return what a browser gets there, which resolves names below localhost by itself."""
    port = urlsplit(link).port
    with urlopen(f"http://127.0.0.1:{port}/", timeout=60) as response:
        return response.read()


async def test_a_workspace_address_of_an_earlier_session_is_offered_only_with_the_right_recent(
    tmp_path: Path,
) -> None:
    address = f"cmd:sh # {tmp_path}"
    async with open_server(tmp_path, "Hi.", rights=AddressRights(free=True)) as client:
        host = client.host
        async with client.follow(await client.begin(workspace=address)) as socket:
            await send_order(socket, "user_message", text="Hello")
            await read_until(socket, "result")
        host.paths = replace(host.paths, rights=AddressRights(recent=True))
        choices = (await client.ask("GET", "/api/folders")).json
        host.paths = replace(host.paths, rights=AddressRights())
        hidden = (await client.ask("GET", "/api/folders")).json
        refused = await client.ask("POST", "/api/conversations", {"workspace": address})

    assert choices["elsewhere"] == [{"name": address, "path": address}]
    assert hidden["elsewhere"] == []
    assert refused.status == 400
    assert address not in [folder["path"] for folder in hidden["recent"]]
