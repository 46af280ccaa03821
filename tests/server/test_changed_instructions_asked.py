"""A client of the server is asked whether changed instructions of the folder count."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection

from refold.client.folder_trust import KEEP, USE, record_versions
from refold.config.paths import paths
from refold.config.trusted_folders import TrustedFolders
from tests.journal.journals import prompts_in
from tests.server.serving import open_server, read_until, send_order

pytestmark = pytest.mark.anyio
QUESTION = "Send the changed instructions to the model from now on?"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a trusted folder whose AGENTS.md has changed."""
    root = tmp_path / "work"
    root.mkdir()
    (root / "AGENTS.md").write_text("Use tabs.\n")
    places = paths(os.environ)
    TrustedFolders(places.folders).trust_texts(str(root))
    record_versions(str(root), places.data)
    (root / "AGENTS.md").write_text("Use spaces.\n")
    return root


async def read_status(socket: ClientConnection) -> dict[str, Any]:
    return (await read_until(socket, "status"))[-1]


def instructions_sent(id_: str) -> Iterator[str]:
    """Yield the versions that the model got, one for each system prompt."""
    journal = paths(os.environ).data / "sessions" / id_ / "events.jsonl"
    for prompt in prompts_in(journal):
        yield "new" if "Use spaces." in prompt.system else "trusted"


async def run_turn(socket: ClientConnection) -> None:
    await send_order(socket, "user_message", text="Hi.")
    await read_until(socket, "result")


async def test_the_status_contains_changed_instructions_with_the_texts_of_the_terminal(
    folder: Path,
) -> None:
    async with (
        open_server(folder, "Hello.") as client,
        client.follow(await client.begin()) as socket,
    ):
        instructions = (await read_status(socket))["instructions"]

    path = str(folder / "AGENTS.md")
    assert len(instructions.pop("hash")) == 64
    assert instructions == {
        "question": QUESTION,
        "use": USE,
        "keep": KEEP,
        "changes": [
            {
                "said": "AGENTS.md changed since you trusted it",
                "change": {
                    "path": path,
                    "kind": "changed",
                    "text": "@@ -1,1 +1,1 @@\n-Use tabs.\n+Use spaces.",
                },
            }
        ],
    }


@pytest.mark.parametrize(("use", "sent"), [(True, "new"), (False, "trusted")])
async def test_an_answer_about_changed_instructions_applies_from_the_next_turn(
    folder: Path, use: bool, sent: str
) -> None:
    async with open_server(folder, "Hello.", "Again.") as client:
        id_ = await client.begin()
        async with client.follow(id_) as socket, client.follow(id_) as other:
            hash_ = (await read_status(socket))["instructions"]["hash"]
            await read_status(other)
            await run_turn(socket)
            await send_order(socket, "instructions_response", hash=hash_, use=use)
            statuses = await read_status(socket), await read_status(other)
            await run_turn(socket)
        async with client.follow(await client.begin()) as later:
            asked_again = (await read_status(later))["instructions"]

    assert [data["instructions"] for data in statuses] == [None, None]
    assert asked_again is None
    assert list(dict.fromkeys(instructions_sent(id_))) == list(
        dict.fromkeys(["trusted", sent])
    )


async def test_an_answer_to_an_outdated_change_is_refused_and_the_current_one_is_sent(
    folder: Path,
) -> None:
    async with open_server(folder, "Hello.") as client:
        id_ = await client.begin()
        async with client.follow(id_) as socket:
            hash_ = (await read_status(socket))["instructions"]["hash"]
            (folder / "AGENTS.md").write_text("Use four spaces.\n")
            await send_order(
                socket, "instructions_response", hash=hash_, use=True, client_key="k"
            )
            newer = (await read_status(socket))["instructions"]
            data = (await read_until(socket, "error"))[-1]
            await run_turn(socket)

    assert newer["changes"][0]["change"]["text"].endswith("+Use four spaces.")
    assert (data["kind"], data["client_key"]) == ("BadInput", "k")
    assert "changed again" in data["reason"]
    assert list(instructions_sent(id_)) == ["trusted"]


async def test_the_second_of_two_answers_is_refused_as_already_answered(
    folder: Path,
) -> None:
    async with (
        open_server(folder, "Hello.") as client,
        client.follow(await client.begin()) as socket,
    ):
        hash_ = (await read_status(socket))["instructions"]["hash"]
        await send_order(socket, "instructions_response", hash=hash_, use=True)
        await read_status(socket)
        await send_order(socket, "instructions_response", hash=hash_, use=False)
        late = (await read_until(socket, "error"))[-1]

    assert late["kind"] == "AlreadyAnswered"


async def test_changing_the_directory_asks_about_changed_instructions_there(
    folder: Path, tmp_path: Path
) -> None:
    async with (
        open_server(tmp_path, "Hello.") as client,
        client.follow(await client.begin()) as socket,
    ):
        before = (await read_status(socket))["instructions"]
        await send_order(socket, "set_directory", directory=str(folder))
        after = (await read_status(socket))["instructions"]

    assert before is None
    assert after["question"] == QUESTION


async def test_no_question_is_asked_if_instructions_equal_the_trusted_version(
    folder: Path,
) -> None:
    (folder / "AGENTS.md").write_text("Use tabs.\n")

    async with (
        open_server(folder, "Hello.") as client,
        client.follow(await client.begin()) as socket,
    ):
        assert (await read_status(socket))["instructions"] is None
