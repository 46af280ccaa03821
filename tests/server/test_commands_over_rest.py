"""Slash commands over REST: no known command reaches the model, and an unknown one is named."""

from pathlib import Path
from typing import Any

import pytest

from refold.commands.table import commands
from tests.server.serving import Client, open_server, read_until, send_order

pytestmark = pytest.mark.anyio


async def run(client: Client, id_: str, text: str, *answers: Any) -> Any:
    records = [{"question": q, "answer": a} for q, a in answers]
    body = {"text": text, "answers": records}
    answer = await client.ask("POST", f"/api/conversations/{id_}/commands", body)
    assert answer.status == 200, answer.body
    return answer.json


def rows(output: Any) -> list[str]:
    return [
        "".join(text for _, text in document["row"])
        if "row" in document
        else document["markdown"]
        for document in output["documents"]
    ]


async def test_a_command_returns_rows_without_a_model_request(tmp_path: Path) -> None:
    async with open_server(tmp_path, "Hello.") as client:
        id_ = await client.begin()
        result = await run(client, id_, "/cost")
        wrong = await run(client, id_, "/modle x")
        messages = await client.ask("GET", f"/api/conversations/{id_}/messages")

    assert result["question"] is None
    assert result["conversation"] == id_
    assert rows(result) != []
    assert rows(wrong) == ["There is no command /modle. Did you mean /mode?"]
    assert wrong["documents"][0]["row"][0][0] == "bad"
    assert messages.json == []


async def test_every_slash_command_returns_output_over_rest(tmp_path: Path) -> None:
    async with open_server(tmp_path, "Hello.") as client:
        id_ = await client.begin()
        data = {
            command.name: await run(client, id_, f"/{command.name}")
            for command in commands()
        }
        messages = await client.ask("GET", f"/api/conversations/{id_}/messages")

    silent = {
        n for n, result in data.items() if not (result["documents"] or result["question"])
    }
    assert silent == set()
    left_out = {
        n for n, result in data.items() if "does not work here" in str(rows(result))
    }
    assert left_out == {"quit", "shell", "doctor", "theme", "vi", "export"}
    assert messages.json == []


async def test_a_question_of_a_command_is_answered_with_the_next_request(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, "Hello.") as client:
        id_ = await client.begin()
        async with client.follow(id_) as socket:
            await send_order(socket, "user_message", text="Hi.")
            await read_until(socket, "result")
        result = await run(client, id_, "/rewind")
        point = result["question"]["items"][0]["id"]
        choice = (result["question"]["title"], point)
        sure = await run(client, id_, "/rewind", choice)
        other = await run(client, id_, "/rewind", choice, ("Another question? y/n", "y"))
        before = await client.ask("GET", f"/api/conversations/{id_}/messages")
        done = await run(client, id_, "/rewind", choice, (sure["question"]["title"], "y"))
        after = await client.ask("GET", f"/api/conversations/{id_}/messages")

    assert sure["question"]["keys"] == "yn"
    assert other["question"] == sure["question"]
    assert len(before.json) == 2
    assert done["question"] is None
    assert after.json == []


async def test_command_list_and_completions_equal_those_of_the_terminal(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path) as client:
        id_ = await client.begin()
        json = (await client.ask("GET", f"/api/conversations/{id_}/commands")).json
        new = (await client.ask("GET", "/api/commands")).json
        one = await client.ask("GET", "/api/commands/cost")
        none = await client.ask("GET", "/api/commands/csot")
        names = (
            await client.ask("GET", f"/api/conversations/{id_}/completions?before=/cos")
        ).json
        words = (
            await client.ask(
                "GET", f"/api/conversations/{id_}/completions?before=/mode%20pl"
            )
        ).json
        (tmp_path / "forest").mkdir()
        (tmp_path / "forest" / "tall fern.txt").touch()
        files, files_of_new = [
            (await client.ask("GET", f"{address}/completions?before=see%20@fern")).json
            for address in (f"/api/conversations/{id_}", "/api")
        ]

    (cost,) = [item for item in json if item["name"] == "/cost"]
    assert (cost["usage"], cost["aliases"]) == ("[turns]", ["usage", "stats"])
    assert {"/quit", "/theme", "/vi", "/shell", "/export"}.isdisjoint(
        e["name"] for e in json
    )
    assert cost in new
    assert one.json == cost
    assert none.json == {"problem": "There is no command /csot. Did you mean /cost?"}
    assert [name["text"] for name in names] == ["/cost"]
    assert [word["text"] for word in words] == ["plan"]
    assert files == files_of_new
    assert [(file["text"], file["instead_of"]) for file in files] == [
        ('"forest/tall fern.txt"', 4)
    ]


async def test_text_that_is_not_a_command_is_refused(tmp_path: Path) -> None:
    async with open_server(tmp_path) as client:
        id_ = await client.begin()
        path = f"/api/conversations/{id_}/commands"
        for text in ("hello", "!ls", "# a note", "/etc/hosts is wrong"):
            answer = await client.ask("POST", path, {"text": text})
            assert answer.status == 400, text


async def test_a_command_that_switches_conversations_returns_the_new_id(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path) as client:
        id_ = await client.begin(name="first")
        result = await run(client, id_, "/clear")
        back = await run(client, result["conversation"], "/resume first")

    assert result["conversation"] != id_
    assert back["conversation"] == id_
    assert rows(back)[0] == 'Resumed "first".'
