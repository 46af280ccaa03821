"""acpx, a client of the protocol that others wrote, runs sessions; `scripts/peers` gets it."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import call, command, script

ACPX = (
    Path(os.environ.get("REFOLD_PEERS") or Path(__file__).parents[2] / ".peers")
    / "acpx/node_modules/.bin/acpx"
)

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not shutil.which("node"), reason="node is not installed"),
    pytest.mark.skipif(not ACPX.exists(), reason=f"there is no {ACPX}"),
]


def acpx(workspace: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    (workspace / "a.py").write_text("x = 1\n")
    edit = call("edit_file", path="a.py", old="1", new="2")
    lines = (call("read_file", path="a.py"), edit, {"text": "All done."})
    agent = shlex.join(command("acp", "--script", script(workspace.parent, *lines)))
    return subprocess.run(
        [str(ACPX), "--agent", agent, *flags, "exec", "Make x 2"], cwd=workspace, text=True,
        capture_output=True, timeout=100, check=False,
    )  # fmt: skip


def test_acpx_runs_a_session_with_an_approval_and_a_diff(project_directory: Path) -> None:
    done = acpx(project_directory, "--approve-all")

    assert done.returncode == 0, done.stderr
    assert f"diff {project_directory}/a.py" in done.stdout
    assert "All done." in done.stdout
    assert "[done] end_turn" in done.stdout
    assert (project_directory / "a.py").read_text() == "x = 2\n"


def test_a_change_denied_by_acpx_leaves_the_file_unchanged(project_directory: Path) -> None:
    done = acpx(project_directory, "--deny-all")

    assert "All done." in done.stdout
    assert (project_directory / "a.py").read_text() == "x = 1\n"
