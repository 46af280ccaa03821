"""The user page says in plain words what a tool does, and what it did not do."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import refold

NODE = shutil.which("node")
TEXTS = Path(refold.__file__).parent / "server/pages/shared/texts.js"
PRINT = """
const { user } = await import(process.argv[1]);
const calls = JSON.parse(process.argv[2]);
console.log(JSON.stringify(calls.map(([tool, stage]) => user.activity(tool, stage))));
"""
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
]


def print_texts(*calls: tuple[str, str]) -> list[str]:
    assert NODE
    command_line = [
        NODE,
        "--input-type=module",
        "-e",
        PRINT,
        TEXTS.as_uri(),
        json.dumps(calls),
    ]
    return json.loads(subprocess.run(command_line, check=True, capture_output=True).stdout)


def test_labels_of_pending_and_refused_calls_do_not_claim_completion() -> None:
    assert print_texts(
        ("bash", "asked"), ("bash", "running"), ("bash", "done"), ("bash", "refused"),
        ("ask_user", "asked"), ("fly", "asked"), ("fly", "running"), ("fly", "done"),
    ) == [
        "Would like to run a command on this computer", "Running a command…",
        "Ran a command", "Did not run a command on this computer", "Asking you…",
        "Would like to use the tool “fly”", "Working…", "Used a tool",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "tool",
    [
        "read_file", "list_files", "tree", "grep", "edit_file", "web_fetch", "docs_lookup", "calc",
        "json_query", "diagnostics", "symbols", "references", "repo_map", "monitor", "notify",
        "schedule", "enter_worktree", "background_run", "spawn_teammate", "memory_write",
    ],
)  # fmt: skip
def test_each_common_tool_has_its_own_label(tool: str) -> None:
    assert print_texts((tool, "done")) != ["Used a tool"]
