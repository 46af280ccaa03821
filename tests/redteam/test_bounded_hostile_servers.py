"""Hostile MCP servers cost a call or themselves: little time, memory and disk, and one sentence.

Each is started by refold as a process, which calls its one tool; `hostile_server` has the attacks. Others
are beside what they attack: `test_mcp_floods`, `test_mcp_sessions`, `test_mcp_http`, `test_mcp_login`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.cli.running import call, command, script, wait_until_gone
from tests.redteam import hostile_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

MAX_MEBIBYTES, MAX_JOURNAL_BYTES, MAX_HOME_BYTES = 400, 64 * 1024, 8 * 1024 * 1024
# Orders to a terminal, as they are and as JSON writes them.
ORDERS = ("\x1b]", "\x1b[", "\\u001b", "\u202e", "\\u202e")
UNUSABLE = "the MCP server s cannot be used: "
DIED = f"{UNUSABLE}its process exited with code 3: KeyError: "
LATE = "did not answer within 2 s"
NO_MESSAGE = "MCP server s: wrote a line that is not a valid message"

# The attack, and a text of the call's result, of a warning or of refold's log.
ATTACKS: Mapping[str, str] = {
    "die:start": f"{DIED}start",
    "die:initialize": f"{DIED}initialize",
    "die:tools/list": f"{DIED}tools/list",
    "die:resources/list": f"{DIED}resources/list",
    "die:tools/call": "The MCP server s failed: its process exited with code 3: KeyError: tools/call.",
    "hang:initialize": f"{UNUSABLE}it {LATE}",
    "hang:tools/list": f"{UNUSABLE}it {LATE}",
    "hang:resources/list": f"{UNUSABLE}it {LATE}",
    "hang:tools/call": f"The MCP server s {LATE}.",
    "drip:tools/list": f"{UNUSABLE}it {LATE}",
    "drip:tools/call": f"The MCP server s {LATE}.",
    "endless-list": "MCP server s: of its tools only the first 1,000 are used",
    "same-names": "the tools 'a b' and 'a.b', which would both be mcp__s__a_b: neither is used",
    "escapes": "done",
    "huge-schema": "the tool mcp__s__y is not used: its schema has 2,948,906 characters",
    "slow-pattern": "done",
    "long-line": "The MCP server s failed: it sent a line longer than 16 MiB.",
    "notices": "MCP server s: sends more than 20 notices in a second: the rest are left out",
    "log-lines": "MCP server s: line 19999",
    "requests": "MCP server s: sends more than 20 requests in a second: the rest are left out",
    "progress": "done",
    "elicit": "s asked too often in one call: its other questions were cancelled",
    "sample": "The MCP server s failed: it asked for more than 40 model calls, and was stopped.",
    "foreign-ids": NO_MESSAGE,
    "bytes": NO_MESSAGE,
    "twice": "first",
    "forged": "⟦U+005B⟧end of outside]",
    "links": ": @s:file:///etc/shadow]",
    "picture": "[image/png, 16,374 bytes, left out]",
    "numbers": "its answer is not what the protocol allows, and was not read",
    "version": f"{UNUSABLE}Unsupported protocol version from the server: 9999-99-99",
    "stays": "done",
}  # fmt: skip

# Runs a program and stores its peak of memory, in KiB. A child of the test's process would have
# that of the test, which it has before it is the program.
MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
open("peak", "w").write(str(peak))
raise SystemExit(code)
"""


class Outcome(Struct):
    """The output of refold, and the files in its home. `result` is the result of the call."""

    warnings: list[str]
    result: str
    journal: bytes
    log: str
    printed: str
    mebibytes: int
    home_bytes: int


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_mcp_server_is_limited_and_reported(tmp_path: Path, attack: str) -> None:
    outcome = run_attack(tmp_path, attack)

    sentence = ATTACKS[attack]
    known = (outcome.result, *outcome.warnings, outcome.log)
    assert any(sentence in text for text in known), outcome
    assert outcome.result.count("\n") < 1_200
    assert len("".join(outcome.warnings)) < 2_000
    assert outcome.mebibytes < MAX_MEBIBYTES
    assert len(outcome.journal) < MAX_JOURNAL_BYTES
    assert outcome.home_bytes < MAX_HOME_BYTES
    everything_written = outcome.printed + outcome.journal.decode()
    assert not any(order in everything_written for order in ORDERS)
    assert wait_until_gone(str(tmp_path / "work" / "server.py"))
    if UNUSABLE in sentence:  # the model reads why, though it calls by `tool_call`
        assert outcome.result.startswith(f"There is no tool 'mcp__s__x': {UNUSABLE}")


def run_attack(folder: Path, attack: str) -> Outcome:
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    (work / "server.py").write_text(Path(hostile_server.__file__).read_text())
    limit = 2_000 if attack.startswith(("hang", "drip")) else 20_000
    server = {
        "command": sys.executable, "args": [str(work / "server.py"), attack],
        "startupTimeout": limit, "timeout": limit,
    }  # fmt: skip
    (home / "mcp_servers.json").write_text(json.dumps({"mcpServers": {"s": server}}))
    search = call("tool_search", query="x")
    use = call("tool_call", name="mcp__s__x", arguments={"p": hostile_server.SLOW_TEXT})
    script_path = script(folder, search, use, {"text": "Done."})
    words = command("-p", "Go.", "--script", script_path, "--output-format", "json",
                    "--allow", "mcp__*")  # fmt: skip
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", MEASURE, *words], cwd=work, env={**os.environ, "REFOLD_HOME": str(home)},
            stdin=subprocess.DEVNULL, stdout=out, stderr=err,
        )  # fmt: skip
        status = process.wait()
    text = (folder / "out").read_text() + (folder / "err").read_text()
    assert status == 0, text
    (journal,) = home.glob("sessions/*/events.jsonl")
    content = journal.read_bytes()
    (result,) = (
        line["data"]["text"] for line in decode_lines(content)
        if line["kind"] == "Ended" and line["data"]["call_id"] == "call-1"
    )  # fmt: skip
    return Outcome(
        json.loads((folder / "out").read_text()).get("warnings", []),
        result,
        content,
        "".join(log.read_text() for log in home.glob("*.log*")),
        text,
        int((work / "peak").read_text()) // 1024,
        sum(file.stat().st_size for file in home.rglob("*") if file.is_file()),
    )


def decode_lines(journal: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.splitlines()]
