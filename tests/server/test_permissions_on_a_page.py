"""`/permissions` on a page: what is listed, and rules that are added, changed and removed."""

from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Client, open_server, read_until, send_order

pytestmark = pytest.mark.anyio
EDIT = ("write_file", '{"path": "a.txt", "content": "x"}')


class Page:
    """Answers the questions of `/permissions`, found by their titles."""

    def __init__(self, client: Client, id_: str) -> None:
        self._client, self._id = client, id_

    async def run(self, *answers: str, dial: str = "") -> Any:
        given_answers = list[Any]()
        while True:
            body = {"text": "/permissions", "answers": given_answers}
            output = (
                await self._client.ask(
                    "POST", f"/api/conversations/{self._id}/commands", body
                )
            ).json
            if len(given_answers) == len(answers):
                return output
            title, answer = output["question"]["title"], answers[len(given_answers)]
            given_answers.append({"question": title, "answer": answer, "dial": dial})

    async def rows(self) -> list[str]:
        items = (await self.run())["question"]["items"]
        return [" ".join("".join(text for _, text in i["row"]).split()) for i in items]


def texts(output: Any) -> list[str]:
    return [
        "".join(text for _, text in document["row"]) for document in output["documents"]
    ]


async def test_a_rule_is_added_changed_and_removed(tmp_path: Path) -> None:
    async with open_server(tmp_path, "Hello.", [EDIT], "Done.") as client:
        page = Page(client, id_ := await client.begin())
        async with client.follow(id_) as socket:  # the session is at work from now on
            await send_order(socket, "user_message", text="Hi.")
            await read_until(socket, "result")
        added = await page.run("add", "deny folder", "bash(git push *)")
        rows = await page.rows()
        row = "deny bash(git push *) always, in this folder"
        edited = await page.run(row, "edit", "write_file(*.txt)", dial="deny")
        async with client.follow(id_) as socket:
            await send_order(socket, "user_message", text="Go.")
            await read_until(socket, "result")
        after = await page.rows()
        await page.run("deny write_file(*.txt) always, in this folder", "remove")
        removed = await page.rows()

    assert texts(added)[0] == f"From now on: {row}".replace(") a", ")  a")
    assert rows == ["+ add a rule", row]
    assert texts(edited)[0].startswith("From now on: deny write_file(*.txt)")
    assert after[1] == "deny write_file(*.txt) always, in this folder"
    assert after[2].startswith("refused write_file a.txt")
    assert removed[1].startswith("refused write_file a.txt")
    assert not (tmp_path / "a.txt").exists()


async def test_a_page_cannot_add_rules_for_all_folders(tmp_path: Path) -> None:
    async with open_server(tmp_path, "Done.") as client:
        page = Page(client, await client.begin())
        places = [i["id"] for i in (await page.run("add"))["question"]["items"]]

    assert places == ["allow session", "allow folder", "ask folder", "deny folder"]


async def test_an_invalid_rule_is_reported_and_not_saved(tmp_path: Path) -> None:
    async with open_server(tmp_path, "Done.") as client:
        page = Page(client, await client.begin())
        wrong = await page.run("add", "allow folder", "editfile")
        rows = await page.rows()

    assert "names no tool there is" in texts(wrong)[0]
    assert rows == ["+ add a rule"]
