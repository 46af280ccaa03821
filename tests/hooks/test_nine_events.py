"""All nine events fire in the sessions of each way to work: terminal, script, server, subagent."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import anyio
import pytest

from refold.testing.providers import Line
from refold.values.modes import HookEvent
from tests.cli.running import LONG, call, script, start_refold
from tests.server.serving import open_server, read_until, send_order
from tests.terminal.at_home import TerminalDriver

HOOK_EVENTS: Sequence[str] = get_args(HookEvent)
pytestmark = pytest.mark.slow  # each hook is a program

LOG = 'cat >> "$CLAUDE_PROJECT_DIR/log"; echo >> "$CLAUDE_PROJECT_DIR/log"'
BASH: Line = [("bash", '{"command": "touch made"}')]
TASK: Line = [("task", '{"agent": "code", "prompt": "Do it."}')]
# The script: the root gives a task, and the subagent makes a call that needs approval.
STORY: Sequence[Line] = (TASK, BASH, "Made.", "Done.", "Summary.")
COMPACTS = (
    "[context]\ndefault_window_tokens = 20_000\ncompact_share = 0.03\nkept_messages = 1\n"
)


@pytest.fixture(autouse=True)
def _every_event_has_a_hook(home: Path) -> None:
    (home / "refold").mkdir(parents=True, exist_ok=True)
    hook = [{"hooks": [{"type": "command", "command": LOG}]}]
    hooks = {"hooks": dict.fromkeys(HOOK_EVENTS, hook)}
    (home / "refold" / "hooks.json").write_text(json.dumps(hooks))


def list_fired_events(directory: Path, *, below: bool = False) -> set[str]:
    """Which events; `below`: in a subagent."""
    (log,) = directory.rglob("log")
    rows = [json.loads(row) for row in log.read_text().split("\n") if row]
    return {
        item["hook_event_name"] for item in rows if not below or item["agent"] != "root"
    }


def test_at_a_terminal_all_nine_hook_events_fire(tmp_path: Path) -> None:
    TerminalDriver(tmp_path).tell("Go.", "y", "/compact", answers=tuple(STORY))

    assert list_fired_events(tmp_path) == set(HOOK_EVENTS)


def test_for_a_client_of_the_server_all_nine_hook_events_fire(tmp_path: Path) -> None:
    async def use_session() -> None:
        async with open_server(tmp_path, *STORY) as client:
            id_ = await client.begin()
            async with client.follow(id_) as socket:
                await send_order(socket, "user_message", text="Hi.", client_key="k1")
                data = (await read_until(socket, "tool_approval_request"))[-1]
                await send_order(
                    socket, "tool_approval_response",
                    call_id=data["call_id"], hash=data["hash"], allowed=True,
                )  # fmt: skip
                await read_until(socket, "result")
                await send_order(socket, "compact", client_key="k2")
                await read_until(socket, "compact")

    anyio.run(use_session)

    assert list_fired_events(tmp_path) == set(HOOK_EVENTS)


def test_in_a_script_all_hook_events_but_notification_fire(
    tmp_path: Path, home: Path
) -> None:
    """A script has no user to notify."""
    (home / "refold" / "config.toml").write_text(COMPACTS)
    long_output = call("bash", command="seq 2000")
    task = call("task", agent="code", prompt="Do it.")
    script_path = script(
        tmp_path,
        task,
        call("bash", command="echo hi"),
        {"text": "Made."},
        long_output,
        *[{"text": "Done."}] * 3,
    )

    with start_refold("-p", "Go.", "--script", script_path, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=LONG)

    assert (process.returncode, out) == (0, b"Done.\n"), err
    assert list_fired_events(tmp_path) == set(HOOK_EVENTS) - {"Notification"}


def test_in_a_subagent_all_hook_events_but_stop_fire(tmp_path: Path, home: Path) -> None:
    """The end of a subagent is SubagentStop instead of Stop."""
    (home / "refold" / "config.toml").write_text(COMPACTS)
    long: Line = [("bash", '{"command": "seq 2000"}')]

    TerminalDriver(tmp_path).tell("Go.", "y", answers=(TASK, BASH, long, *["Done."] * 4))

    assert list_fired_events(tmp_path, below=True) == set(HOOK_EVENTS) - {"Stop"}
