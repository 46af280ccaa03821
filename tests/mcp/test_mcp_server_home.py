"""An MCP server has a directory of its own to write in, and the others that its entry names."""

import json
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.journal.events.kinds import Ended, Said
from tests.mcp.test_mcp_sessions import Place, call_ends, echo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def call(place: Place, **arguments: object) -> Ended:
    (end,) = place.turns(place.agent(echo(**arguments), "Done."), "Go.")
    return end


def environ(place: Place, **entry: Any) -> dict[str, str]:
    place.servers(s=place.fake("environ", **entry))
    place.connect_servers()
    return json.loads(call(place).text)


def test_a_server_gets_its_own_home_directory_with_its_caches(place: Place) -> None:
    variables = environ(place)

    home = variables["HOME"]
    assert home.startswith(str(place.home / "mcp-servers" / "s-"))
    assert variables["XDG_CACHE_HOME"] == f"{home}/.cache"
    assert variables["npm_config_cache"] == f"{home}/.npm"
    assert Path(home).stat().st_mode & 0o777 == 0o700


def test_a_python_server_gets_the_same_hash_seed_at_every_start(place: Place) -> None:
    seeds = {environ(place)["PYTHONHASHSEED"] for _ in range(2)}

    (seed,) = seeds
    assert seed.isdecimal()


def test_variables_of_the_entry_override_those_of_the_server_home(place: Place) -> None:
    variables = environ(place, env={"HOME": "/elsewhere", "XDG_STATE_HOME": "/x"})

    assert (variables["HOME"], variables["XDG_STATE_HOME"]) == ("/elsewhere", "/x")
    assert "mcp-servers" not in variables["XDG_CONFIG_HOME"]


def test_a_server_writes_to_its_home_and_commands_cannot_see_the_file(place: Place) -> None:
    home = environ(place)["HOME"]
    place.servers(s=place.fake("write"))
    place.connect_servers()

    wrote = call(place, text=f"{home}/state")
    hidden = b64encode(f"{home}/state".encode()).decode()  # to name it is refused already
    line = f"file=$(echo {hidden} | base64 -d); cat $file; echo x > $file"
    shell = [("bash", json.dumps({"command": line}))]
    agent = place.agent(shell, "Done.", allow=("mcp__*", "bash"))
    (command,) = place.turns(agent, "Go.")

    assert (wrote.outcome, Path(home, "state").read_text()) == ("done", "written")
    assert command.text.count("No such file or directory") == 2


def test_a_server_may_write_only_to_the_directories_of_its_entry(place: Place) -> None:
    notes = place.home.parent / "notes"
    notes.mkdir()
    file = notes / "new.txt"
    place.servers(s=place.fake("write"))
    place.connect_servers()
    result = call(place, text=str(file))
    place.servers(s=place.fake("write", writable=[str(notes)]))

    outcome = call(place, text=str(file))

    assert result.outcome == "failed"
    assert f'"writable": ["{notes}"]' in result.text
    assert (outcome.outcome, file.read_text()) == ("done", "written")


def test_a_server_is_offered_the_workspace_as_a_root(place: Place) -> None:
    place.servers(s=place.fake("roots"))
    place.connect_servers()

    answer = json.loads(call(place).text)

    assert [root["uri"] for root in answer["result"]["roots"]] == [place.work.as_uri()]


def test_the_first_request_does_not_wait_for_a_slow_server(place: Place) -> None:
    place.servers(**{f"s{n}": place.fake("slow") for n in range(3)})

    async def use_session() -> float:
        async with place.agent("Done.").session() as session:
            start = time.monotonic()
            await session.run("Go.")
            seconds = time.monotonic() - start
            entries = await session.reports.entries()
            assert any(isinstance(e.event, Said) for e in entries)
            assert not await call_ends(session)
            return seconds

    assert anyio.run(use_session) < 2.5  # each server takes 3 s
