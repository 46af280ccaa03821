"""Public MCP servers from npm and PyPI in sessions; `scripts/peers` gets them.

Those of npm speak the protocol of 2025, those of PyPI that of 2026.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold import Agent
from refold.client.session import Session
from refold.journal.events.kinds import Ended
from refold.testing.providers import Line, ScriptedProvider
from refold.testing.wire_server import Answer, wire_server

PEERS = Path(os.environ.get("REFOLD_PEERS") or Path(__file__).parents[2] / ".peers")
PYTHON = PEERS / "mcp-python" / "bin"
NODE = shutil.which("node") or ""


def program(name: str) -> Path:
    return PEERS / f"mcp-{name}" / "node_modules" / ".bin" / f"mcp-server-{name}"


pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not NODE, reason="node is not installed"),
    *(
        pytest.mark.skipif(not program(name).exists(), reason=f"{name} is not in {PEERS}")
        for name in ("everything", "filesystem", "memory")
    ),
    pytest.mark.skipif(
        not (PYTHON / "mcp-server-time").exists(), reason=f"mcp-python is not in {PEERS}"
    ),
]


def run_calls(directory: Path, config: object, *lines: Line, **options: Any) -> list[Ended]:
    """Return how the calls ended of a session with one server, whose tools were listed
    before.
    """
    home, work = directory / "home", directory / "work"
    home.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    (home / "mcp_servers.json").write_text(json.dumps({"mcpServers": {"s": config}}))

    async def use_session(*answers: Line) -> list[Ended]:
        agent = Agent(
            provider=ScriptedProvider(*answers, "Done."),
            directory=work,
            home=home,
            settings={"permissions.allow": ["mcp__s"]},
            **options,
        )
        async with agent.session() as session:
            await session.run("Go.")
            return await list_ended_calls(session)

    anyio.run(use_session, [("tool_search", '{"query": "anything"}')])
    return anyio.run(use_session, *lines)


async def list_ended_calls(session: Session) -> list[Ended]:
    entries = await session.reports.entries()
    return [entry.event for entry in entries if isinstance(entry.event, Ended)]


def call(tool: str, **arguments: object) -> Line:
    return [(f"mcp__s__{tool}", json.dumps(arguments))]


def test_the_everything_server_echoes_adds_shows_an_image_and_reports_progress(
    tmp_path: Path,
) -> None:
    server = {"command": str(program("everything")), "args": ["stdio"]}

    echo, total, picture, long = run_calls(
        tmp_path,
        server,
        call("echo", message="hello"),
        call("get-sum", a=2, b=40),
        call("get-tiny-image"),
        call("trigger-long-running-operation", duration=1, steps=2),
    )

    assert echo.text == "Echo: hello"
    assert total.text == "The sum of 2 and 40 is 42."
    assert [image.media_type for image in picture.images] == ["image/png"]
    assert "completed" in long.text


def test_a_question_of_the_everything_server_is_cancelled_without_a_user(
    tmp_path: Path,
) -> None:
    server = {"command": str(program("everything")), "args": ["stdio"]}

    (end,) = run_calls(tmp_path, server, call("trigger-elicitation-request"))

    assert '"action": "cancel"' in end.text


def test_the_filesystem_server_reads_files_and_writes_only_if_allowed(
    tmp_path: Path,
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "there.txt").write_text("what is there")
    server = {"command": str(program("filesystem")), "args": [str(work)]}
    write = call("write_file", path=str(work / "new.txt"), content="new")

    read, result = run_calls(
        tmp_path, server, call("read_text_file", path=str(work / "there.txt")), write
    )
    (outcome,) = run_calls(tmp_path, {**server, "writes": True}, write)

    assert (read.text, result.outcome, outcome.outcome) == (
        "what is there",
        "failed",
        "done",
    )
    assert (work / "new.txt").read_text() == "new"


def test_the_memory_server_stores_its_file_at_the_path_of_its_environment(
    tmp_path: Path,
) -> None:
    file = tmp_path / "work" / "memory.jsonl"
    server = {
        "command": str(program("memory")),
        "env": {"MEMORY_FILE_PATH": str(file)},
        "writes": True,
    }
    entity = {"name": "refold", "entityType": "program", "observations": ["it folds"]}

    outcome, result = run_calls(
        tmp_path,
        server,
        call("create_entities", entities=[entity]),
        call("search_nodes", query="folds"),
    )

    assert (outcome.outcome, "it folds" in result.text) == ("done", True)
    assert "refold" in file.read_text()


def test_the_time_server_returns_the_current_time(tmp_path: Path) -> None:
    server = {"command": str(PYTHON / "mcp-server-time")}

    (end,) = run_calls(tmp_path, server, call("get_current_time", timezone="UTC"))

    assert json.loads(end.text)["timezone"] == "UTC"


def test_the_git_server_reads_the_log_of_the_workspace(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    git = ["git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "The first"], check=True)
    server = {"command": str(PYTHON / "mcp-server-git")}

    (end,) = run_calls(tmp_path, server, call("git_log", repo_path=str(work)))

    assert "The first" in end.text


def test_the_fetch_server_reads_a_page_on_the_loopback(tmp_path: Path) -> None:
    server = {
        "command": str(PYTHON / "mcp-server-fetch"),
        "args": ["--ignore-robots-txt", "--allow-private-ips"],
    }

    page = Answer(b"<html><body><p>A page for you.</p></body></html>")

    async def use_session() -> list[Ended]:
        async with wire_server(page, page, page) as here:
            return await anyio.to_thread.run_sync(
                lambda: run_calls(
                    tmp_path, server, call("fetch", url=f"{here.url}/x", raw=True)
                )
            )

    (end,) = anyio.run(use_session)

    assert "A page for you." in end.text
