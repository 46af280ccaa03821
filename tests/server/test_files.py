"""Files of a workspace over HTTP: no way out of it, and nothing that a browser would run."""

import os
from pathlib import Path
from urllib.parse import quote

import anyio
import pytest

from tests.server.serving import Answer, Client, open_server, read_until, send_order

pytestmark = pytest.mark.anyio


async def test_files_outside_the_workspace_are_neither_served_nor_written(
    tmp_path: Path,
) -> None:
    inside, evil = tmp_path / "ws", tmp_path / "ws-evil"
    inside.mkdir()
    evil.mkdir()
    (evil / "k").write_text("secret")
    (inside / "l").symlink_to("/etc/hostname")
    (inside / "d").symlink_to(evil)
    async with open_server(inside) as client:
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
                answer = await client.ask(
                    method, f"/api/conversations/{id_}/files/{path}",
                    b"x" if method == "PUT" else None, binary,
                )  # fmt: skip
                assert answer.status in (404, 405), (method, path, answer.body)
                assert b"secret" not in answer.body
        strange = await client.ask("GET", "/api/conversations/..%2f..%2fx/files/a")

    assert strange.status == 404
    assert (evil / "k").read_text() == "secret"


@pytest.mark.parametrize("name", ["p.svg", "p.html", "p.xml", "p.js", "p"])
async def test_active_content_is_served_as_an_attachment(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("<html><script>alert(1)</script>")
    async with open_server(tmp_path) as client:
        id_ = await client.begin()
        answer = await client.ask("GET", f"/api/conversations/{id_}/files/{name}")

    assert answer.status == 200
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox")


@pytest.mark.parametrize("name", ['x";filename=evil.exe', "\u202e🎉.txt", "a\tb\x7f.txt"])
async def test_a_file_name_cannot_inject_response_headers(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("content")
    async with open_server(tmp_path) as client:
        id_ = await client.begin()
        answer = await client.ask("GET", f"/api/conversations/{id_}/files/{quote(name)}")

    text = answer.headers["content-disposition"]
    assert (answer.status, answer.body) == (200, b"content")
    assert text.isascii()
    assert text.count('"') == 2
    assert f"filename*=UTF-8''{quote(name, safe='')}" in text


async def test_a_file_name_with_line_breaks_is_not_served(tmp_path: Path) -> None:
    name = "a\r\nSet-Cookie: t=1\r\n\r\n<script>.txt"
    (tmp_path / name).write_text("content")
    async with open_server(tmp_path) as client:
        id_ = await client.begin()
        answer = await client.ask("GET", f"/api/conversations/{id_}/files/{quote(name)}")

    assert answer.status == 404
    assert "set-cookie" not in {header.lower() for header in answer.headers}


async def upload(
    client: Client, id_: str, path: str, data: bytes, **headers: str
) -> Answer:
    """Upload it; `headers` are written with underscores."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    binary = {**client.token, "Content-Type": "application/octet-stream", **more}
    return await client.ask("PUT", f"/api/conversations/{id_}/files/{path}", data, binary)


async def test_an_upload_is_stored_in_the_workspace(tmp_path: Path) -> None:
    async with open_server(tmp_path) as client:
        id_ = await client.begin()
        first = await upload(client, id_, "new/a.bin", b"\x00one")
        back = await client.ask("GET", f"/api/conversations/{id_}/files/new/a.bin")
        large = await upload(client, id_, "new/a.bin", b"x" * (10 * 1024 * 1024 + 1))
        answer = await client.ask("GET", f"/api/conversations/{id_}/files?path=new")

    assert (first.status, first.json) == (201, {"path": "new/a.bin", "size": 4})
    assert (large.status, back.body) == (413, b"\x00one")
    assert back.headers["etag"] == first.headers["etag"]
    assert [(f["path"], f["kind"], f["size"]) for f in answer.json] == [
        (os.path.join("new", "a.bin"), "file", 4)
    ]


async def test_upload_replaces_a_file_only_with_its_etag(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("original")
    async with open_server(tmp_path) as client:
        id_ = await client.begin()
        blind = await upload(client, id_, "a.md", b"blind")
        assert (tmp_path / "a.md").read_text() == "original"
        known = (await client.ask("GET", f"/api/conversations/{id_}/files/a.md")).headers
        old = await upload(client, id_, "a.md", b"x", if_match='"0"')
        missing = await upload(client, id_, "b.md", b"x", if_match="*")
        right = await upload(client, id_, "a.md", b"new", if_match=known["etag"])
        again = await upload(client, id_, "a.md", b"x", if_match=known["etag"])
        any_ = await upload(client, id_, "a.md", b"newest", if_match="*")

    answers = [blind, old, missing, right, again, any_]
    assert [answer.status for answer in answers] == [428, 412, 412, 201, 412, 201]
    assert "If-Match" in blind.json["reason"]
    assert (tmp_path / "a.md").read_text() == "newest"
    assert not (tmp_path / "b.md").exists()


async def test_upload_with_rename_gets_the_next_free_name(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_text("original")
    (tmp_path / "folder").mkdir()
    async with open_server(tmp_path) as client:
        id_ = await client.begin()
        names = list[str]()
        for path in ("a.tar.gz", "a.tar.gz", "folder", "none"):
            names.append(
                (await upload(client, id_, f"{path}?rename=true", b"x")).json["path"]
            )

    assert names == ["a.tar-1.gz", "a.tar-2.gz", "folder-1", "none"]
    assert (tmp_path / "a.tar.gz").read_text() == "original"


async def test_concurrent_uploads_lose_no_file(tmp_path: Path) -> None:
    async with open_server(tmp_path) as client:
        id_ = await client.begin()
        paths = list[str]()

        async def one(number: int) -> None:
            done = await upload(client, id_, "a.txt?rename=true", str(number).encode())
            paths.append(done.json["path"])

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(one, number)

    assert len(set(paths)) == 8
    assert {path.read_text() for path in tmp_path.glob("a*.txt")} == set("01234567")


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit", ".git/config", ".GIT/config", ".env", "sub/.git/hooks/x",
        ".gitmodules", ".refold/hooks.json", ".mcp.json", ".claude/settings.json", "k.pem",
        ".vscode/tasks.json", ".husky/pre-commit", ".bashrc",
    ],
)  # fmt: skip
async def test_upload_to_a_protected_file_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / ".git").mkdir()
    async with open_server(tmp_path) as client:
        id_ = await client.begin(mode="bypass")
        answers = [
            await upload(client, id_, path, b"x"),
            await upload(client, id_, path, b"x", if_match="*"),
            await upload(client, id_, f"{path}?rename=true", b"x"),
        ]

    assert [answer.status for answer in answers] == [403] * 3
    assert "protected" in answers[0].json["reason"]
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


async def test_upload_that_a_rule_forbids_is_refused(tmp_path: Path) -> None:
    flags = {"permissions.deny": ["write_file(*.txt)"]}
    async with open_server(tmp_path, flags=flags) as client:
        id_ = await client.begin()
        answer = await upload(client, id_, "a.txt", b"x")
        allowed = await upload(client, id_, "a.md", b"x")

    assert (answer.status, allowed.status) == (403, 201)
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.slow
async def test_an_upload_is_rewound_with_the_message_after_it(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("original")
    async with open_server(tmp_path, "One.", "Two.") as client:
        id_ = await client.begin()
        seqs = list[int]()
        async with client.follow(id_) as socket:
            await read_until(socket, "status")
            for text in ("before", "after"):
                if text == "after":
                    await upload(client, id_, "b.md", b"b")
                    await upload(client, id_, "a.md", b"replaced", if_match="*")
                await send_order(socket, "user_message", text=text)
                documents = await read_until(socket, "result")
                seqs += [d["seq"] for d in documents if d["type"] == "user_message"]
                uploaded = [d["path"] for d in documents if d["type"] == "file_uploaded"]
            await send_order(socket, "rewind", to=seqs[1], what="both")
            restored = (await read_until(socket, "files_restored"))[-1]

        assert uploaded == [str(tmp_path / "b.md"), str(tmp_path / "a.md")]
        assert (tmp_path / "a.md").read_text() == "original"
        assert not (tmp_path / "b.md").exists()
        async with client.follow(id_) as socket:
            await read_until(socket, "status")
            await send_order(socket, "rewind", to=restored["seq"], what="files")
            await read_until(socket, "files_restored")

    assert (tmp_path / "a.md").read_text() == "replaced"
    assert (tmp_path / "b.md").read_text() == "b"
