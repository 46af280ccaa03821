"""The changes of a workspace over REST, and undoing one of them."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.place.repositories import git, repository
from tests.server.serving import Answer, Client, open_server, read_until, send_order

pytestmark = pytest.mark.anyio


async def begin(client: Client) -> str:
    """Return a conversation that has checkpointed its files: one was uploaded."""
    id_ = await client.begin()
    binary = {**client.token, "Content-Type": "application/octet-stream"}
    path = f"/api/conversations/{id_}/files/up.txt"
    assert (await client.ask("PUT", path, b"up\n", binary)).status == 201
    return id_


async def ask(client: Client, id_: str, what: str) -> Any:
    answer: Answer = await client.ask("GET", f"/api/conversations/{id_}/{what}")
    assert answer.status == 200, answer.body
    return answer.json


async def test_changes_are_listed_with_counts_and_lines(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("one\ntwo\n")
    async with open_server(tmp_path) as client:
        id_ = await begin(client)
        (tmp_path / "src" / "a.py").write_text("one\n2\n")
        listed = await ask(client, id_, "changes")
        lines = await ask(client, id_, "changes/lines?path=src/a.py&path=other")

    assert listed == [
        {"path": "src/a.py", "kind": "changed", "added": 1, "removed": 1, "event": 1},
    ]
    assert lines == [
        {"path": "src/a.py", "text": "@@ -1,2 +1,2 @@\n one\n-two\n+2", "cut": False}
    ]


async def test_changes_since_a_commit_leave_out_what_no_checkpoint_has(
    tmp_path: Path,
) -> None:
    repository(tmp_path)
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "ignored.log").write_text("tracked all the same\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Begin")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "a.txt").write_text("two\n")
    async with open_server(tmp_path) as client:
        id_ = await client.begin()
        (commit,) = await ask(client, id_, "commits")
        listed = await ask(client, id_, f"changes?commit={commit['name']}")
        none = await ask(client, id_, "changes")
        wrong = await client.ask("GET", f"/api/conversations/{id_}/changes?commit=HEAD")

    assert commit["subject"] == "Begin"
    assert [row["path"] for row in listed] == [".gitignore", "a.txt"]
    assert none == []
    assert (wrong.status, wrong.json["kind"]) == (400, "BadInput")


async def test_files_that_may_not_be_read_are_no_part_of_a_review(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("one\n")
    flags = {"permissions.deny": ["read_file(secret.txt)"]}
    async with open_server(tmp_path, flags=flags) as client:
        id_ = await begin(client)
        (tmp_path / "secret.txt").write_text("two\n")
        listed = await ask(client, id_, "changes")
        lines = await ask(client, id_, f"changes/lines?path={quote('secret.txt')}")

    assert listed == []
    assert lines == []


async def test_one_file_is_undone_and_the_others_stay(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one\n")
    async with open_server(tmp_path) as client:
        id_ = await begin(client)
        for name in ("a.txt", "b.txt"):
            (tmp_path / name).write_text("two\n")
        async with client.follow(id_) as socket:
            await read_until(socket, "status")
            undo = {"to": 1, "what": "files", "only": ["a.txt"]}
            await send_order(socket, "rewind", **undo)
            (*_, refused) = await read_until(socket, "error")
            await send_order(socket, "rewind", **undo, force=True)
            (*_, restored) = await read_until(socket, "files_restored")
        listed = await ask(client, id_, "changes")

    assert "another program changed these files since" in refused["reason"]
    assert restored["files"] == 1
    assert (tmp_path / "a.txt").read_text() == "one\n"
    assert [row["path"] for row in listed] == ["b.txt"]


async def test_an_uploaded_file_is_a_change_only_once_it_differs_from_the_upload(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path) as client:
        id_ = await begin(client)
        binary = {**client.token, "Content-Type": "application/octet-stream"}
        path = f"/api/conversations/{id_}/files/other.txt"
        assert (await client.ask("PUT", path, b"one\ntwo\n", binary)).status == 201
        first = await ask(client, id_, "changes")
        (tmp_path / "other.txt").write_text("one\n2\n")
        (change,) = await ask(client, id_, "changes")
        (lines,) = await ask(client, id_, "changes/lines?path=other.txt&path=up.txt")
        async with client.follow(id_) as socket:
            await read_until(socket, "status")
            undo = {"to": change["event"], "what": "files", "only": ["other.txt"]}
            await send_order(socket, "rewind", **undo, force=True)
            await read_until(socket, "files_restored")
        last = await ask(client, id_, "changes")

    assert first == last == []
    assert (change["kind"], change["added"], change["removed"]) == ("changed", 1, 1)
    assert lines["text"] == "@@ -1,2 +1,2 @@\n one\n-two\n+2"
    assert (tmp_path / "other.txt").read_text() == "one\ntwo\n"
