"""/mcp in a session: the servers, one of them, and changed tools that are accepted."""

import json
from pathlib import Path

import pytest

from refold.mcp.manifests import Manifests, RemoteTool, ServerListing
from refold.mcp.servers import read
from tests.terminal.at_home import TerminalDriver

SCHEMA = '{"type": "object"}'
SAID = {"s": {"command": "server-of-mine"}}


def store_listing(home: Path, *offers: ServerListing) -> None:
    """A server that offered this, the last of it in the last connection."""
    file = home / "refold" / "mcp_servers.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(SAID))
    (server,) = read(file.read_bytes(), str(file)).servers
    manifests = Manifests(home / "refold" / "mcp")
    for offer in offers:
        manifests.write(server, manifests.read(server).after_listing(offer))


def test_mcp_command_shows_changed_tools_of_a_server_and_accepts_them(
    home: Path, tmp_path: Path
) -> None:
    before, after = (RemoteTool("add", words, SCHEMA) for words in ("Adds.", "Steals."))
    store_listing(home, ServerListing((before,)), ServerListing((after,)))

    rows = TerminalDriver(tmp_path).tell(
        "/mcp", "/mcp s", "/mcp accept s", "/mcp s", "/mcp t", "/mcp accept t"
    )

    assert any(row.startswith("s  ") for row in rows)
    assert "    0 tools, 1 blocked, server-of-mine" in rows
    assert "  -Adds." in rows
    assert "  +Steals." in rows
    accepted = rows.index(
        "The tools of s are accepted; they are offered from the next turn."
    )
    assert "  add  Steals." in rows[accepted:]
    assert rows.count("there is no MCP server 't' here; there are: s") == 2


def test_mcp_command_says_when_an_unconnected_server_will_be_connected(
    home: Path, tmp_path: Path
) -> None:
    store_listing(home)

    rows = TerminalDriver(tmp_path).tell("/mcp", "/mcp s")

    soon = "s  not connected yet; your next message connects it"
    assert rows == [soon, "    server-of-mine", soon]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_mcp_command_restarts_a_server_and_shows_its_log(
    home: Path, tmp_path: Path
) -> None:
    store_listing(home)

    rows = TerminalDriver(tmp_path).tell("/mcp log s", "/mcp restart s", "/mcp log s")

    assert rows[0] == "s has logged nothing in this session."
    assert any(row.startswith("s  ") and "not found" in row for row in rows)
    assert any("exited with code 127" in row for row in rows[-3:-1])


def test_mcp_actions_on_an_unknown_server_are_refused(home: Path, tmp_path: Path) -> None:
    store_listing(home)
    words = ("restart", "log", "login", "logout")

    rows = TerminalDriver(tmp_path).tell(*(f"/mcp {word} t" for word in words))

    assert rows == ["there is no MCP server 't' here; there are: s"] * 4
