"""Files of a workspace over HTTP: no way out of it, and nothing that a browser would run."""

import os
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.server.serving import server

pytestmark = pytest.mark.anyio


async def test_no_path_leads_out_of_the_workspace(tmp_path: Path) -> None:
    inside, evil = tmp_path / "ws", tmp_path / "ws-evil"
    inside.mkdir()
    evil.mkdir()
    (evil / "k").write_text("secret")
    (inside / "l").symlink_to("/etc/hostname")
    (inside / "d").symlink_to(evil)
    async with server(inside) as client:
        id_ = await client.begin()
        for path in (
            "..%2fws-evil%2fk", "%2e%2e/%2e%2e/etc/hostname", "..%252f..%252fetc%252fhostname",
            "/etc/hostname", "..%5c..%5cetc%5chostname", "l", "d/k", "a%00b", "./l", "",
            quote(str(evil / "k")), "~/x", "%ff",
        ):  # fmt: skip
            for method in ("GET", "PUT"):
                if method == "PUT" and path in (
                    "a%00b",
                    "~/x",
                    "%ff",
                    "..%252f..%252fetc%252fhostname",
                ):
                    continue
                binary = {**client.token, "Content-Type": "application/octet-stream"}
                found = await client.ask(
                    method, f"/api/conversations/{id_}/files/{path}",
                    b"x" if method == "PUT" else None, binary,
                )  # fmt: skip
                assert found.status in (404, 405), (method, path, found.body)
                assert b"secret" not in found.body
        strange = await client.ask("GET", "/api/conversations/..%2f..%2fx/files/a")

    assert strange.status == 404
    assert (evil / "k").read_text() == "secret"


@pytest.mark.parametrize("name", ["p.svg", "p.html", "p.xml", "p.js", "p"])
async def test_active_content_is_an_attachment(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("<html><script>alert(1)</script>")
    async with server(tmp_path) as client:
        id_ = await client.begin()
        found = await client.ask("GET", f"/api/conversations/{id_}/files/{name}")

    assert found.status == 200
    assert found.headers["content-disposition"].startswith("attachment")
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["content-security-policy"].startswith("sandbox")


@pytest.mark.parametrize("name", ['x";filename=evil.exe', "\u202e🎉.txt", "a\tb\x7f.txt"])
async def test_a_file_name_cannot_write_headers(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("content")
    async with server(tmp_path) as client:
        id_ = await client.begin()
        found = await client.ask("GET", f"/api/conversations/{id_}/files/{quote(name)}")

    said = found.headers["content-disposition"]
    assert (found.status, found.body) == (200, b"content")
    assert said.isascii()
    assert said.count('"') == 2
    assert f"filename*=UTF-8''{quote(name, safe='')}" in said


async def test_a_file_name_with_line_breaks_has_no_address(tmp_path: Path) -> None:
    name = "a\r\nSet-Cookie: t=1\r\n\r\n<script>.txt"
    (tmp_path / name).write_text("content")
    async with server(tmp_path) as client:
        id_ = await client.begin()
        found = await client.ask("GET", f"/api/conversations/{id_}/files/{quote(name)}")

    assert found.status == 404
    assert "set-cookie" not in {each.lower() for each in found.headers}


async def test_an_upload_is_a_file_of_the_workspace(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        id_ = await client.begin()
        address = f"/api/conversations/{id_}/files/new/a.bin"
        binary = {**client.token, "Content-Type": "application/octet-stream"}
        first = await client.ask("PUT", address, b"\x00one", binary)
        second = await client.ask("PUT", address, b"\x00two", binary)
        back = await client.ask("GET", address)
        large = await client.ask("PUT", address, b"x" * (10 * 1024 * 1024 + 1), binary)
        listed = await client.ask("GET", f"/api/conversations/{id_}/files?path=new")

    assert (first.status, second.status, large.status) == (201, 201, 413)
    assert back.body == b"\x00two"
    assert [(f["path"], f["kind"], f["size"]) for f in listed.json] == [
        (os.path.join("new", "a.bin"), "file", 4)
    ]
