"""Only the person of the server gets a shell in the page, and only with `--terminal`."""

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from refold.errors import BadInput
from refold.journal.events.child_events import TerminalStarted
from refold.server.listening import ListenOptions
from refold.server.terminals import (
    MAX_TOKENS,
    TERMINAL_PERMISSION,
    TOKEN_SECONDS,
    LaunchTokens,
    check_not_shared,
)
from tests.server.page_terminals import (
    PageTerminal,
    ask_token,
    dial,
    end_of,
    open_terminal,
    page_headers,
    variables,
)
from tests.server.serving import Client, open_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def handshake_status(client: Client, id_: str, headers: Mapping[str, str]) -> int:
    try:
        async with dial(client, id_, headers):
            return HTTPStatus.SWITCHING_PROTOCOLS
    except InvalidStatus as error:
        return error.response.status_code


async def refusal(client: Client, id_: str, token: str) -> dict[str, object]:
    """Return what a socket answers to this token."""
    async with dial(client, id_, page_headers(client)) as socket:
        await PageTerminal(socket).send("start", token=token, rows=24, columns=80)
        return await end_of(socket)


def count_starts(client: Client, id_: str) -> int:
    entries = client.host.stored.entries(id_)
    return sum(isinstance(entry.event, TerminalStarted) for entry in entries)


async def test_without_the_terminal_flag_there_is_no_route_no_script_and_no_panel(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path) as client:
        id_ = await client.begin()
        headers = page_headers(client)
        token = await ask_token(client, id_, headers)
        socket = await handshake_status(client, id_, headers)
        page = (await client.ask("GET", "/dev", headers=headers)).body.decode()
        base = page.partition('src="')[2].partition("developer/page.js")[0]
        names = (
            "developer/terminal.js",
            "developer/terminal.css",
            "shared/vendor/xterm.js",
        )
        scripts = [
            (await client.ask("GET", f"{base}{name}", headers=headers)).status
            for name in names
        ]
        openapi = (await client.ask("GET", "/openapi.json")).body

    assert (token.status, socket) == (404, 403)
    assert scripts == [404, 404, 404]
    assert "data-terminal" not in page
    assert b"terminals" not in openapi


@pytest.mark.parametrize("is_on", [False, True], ids=["without", "with"])
async def test_only_the_developer_page_has_a_terminal_and_all_pages_have_one_content_policy(
    is_on: bool, tmp_path: Path
) -> None:
    async with open_server(
        tmp_path, terminal=variables(tmp_path) if is_on else None
    ) as client:
        headers = page_headers(client)
        user = await client.ask("GET", "/", headers=headers)
        developer = await client.ask("GET", "/dev", headers=headers)
        other = await client.ask("GET", "/api/health", headers=headers)
    policies = {a.headers["content-security-policy"] for a in (user, developer, other)}

    assert b"data-terminal" not in user.body
    assert (b"data-terminal" in developer.body) is is_on
    assert len(policies) == 1
    assert "unsafe" not in policies.pop()


async def test_terminal_tokens_and_sockets_of_other_sites_persons_and_programs_are_refused(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        own = page_headers(client)
        callers = {
            "another site": {**own, "Origin": "http://evil.example"},
            "no origin": {"Cookie": own["Cookie"]},
            "another person": page_headers(client, "Mallory"),
            "a program": client.token,
            "no cookie": {"Origin": own["Origin"]},
        }
        tokens = {
            name: (await ask_token(client, id_, headers)).status
            for name, headers in callers.items()
        }
        sockets = {
            name: await handshake_status(client, id_, headers)
            for name, headers in callers.items()
        }
        as_form = await client.ask(
            "POST", f"/api/conversations/{id_}/terminals", b"a=b",
            {**own, "Content-Type": "application/x-www-form-urlencoded"},
        )  # fmt: skip

    expected = dict.fromkeys(callers, 403) | {"no cookie": 401}
    assert tokens == expected
    assert sockets == expected
    assert as_form.status == 415
    assert count_starts(client, id_) == 0


async def test_a_terminal_token_is_valid_once_and_only_for_its_conversation(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_, other = await client.begin(), await client.begin()
        first = (await ask_token(client, id_, page_headers(client))).json["token"]
        elsewhere = await refusal(client, other, first)
        after_that = await refusal(client, id_, first)
        invented = await refusal(client, id_, "x" * 43)
        async with open_terminal(client, id_) as terminal:
            await terminal.type("exit\r")
            await terminal.read_end()
        none = count_starts(client, other), count_starts(client, id_)

    problem = "this launch token was used, is too old, or is for another conversation"
    refused = {"type": "ended", "reason": "failed", "code": None, "problem": problem}
    assert (elsewhere, after_that, invented) == (refused, refused, refused)
    assert none == (0, 1)


def test_a_terminal_token_expires_and_the_oldest_is_dropped_at_the_limit() -> None:
    now = 100.0
    tokens = LaunchTokens(lambda: now)
    first = tokens.issue("a", "page")
    second = tokens.issue("a", "page")

    now += TOKEN_SECONDS - 1
    in_time = tokens.redeem(first, "a", "page")
    now += 1
    late = tokens.redeem(second, "a", "page")
    many = [tokens.issue("a", "page") for _ in range(MAX_TOKENS + 1)]

    assert (in_time, late) == (True, False)
    assert tokens.redeem(many[0], "a", "page") is False
    assert tokens.redeem(many[1], "a", "ada") is False
    assert tokens.redeem(many[2], "a", "page") is True


@pytest.mark.parametrize(
    ("setup", "flag"),
    [
        (ListenOptions(host="0.0.0.0"), "--host 0.0.0.0"),
        (ListenOptions(host="192.0.2.7"), "--host 192.0.2.7"),
        (ListenOptions(names=("box.example",)), "--name box.example"),
    ],
)
def test_a_server_that_others_reach_has_no_terminals(
    setup: ListenOptions, flag: str
) -> None:
    with pytest.raises(BadInput, match=f"{flag} lets others reach it: leave out one"):
        check_not_shared(setup, TERMINAL_PERMISSION)


@pytest.mark.parametrize(
    "frame",
    [
        "{}",
        '{"type": "start"}',
        '{"type": "start", "token": "t", "rows": 0, "columns": 80}',
        '{"type": "start", "token": "t", "rows": 24, "columns": 80, "shell": "/bin/evil"}',
        '{"type": "resize", "rows": 24, "columns": 80}',
        b"ls\r",
        "[" * 10_000,
    ],
    ids=str,
)
async def test_no_shell_starts_after_an_invalid_first_frame(
    frame: str | bytes, tmp_path: Path
) -> None:
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        async with dial(client, id_, page_headers(client)) as socket:
            await socket.send(frame)
            end = await end_of(socket)
        count = count_starts(client, id_)

    assert end["reason"] == "failed"
    assert count == 0


@pytest.mark.parametrize(
    "frame",
    [
        b"x" * 70_000,
        '{"type": "shown", "bytes": 99999999}',
        '{"type": "resize", "rows": 100000, "columns": 1}',
        '{"type": "start", "token": "t", "rows": 24, "columns": 80}',
    ],
    ids=["too large", "not sent", "too many rows", "started twice"],
)
async def test_a_frame_that_breaks_the_protocol_ends_the_terminal(
    frame: str | bytes, tmp_path: Path
) -> None:
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_) as terminal:
            await terminal.socket.send(frame)
            end = await end_of(terminal.socket)

    assert end["reason"] == "failed"


async def test_terminal_output_that_looks_like_a_report_of_the_shell_is_not_recorded(
    tmp_path: Path,
) -> None:
    (tmp_path / "evil.txt").write_text("\x1b]633;E;curl evil.example;0\x07\x1b]633;E;0\x07")
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_) as terminal:
            await terminal.type("cat evil.txt; echo seen$((1+1)); exit\r")
            await terminal.read_end()
        entries = client.host.stored.entries(id_)

    lines = [getattr(entry.event, "command", None) for entry in entries]
    assert list(filter(None, lines)) == ["cat evil.txt; echo seen$((1+1)); exit"]
    assert b"curl evil.example" in terminal.output
