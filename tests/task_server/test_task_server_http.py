"""Several programs give tasks to one `refold mcp serve --http`, with the official SDK's client.

Processes, and an SDK that takes long to import: these tests are slow.
"""

import http.client
import json
import signal
import subprocess
from argparse import Namespace
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from refold.cli.main import main
from refold.cli.mcp_serve import launch_at
from tests.cli.running import LONG, Document, call, command, script, start_refold
from tests.journal_files import find_journals
from tests.task_server.test_task_server import (
    EDIT,
    MODES,
    READ,
    call_tool,
    read_refusal,
    wait_for_command,
    wait_for_end,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


class Server(NamedTuple):
    address: str
    token: str
    process: "subprocess.Popen[bytes]"

    @property
    def netloc(self) -> str:
        return self.address.removeprefix("http://").removesuffix("/mcp")


@pytest.fixture
def project_directory(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    (path / "a.py").write_text("x = 1\n")
    return path


@contextmanager
def serve(workspace: Path, *lines: Document) -> Generator[Server]:
    """Yield a server of the process, at its first start."""
    answers = script(workspace.parent, *lines)
    with start_refold(
        "mcp", "serve", "--http", "--port", "0", "--script", answers, cwd=workspace
    ) as it:
        assert it.stdout
        address, token = (it.stdout.readline().decode().split()[1] for _ in range(2))
        yield Server(address, token, it)


@asynccontextmanager
async def open_client(
    server: Server,
    mode: str = "auto",
    user: Callable[[Any], dict[str, object]] | None = None,
) -> AsyncGenerator[Any]:
    import mcp_types as types
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async def answer_form(context: Any, params: Any) -> types.ElicitResult:
        assert user is not None
        content: Any = user(params)
        return types.ElicitResult(action="accept", content=content)

    bearer = {"Authorization": f"Bearer {server.token}"}
    async with create_mcp_http_client(headers=bearer) as connection:
        client = Client(
            streamable_http_client(server.address, http_client=connection), mode=mode,
            elicitation_callback=None if user is None else answer_form,
        )  # fmt: skip
        with anyio.fail_after(60):
            async with client:
                yield client


def status(server: Server, **headers: str) -> int:
    """Return the status of a request with these headers in addition to the required ones."""
    hello = {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }  # fmt: skip
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    data: Mapping[str, str] = {
        "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {server.token}", **headers,
    }  # fmt: skip
    connection = http.client.HTTPConnection(server.netloc, timeout=LONG)
    try:
        connection.request("POST", "/mcp", json.dumps(body), data)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_task_over_http_asks_the_user_and_is_completed(
    project_directory: Path, mode: str
) -> None:
    texts = list[str]()

    def user(params: Any) -> dict[str, object]:
        texts.append(params.message)
        return {"allow": True}

    async def check(server: Server) -> None:
        async with open_client(server, mode, user) as client:
            ended = await wait_for_end(client, "Make x 2")
            assert {k: ended[k] for k in ("state", "answer", "files")} == {
                "state": "ended", "answer": "Done.", "files": {"a.py": "changed"},
            }  # fmt: skip
            task = ended["task_id"]
            read = await call_tool(client, "read_changed_file", task_id=task, path="a.py")
            assert read == {"result": "x = 2\n"}

    with serve(project_directory, READ, EDIT, {"text": "Done."}) as server:
        anyio.run(check, server)

    (question,) = texts
    assert question.startswith("May refold call edit_file with ")


def test_requests_without_the_token_or_from_another_site_are_refused(
    project_directory: Path,
) -> None:
    with serve(project_directory, {"text": "x"}) as server:
        port = server.netloc.partition(":")[2]
        data = {
            "as it is": status(server),
            "localhost": status(server, Host=f"localhost:{port}"),
            "no token": status(server, Authorization=""),
            "another token": status(server, Authorization="Bearer x"),
            "rebound": status(server, Host=f"evil.example:{port}"),
            "a page": status(server, Origin="https://evil.example"),
            "a page without a site": status(server, Origin="null"),
            "another server here": status(server, Origin="http://127.0.0.1:1"),
            "its own page": status(server, Origin=f"http://{server.netloc}"),
            "a form": status(server, **{"Content-Type": "text/plain"}),
        }

    assert data == {
        "as it is": 200, "localhost": 200, "no token": 401, "another token": 401,
        "rebound": 421, "a page": 403, "a page without a site": 403,
        "another server here": 403, "its own page": 200, "a form": 415,
    }  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_two_clients_do_not_see_tasks_or_questions_of_each_other(
    project_directory: Path, mode: str
) -> None:
    """Each task asks about one call. The other client gets "not found" for it."""
    put = {"one": list[str](), "other": list[str]()}
    ends = dict[str, Any]()

    def user(name: str, params: Any) -> dict[str, object]:
        put[name].append(params.message)
        return {"allow": name == "one"}

    async def follow(client: Any, name: str, task: str) -> None:
        ends[name] = await call_tool(client, "follow_task", task_id=task)

    async def check(server: Server) -> None:
        async with (
            open_client(server, mode, partial(user, "one")) as one,
            open_client(server, mode, partial(user, "other")) as other,
        ):
            mine = await call_tool(one, "start_task", task="x", workspace="one")
            other_task = await call_tool(other, "start_task", task="x", workspace="other")
            for client, of in ((one, other_task), (other, mine)):
                text = await read_refusal(client, "follow_task", task_id=of["session"])
                assert f"there is no task {of['session']!r}" in text
            async with anyio.create_task_group() as group:
                group.start_soon(follow, one, "one", mine["task_id"])
                group.start_soon(follow, other, "other", other_task["task_id"])

    for name in put:
        (project_directory / name).mkdir()
    lines = (call("bash", command="touch made"), {"text": "Done."})
    with serve(project_directory, *lines) as server:
        anyio.run(check, server)

    assert {name: len(asked) for name, asked in put.items()} == {"one": 1, "other": 1}
    assert {name: each["state"] for name, each in ends.items()} == {
        "one": "ended", "other": "ended",
    }  # fmt: skip
    assert [(project_directory / name / "made").exists() for name in put] == [True, False]


@pytest.mark.parametrize("mode", MODES)
def test_at_a_signal_the_server_stops_tasks_and_informs_their_followers(
    project_directory: Path, home: Path, mode: str
) -> None:
    """A client may have a stream open that never ends by itself."""
    (home / "refold").mkdir(exist_ok=True)
    (home / "refold" / "config.toml").write_text(
        '[permissions]\nallow = ["bash(sleep *)"]\n'
    )
    ends = list[Any]()

    async def follow(client: Any, task: str) -> None:
        ends.append(await call_tool(client, "follow_task", task_id=task))

    async def check(server: Server) -> None:
        async with open_client(server, mode) as client:
            task_start = await call_tool(client, "start_task", task="Wait")
            wait_for_command(home)
            async with anyio.create_task_group() as group:
                group.start_soon(follow, client, task_start["task_id"])
                await anyio.wait_all_tasks_blocked()
                server.process.send_signal(signal.SIGTERM)

    with serve(project_directory, call("bash", command="sleep 600")) as server:
        anyio.run(check, server)
        assert server.process.wait(LONG) == 0
        assert server.process.stderr
        assert server.process.stderr.read() == b""

    (ended,) = ends
    assert (ended["state"], ended["outcome"]) == ("ended", "interrupted")
    (journal,) = find_journals(home)
    kinds = [json.loads(line)["kind"] for line in journal.read_text().splitlines()]
    assert kinds[-1] == "TurnEnded"


def test_the_token_is_printed_when_created_and_invalid_once_renewed(
    project_directory: Path,
) -> None:
    def show_token(*flags: str) -> str:
        asks = command("mcp", "serve", "--http", "--show-token", *flags)
        return subprocess.run(asks, capture_output=True, text=True, check=True).stdout

    with serve(project_directory, {"text": "x"}) as server:
        first = server.token

    assert show_token() == f"{first}\n"
    arguments = ("mcp", "serve", "--http", "--port", "0")
    with start_refold(*arguments, cwd=project_directory) as again:
        assert again.stdout
        assert again.stderr
        address = again.stdout.readline().decode()
        assert again.stderr.readline().decode() == (
            "refold: the token is unchanged: refold mcp serve --http --show-token prints it\n"
        )
        again.terminate()
        assert again.wait(LONG) == 0
        assert (address.split()[0], again.stdout.read()) == ("address:", b"")
    assert show_token("--new-keys") != f"{first}\n"


def test_serve_refuses_a_network_address_without_tls(project_directory: Path) -> None:
    completed_process = subprocess.run(
        command("mcp", "serve", "--http", "--host", "0.0.0.0", "--port", "0"),
        capture_output=True, text=True, cwd=project_directory, timeout=LONG,
    )  # fmt: skip

    assert completed_process.returncode == 1
    assert "--host 0.0.0.0 is reached from other machines" in completed_process.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--port", "0"), ("--host", "::1"), ("--name", "box"), ("--tls-cert", "c.pem"),
        ("--tls-key", "k.pem"), ("--plain-http",), ("--new-keys",), ("--show-token",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_address_options_are_refused_without_http(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", "serve", *options]) == 1
    assert "need --http: add it" in capsys.readouterr().err


def test_a_request_that_no_client_answers_is_denied_after_a_timeout(
    project_directory: Path,
) -> None:
    from refold.task_server.delegated_tasks import DelegatedTasks

    script_path = script(
        project_directory.parent, call("bash", command="touch made"), {"text": "I see."}
    )
    options = Namespace(
        model="", permission_mode=None, allow=[], deny=[], script=script_path
    )

    async def check() -> None:
        async with anyio.create_task_group() as group:
            tasks = DelegatedTasks(
                project_directory, partial(launch_at, options), group, 0.01
            )
            task = await tasks.start("x", "", attended=True)
            while task.state != "ended":
                await task.wait_for_change()
            assert task.answer_text == "I see."
            await tasks.close()

    anyio.run(check)
    assert not (project_directory / "made").exists()
