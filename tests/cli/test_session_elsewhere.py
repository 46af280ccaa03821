"""A whole session in a workspace elsewhere: files, commands and checkpoints are there, the rest is here."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import to_thread

from refold import Agent
from refold.cli.main import main
from refold.client.elsewhere import find_directory_elsewhere
from refold.testing.providers import ScriptedProvider
from tests.journal_files import find_journals

pytestmark = pytest.mark.slow  # each start sends the program of the far side

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cf"
    "c0000003010100c9fe92ef0000000049454e44ae426082"
)
CALLS: tuple[tuple[str, dict[str, object]], ...] = (
    ("glob", {"pattern": "**/*.py"}),
    ("read_file", {"path": "app.py"}),
    ("edit_file", {"path": "app.py", "old": "howdy", "new": "hello"}),
    ("bash", {"command": "python3 app.py; pwd"}),
    ("tool_call", {"name": "python", "arguments": {"code": "print(1)"}}),
)


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the directory of the place; nothing is on standard input."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    directory = tmp_path / "far"
    directory.mkdir()
    (directory / "app.py").write_text('print("howdy")\n')
    with open(os.devnull, encoding="utf-8") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield directory


def write_script(path: Path, *steps: dict[str, object]) -> str:
    path.write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    return str(path)


def calls(*rows: tuple[str, dict[str, object]]) -> list[dict[str, object]]:
    return [{"calls": [{"tool": tool, "arguments": arguments}]} for tool, arguments in rows]


def events(home: Path) -> list[dict[str, object]]:
    (journal,) = find_journals(home)
    return [json.loads(row) for row in journal.read_text().splitlines()]


def test_a_session_elsewhere_changes_files_there_and_has_its_journal_on_this_machine(
    far: Path, home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = write_script(tmp_path / "one", *calls(*CALLS), {"text": "It says hello."})
    place = f'cmd:"sh # {far}"'

    code = main(["-p", "Fix it", "--yolo", "--workspace", place, "--script", script])

    out, err = capfd.readouterr()
    ended = [event["data"] for event in events(home) if event["kind"] == "Ended"]
    assert (code, out) == (0, "It says hello.\n")
    assert f"The workspace is {place}: {far} of " in err
    assert (far / "app.py").read_text() == 'print("hello")\n'
    texts = [data["text"] for data in ended if isinstance(data, dict)]
    assert texts[0] == "app.py"
    assert texts[3] == f"hello\n{far}"
    assert "There is no tool 'python'" in texts[4]
    assert not list(far.glob("**/events.jsonl"))


def test_a_session_in_a_workspace_elsewhere_is_resumed_in_that_workspace(
    far: Path, home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = f'cmd:"sh # {far}"'
    edit = write_script(tmp_path / "one", *calls(*CALLS[1:3]), {"text": "Done."})
    look = write_script(tmp_path / "two", *calls(CALLS[1]), {"text": "Seen."})
    main(["-p", "Fix it", "--yolo", "--workspace", place, "--script", edit])

    code = main(["-c", "-p", "Look", "--yolo", "--workspace", place, "--script", look])

    assert (code, capfd.readouterr().out) == (0, "Done.\nSeen.\n")
    texts = [str(event["data"]) for event in events(home) if event["kind"] == "Ended"]
    assert 'print("hello")' in texts[-1]


@pytest.mark.peer
@pytest.mark.skipif(
    not shutil.which("unshare")
    or subprocess.run(["unshare", "-rn", "true"], check=False).returncode != 0,
    reason="optional: unshare cannot make a network namespace here",
)
def test_a_session_elsewhere_prints_that_its_workspace_has_no_network(
    far: Path, home: Path, tmp_path: Path,
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("REFOLD_SANDBOX__PROFILE", "off")
    script = write_script(tmp_path / "one", {"text": "Seen."})
    place = f'cmd:"unshare -rn sh # {far}"'

    main(["-p", "Look", "--workspace", place, "--script", script])

    assert "they can change and read everything in it. It has no network." in (
        capfd.readouterr().err
    )


@pytest.mark.anyio
async def test_file_names_images_and_branch_of_a_session_elsewhere_are_those_of_its_workspace(
    far: Path, home: Path, tmp_path: Path
) -> None:
    (far / "shot.png").write_bytes(PIXEL)
    (far / ".git").mkdir()
    (far / ".git" / "HEAD").write_text("ref: refs/heads/topic\n")
    directory = find_directory_elsewhere(f"cmd:sh # {far}", {})
    assert directory is not None
    agent = Agent(provider=ScriptedProvider("Done."), directory=directory)

    async with agent.session() as session:
        workspace = session.workspace
        names = await to_thread.run_sync(lambda: sorted(workspace.file_names()))
        images = await to_thread.run_sync(workspace.images_in, "see @shot.png and @no.png")
        outside = await to_thread.run_sync(workspace.images_in, f"@{tmp_path}/x.png")
        branch, root = await to_thread.run_sync(lambda: (workspace.branch, workspace.root))

    assert names == ["app.py", "shot.png"]
    assert [image.name for image in images.images] == ["shot.png"]
    assert (images.problems, outside.images) == ((), ())
    assert (branch, root) == ("topic", os.path.realpath(far))
