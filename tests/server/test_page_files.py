"""The files of the pages: a hash in their address, kept by browsers for good, and an app."""

import re
from pathlib import Path

import pytest

from tests.server.serving import Client, open_server

pytestmark = pytest.mark.anyio


async def read_page(client: Client, path: str) -> str:
    cookie = client.access.redeem(client.access.new_launch(""))
    assert cookie
    headers = {"Cookie": f"{client.access.cookie_name}={cookie}"}
    answer = await client.ask("GET", path, headers=headers)
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    return answer.body.decode()


@pytest.mark.parametrize("path", ["/", "/dev"])
async def test_scripts_and_styles_are_immutable_below_a_hash(
    tmp_path: Path, path: str
) -> None:
    async with open_server(tmp_path) as client:
        html = await read_page(client, path)
        addresses = re.findall(r'"(/pages/[^"]+)"', html)
        answers = [await client.ask("GET", address) for address in addresses]
        other = re.sub(r"/pages/\w+/", "/pages/0123456789abcdef/", addresses[0])
        (old, unnamed, secret) = [
            await client.ask("GET", address)
            for address in (
                other,
                "/pages/shared/dom.js",
                f"{addresses[0]}/../../../app.py",
            )
        ]
        unknown = await client.ask("GET", addresses[0], headers={})

    assert len(addresses) > 30  # with the scripts that page.js imports
    assert any(address.endswith("/shared/vendor/marked.js") for address in addresses)
    assert {answer.status for answer in answers} == {200}
    assert {answer.headers["cache-control"] for answer in answers} == {
        "private, max-age=31536000, immutable"
    }
    assert (old.status, unnamed.status, secret.status) == (404, 404, 404)
    assert unknown.status == 401


async def test_manifests_and_icons_are_public_and_name_each_other(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path) as client:
        manifests = [
            await client.ask("GET", path, headers={})
            for path in ("/refold.webmanifest", "/developer.webmanifest")
        ]
        icons = {
            icon["src"]: await client.ask("GET", icon["src"], headers={})
            for manifest in manifests
            for icon in manifest.json["icons"]
        }

    assert [(each.json["start_url"], each.json["name"]) for each in manifests] == [
        ("/", "refold"),
        ("/dev", "refold developer"),
    ]
    assert {answer.status for answer in icons.values()} == {200}
    assert icons["/icon-512.png"].body.startswith(b"\x89PNG")
    assert icons["/icon.svg"].headers["content-type"] == "image/svg+xml"
