"""Which version of the protocol is spoken with a server: chosen, refused, or taken in vain."""

import json
import time
from pathlib import Path

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from refold.mcp.protocol_versions import mode_for, needs_older, older_version
from refold.mcp.servers import PROTOCOL_VERSIONS, read
from tests.mcp.test_mcp_sessions import Place

ECHO = ("mcp__s__echo", "{}")
REFUSED = MCPError(-32602, "no", {"supported": ["2024-11-05", "2025-03-26"]})


def protocol_in(place: Place) -> str:
    (file,) = place.home.rglob("mcp/s-*.json")
    return json.loads(file.read_text()).get("protocol", "")


def result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def test_the_sdk_supports_every_protocol_version_that_a_file_may_name() -> None:
    assert [mode_for(version) for version in PROTOCOL_VERSIONS] == [
        *["legacy"] * 4,
        "2026-07-28",
    ]
    assert mode_for("") == "auto"


def test_an_unknown_protocol_version_in_a_file_is_reported() -> None:
    file = read('{"s": {"command": "x", "protocol": "2020-01-01"}}', "here")

    assert file.servers == ()
    assert "protocol must be one of 2024-11-05" in file.problems[0]


def test_after_a_refused_version_the_newest_common_version_is_tried() -> None:
    assert older_version(REFUSED, "") == "2025-03-26"
    assert older_version(REFUSED, "2025-03-26") == ""
    assert older_version(MCPError(-32602, "no", "data"), "") == ""
    assert older_version(TimeoutError(), "") == ""


@pytest.mark.parametrize(
    ("text", "older"),
    [
        ("elicitation via server-initiated requests is unavailable on 2026-07-28", True),
        ("Cannot send 'x': no back-channel for server-initiated requests.", True),
        ("There is no such row.", False),
    ],
)
def test_an_older_version_is_tried_only_after_a_question_of_the_server_failed(
    text: str, older: bool
) -> None:
    assert needs_older("2026-07-28", result(text)) is older
    assert needs_older("2026-07-28", MCPError(-32600, text)) is older
    assert needs_older("2025-11-25", result(text)) is False


@pytest.mark.slow
def test_a_server_that_refuses_the_version_is_connected_with_its_own_version(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    place.servers(s=place.fake("oldest"))
    place.connect_servers()

    (end,) = place.turns(place.agent([ECHO], "Done."), "Go.")

    assert (end.outcome, end.text) == ("done", "echo {}")
    assert protocol_in(place) == "2024-11-05"


@pytest.mark.slow
def test_a_call_that_needs_an_older_version_fails_once_and_reconnects_with_it(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    place.servers(s=place.fake("newest"))
    place.connect_servers()

    first, second = place.turns(place.agent([ECHO], [ECHO], "Done."), "Go.")
    later = place.turns(place.agent([ECHO], "Done."), "Go.")

    assert "connected again with the protocol 2025-11-25" in first.text
    assert (first.outcome, second.text) == ("failed", "echo {}")
    assert [end.text for end in later] == ["echo {}"]


@pytest.mark.slow
def test_a_protocol_version_from_the_file_is_used_without_another_attempt(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    place.servers(s=place.fake("newest", protocol="2025-06-18"))
    place.connect_servers()
    began = time.monotonic()

    (end,) = place.turns(place.agent([ECHO], "Done."), "Go.")

    assert (end.text, protocol_in(place)) == ("echo {}", "")
    assert time.monotonic() - began < 30
