"""The settings of a folder over HTTP: rules, MCP servers, skills, agents, notes, schedules."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.config.paths import paths
from tests.mcp import fake_server
from tests.place.walled import needs_bubblewrap
from tests.server.serving import Client, open_server, read_until, send_order

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
WRITE = ("write_file", '{"path": "a.txt", "content": "x"}')
SETTINGS = "/api/settings"


async def get(client: Client, path: str) -> Any:
    answer = await client.ask("GET", f"{SETTINGS}/{path}")
    assert answer.status == 200, answer.body
    return answer.json


# Rules.


async def test_a_new_rule_applies_to_open_and_later_conversations(
    tmp_path: Path,
) -> None:
    rule = {"verdict": "deny", "place": "folder", "new": "write_file(*.txt)"}
    async with open_server(
        tmp_path, [WRITE], "Done.", flags={"permission_mode": "bypass"}
    ) as c:
        id_ = await c.begin()
        added = await c.ask("POST", f"{SETTINGS}/rules", rule)
        async with c.follow(id_) as socket:
            await send_order(socket, "user_message", text="Go.")
            await read_until(socket, "result")
        listed = await get(c, "rules")
        old = listed["rules"][0]["text"]
        removed = await c.ask(
            "POST", f"{SETTINGS}/rules", {"verdict": "deny", "place": "folder", "old": old}
        )

    assert added.status == 200, added.body
    assert [(r["verdict"], r["place"]) for r in listed["rules"]] == [("deny", "folder")]
    assert not (tmp_path / "a.txt").exists()
    assert removed.json["rules"] == []


async def test_a_deny_read_rule_hides_files_from_open_conversations_at_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret.txt").write_text("pineapple\n")
    rule = {"verdict": "deny", "place": "folder", "new": "read(secret.txt)"}
    look = [("bash", '{"command": "ls | xargs cat 2>&1"}')]
    flags = {"permission_mode": "bypass"}
    async with open_server(tmp_path, look, "Done.", look, "Done.", flags=flags) as c:
        file = f"/api/conversations/{await c.begin()}/files/secret.txt"
        results = list[str]()
        async with c.follow(file.split("/")[3]) as socket:
            for _ in range(2):
                await send_order(socket, "user_message", text="Go.")
                frames = await read_until(socket, "result")
                results += [f["text"] for f in frames if f["type"] == "tool_result"]
                await c.ask("POST", f"{SETTINGS}/rules", rule)
        download = await c.ask("GET", file)

    assert "pineapple" in results[0]
    assert "pineapple" not in results[1]
    assert download.status == 404


@pytest.mark.peer
async def test_a_deny_read_rule_hides_files_from_an_mcp_server_that_runs(
    tmp_path: Path,
) -> None:
    needs_bubblewrap()
    secret = tmp_path / "secret.txt"
    secret.write_text("pineapple\n")
    new = {"name": "s", "command": program("read", str(secret))}
    rule = {"verdict": "deny", "place": "folder", "new": "read(secret.txt)"}
    look = [("mcp__s__echo", '{"text": ""}')]
    flags = {"permission_mode": "bypass"}
    results = list[str]()
    async with open_server(tmp_path, look, "Done.", look, "Done.", flags=flags) as c:
        await c.ask("POST", f"{SETTINGS}/mcp", new)
        await c.ask("POST", f"{SETTINGS}/mcp/s/test", {})  # its tools are known then
        async with c.follow(await c.begin()) as socket:
            for _ in range(2):
                await send_order(socket, "user_message", text="Go.")
                frames = await read_until(socket, "result")
                results += [f["text"] for f in frames if f["type"] == "tool_result"]
                await c.ask("POST", f"{SETTINGS}/rules", rule)

    assert "pineapple" in results[0]
    assert "Permission denied" in results[1]


async def test_a_rule_added_for_one_folder_is_not_listed_for_another(
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    rule = {"verdict": "allow", "place": "folder", "new": "bash(ls)"}
    async with open_server(tmp_path) as client:
        await client.ask("POST", f"{SETTINGS}/rules?folder={other}", rule)
        here, there = (
            await get(client, "rules"),
            await get(client, f"rules?folder={other}"),
        )

    assert here["rules"] == []
    assert [r["text"] for r in there["rules"]] == ["bash(ls)"]
    assert there["directory"] == str(other)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"verdict": "allow", "place": "user", "new": "bash"},
            "an allow rule for all folders is added in a terminal",
        ),
        ({"verdict": "deny", "place": "folder", "new": "bash("}, "'bash('"),
        ({"verdict": "deny", "place": "folder", "new": "bahs"}, "'bahs'"),
        ({"verdict": "deny", "place": ""}, "a rule is missing"),
        ({"verdict": "deny", "place": "", "old": "bash"}, "is set in"),
    ],
)
async def test_a_rule_that_cannot_be_set_is_refused_and_changes_nothing(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    async with open_server(tmp_path) as client:
        refused = await client.ask("POST", f"{SETTINGS}/rules", change)
        rules = await get(client, "rules")

    assert refused.status == 400
    assert reason in refused.json["reason"]
    assert rules["rules"] == []
    assert not paths(os.environ).settings.exists()


async def test_a_deny_rule_for_all_folders_is_written_to_the_settings_of_the_user(
    tmp_path: Path,
) -> None:
    rule = {"verdict": "deny", "place": "user", "new": "bash(rm *)"}
    async with open_server(tmp_path) as client:
        added = await client.ask("POST", f"{SETTINGS}/rules", rule)

    assert [r["place"] for r in added.json["rules"]] == ["user"]
    assert "bash(rm *)" in paths(os.environ).settings.read_text()


async def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    async with open_server(tmp_path) as client:
        answer = await client.ask("GET", f"{SETTINGS}/rules?folder=/no/such/place")

    assert answer.status == 400
    assert "'/no/such/place' is not a directory" in answer.json["reason"]


async def test_the_default_mode_is_chosen_and_bypass_only_in_a_terminal(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path) as client:
        chosen = await client.ask("PUT", f"{SETTINGS}/mode", {"mode": "accept-edits"})
        refused = await client.ask("PUT", f"{SETTINGS}/mode", {"mode": "bypass"})
        rules = await get(client, "rules")

    assert (chosen.status, chosen.json["mode"]) == (200, "accept-edits")
    assert (refused.status, "in a terminal" in refused.json["reason"]) == (400, True)
    assert rules["mode"] == "accept-edits"


# MCP servers.


def program(*text: str) -> list[str]:
    return [sys.executable, fake_server.__file__, *text]


async def test_an_mcp_server_is_added_tried_and_removed(tmp_path: Path) -> None:
    new = {"name": "s", "command": program(), "env": {"TOKEN": "secret-of-mine-1234"}}
    async with open_server(tmp_path) as client:
        added = await client.ask("POST", f"{SETTINGS}/mcp", new)
        again = await client.ask("POST", f"{SETTINGS}/mcp", new)
        tried = await client.ask("POST", f"{SETTINGS}/mcp/s/test", {})
        known = await get(client, "mcp")
        removed = await client.ask("DELETE", f"{SETTINGS}/mcp/s")
        gone = await client.ask("DELETE", f"{SETTINGS}/mcp/s")
        after = await get(client, "mcp")

    (row,) = added.json["servers"]
    assert (added.status, row["state"], row["own"]) == (201, "new", True)
    assert (again.status, "remove it first" in again.json["reason"]) == (400, True)
    assert (tried.json["state"], tried.json["why"]) == ("connected", "")
    assert [tool["name"] for tool in tried.json["tools"]] == ["echo"]
    assert known["servers"][0]["state"] == "known"
    for answer in (added, tried):
        assert b"secret-of-mine" not in answer.body
    assert (removed.status, gone.status, after["servers"]) == (200, 404, [])


async def test_an_mcp_server_that_fails_is_listed_with_the_reason(tmp_path: Path) -> None:
    async with open_server(tmp_path, "Hello.") as client:
        await client.ask(
            "POST", f"{SETTINGS}/mcp", {"name": "f", "command": program("crash")}
        )
        tried = await client.ask("POST", f"{SETTINGS}/mcp/f/test", {})
        async with client.follow(await client.begin()) as socket:  # which connects it, too
            await send_order(socket, "user_message", text="Hi.")
            await read_until(socket, "result")
            while (row := (await get(client, "mcp"))["servers"][0])["state"] == "new":
                await anyio.sleep(0.02)

    assert (tried.status, tried.json["state"]) == (200, "failed")
    assert tried.json["why"]
    assert (row["state"], bool(row["why"])) == ("failed", True)


async def test_changed_tools_are_accepted_only_as_they_were_shown(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([fake_server.ECHO]))
    new = {"name": "s", "command": program("state", str(file))}
    async with open_server(tmp_path) as client:
        await client.ask("POST", f"{SETTINGS}/mcp", new)
        await client.ask("POST", f"{SETTINGS}/mcp/s/test", {})
        file.write_text(json.dumps([{**fake_server.ECHO, "description": "Other words."}]))
        changed = (await client.ask("POST", f"{SETTINGS}/mcp/s/test", {})).json
        stale = await client.ask(
            "POST", f"{SETTINGS}/mcp/s/accept", {"differences": ["another"]}
        )
        accepted = await client.ask(
            "POST", f"{SETTINGS}/mcp/s/accept", {"differences": changed["differences"]}
        )

    assert (changed["blocked"], changed["tools"]) == (["echo"], [])
    assert "+Other words." in changed["differences"]
    assert (stale.status, "changed again" in stale.json["reason"]) == (400, True)
    assert (accepted.json["blocked"], len(accepted.json["tools"])) == ([], 1)


async def test_the_address_of_an_mcp_server_is_listed_without_its_secrets(
    tmp_path: Path,
) -> None:
    new = {"name": "maps", "url": "https://ada:pass@maps.example:8443/mcp?token=key"}
    async with open_server(tmp_path) as client:
        added = await client.ask("POST", f"{SETTINGS}/mcp", new)

    (row,) = added.json["servers"]
    assert row["target"] == "https://maps.example:8443/mcp?…"


async def test_the_command_of_an_mcp_server_is_listed_without_its_secrets(
    tmp_path: Path,
) -> None:
    command = ["maps", "--api-key", "abc", "--token=abc", "--port", "80", "sk-ant-12"]
    async with open_server(tmp_path) as client:
        added = await client.ask(
            "POST", f"{SETTINGS}/mcp", {"name": "m", "command": command}
        )

    (row,) = added.json["servers"]
    secret = "[secret]"
    assert row["target"] == f"maps --api-key {secret} --token={secret} --port 80 {secret}"


async def test_an_mcp_server_needs_an_address_or_a_command(tmp_path: Path) -> None:
    async with open_server(tmp_path) as client:
        answers = [
            await client.ask("POST", f"{SETTINGS}/mcp", {"name": "x", **more})
            for more in ({}, {"url": "ftp://x"}, {"url": "https://x", "command": ["y"]})
        ]

    assert [answer.status for answer in answers] == [400, 400, 400]


# Skills, agents, notes.


async def test_skills_and_agents_are_listed_with_notices_of_invalid_skills(
    tmp_path: Path,
) -> None:
    skills = paths(os.environ).config / "skills"
    for name, text in (
        ("good", "---\nname: good\ndescription: Does good.\n---\nBe good."),
        ("bad", "no front matter"),
    ):
        (skills / name).mkdir(parents=True)
        (skills / name / "SKILL.md").write_text(text)
    async with open_server(tmp_path) as client:
        listed = await get(client, "skills")
        text = await get(client, "skills/good")
        unknown = await client.ask("GET", f"{SETTINGS}/skills/nothing")
        agents = await get(client, "agents")

    assert "good" in [skill["name"] for skill in listed["skills"]]
    assert any("bad" in notice for notice in listed["notices"])
    assert "Be good." in text["text"]
    assert unknown.status == 404
    assert "main" in [agent["name"] for agent in agents["agents"]]


async def test_notes_are_added_listed_and_forgotten(tmp_path: Path) -> None:
    async with open_server(tmp_path, flags={"memory": True}) as client:
        added = await client.ask(
            "POST", f"{SETTINGS}/notes", {"text": "Tests need the flag -x."}
        )
        listed = await get(client, "notes")
        forgotten = await client.ask(
            "DELETE", f"{SETTINGS}/notes?text=Tests%20need%20the%20flag%20-x."
        )
        again = await client.ask(
            "DELETE", f"{SETTINGS}/notes?text=Tests%20need%20the%20flag%20-x."
        )
        after = await get(client, "notes")

    assert added.status == 201, added.body
    assert [note["text"] for note in listed["notes"]] == ["Tests need the flag -x."]
    assert (forgotten.status, again.status, after["notes"]) == (204, 404, [])


async def test_memory_is_switched_off_in_the_settings_of_the_user(tmp_path: Path) -> None:
    async with open_server(tmp_path, flags={}) as client:
        await client.ask("PUT", f"{SETTINGS}/memory", {"on": False})
        off = paths(os.environ).settings.read_text()
        await client.ask("PUT", f"{SETTINGS}/memory", {"on": True})
        on = paths(os.environ).settings.read_text()

    assert (off, on) == ("memory = false\n", "memory = true\n")


# Schedules.


async def test_a_schedule_is_added_with_the_rights_of_its_folder_and_stopped(
    tmp_path: Path,
) -> None:
    wanted = {"prompt": "Sum it up.", "every": "1d", "allow": ["bash(date)"], "zone": "UTC"}
    async with open_server(tmp_path) as client:
        added = await client.ask("POST", f"{SETTINGS}/schedules", wanted)
        listed = await get(client, "schedules")
        stopped = await client.ask("DELETE", f"{SETTINGS}/schedules/{added.json['id']}")
        unknown = await client.ask("DELETE", f"{SETTINGS}/schedules/99")
        after = await get(client, "schedules")

    assert added.status == 201, added.body
    (row,) = listed
    assert (row["prompt"], row["when"]) == ("Sum it up.", "every 1d")
    assert (row["allow"], row["directory"]) == (["bash(date)"], str(tmp_path))
    assert (stopped.status, unknown.status, after) == (204, 404, [])


@pytest.mark.parametrize(
    "wanted",
    [
        {"prompt": "x"},
        {"prompt": "x", "at": "someday"},
        {"prompt": "x", "every": "1d", "mode": "bypass"},
        {"prompt": "x", "every": "1d", "mode": "loud"},
    ],
)
async def test_an_invalid_schedule_is_refused(
    tmp_path: Path, wanted: dict[str, str]
) -> None:
    async with open_server(tmp_path) as client:
        refused = await client.ask("POST", f"{SETTINGS}/schedules", wanted)
        listed = await get(client, "schedules")

    assert (refused.status, listed) == (400, [])
    assert json.loads(refused.body)["kind"] == "BadInput"
