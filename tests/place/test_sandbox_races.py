"""A command renames directories while another one starts: nothing outside is reached.

The sandbox finds guarded paths and mounts them by path. A link that is put in the way
between the two would make it mount something else, or move away files of the user.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from refold.place.guarded_paths import worktree_of
from refold.values.tools import Confinement
from tests.place.walled import Walled, needs_bubblewrap, walled

ROUNDS = int(os.environ.get("REFOLD_FLIPS", "40"))
WRITING = Confinement(writes=True)
FLIPPER = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
name, pause, until = sys.argv[1], float(sys.argv[2]), time.time() + 300
here, last = os.path.split(name)
os.makedirs(name, exist_ok=True)
os.symlink(os.path.relpath(os.path.abspath("../victim"), os.path.abspath(here or ".")),
           name + "-link")
while time.time() < until and not os.path.exists("stop"):
    if not os.path.islink(name):
        for made in (".vs" + "code", ".ss" + "h"):
            try: os.mkdir(name + "/" + made)
            except OSError: pass
    libc.syscall(316, -100, name.encode(), -100, (name + "-link").encode(), 2)  # exchange
    time.sleep(pause)
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Walled]:
    needs_bubblewrap()
    (tmp_path / "victim/.ssh").mkdir(parents=True)
    (tmp_path / "victim/.ssh/id_rsa").write_text("a key")
    with walled(tmp_path / "ws") as ws:
        (ws.root / "flip.py").write_text(FLIPPER)
        yield ws


def run_during_link_swaps(
    place: Walled, name: str, command: str, pause: float
) -> list[str]:
    """Run `command` repeatedly while a link is swapped; return the errors of failed starts."""
    failed = list[str]()

    async def main() -> None:
        async def run(line: str, seconds: float) -> None:
            try:
                await place.commands.run(
                    line, cwd=str(place.root), seconds=seconds, confines=WRITING
                )
            except Exception as error:
                failed.append(str(error))

        async with anyio.create_task_group() as group:
            group.start_soon(run, f"python3 flip.py {name} {pause}", 300)
            while not (place.root / name).exists():
                await anyio.sleep(0.01)
            for n in range(ROUNDS):
                await run(command.format(n=n), 20)
            await run("touch stop", 20)

    anyio.run(main)
    return failed


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.0, 0.002, 0.01])
@pytest.mark.parametrize("name", ["a", "deep/er/a"])
def test_no_command_writes_outside_while_another_swaps_a_directory_and_a_link(
    place: Walled, name: str, pause: float
) -> None:
    victim = place.root.parent / "victim"

    run_during_link_swaps(
        place, name, f"touch {name}/got-out-{{n}} {name}/.vscode/x", pause
    )

    assert sorted(os.listdir(victim)) == [".ssh"]
    assert (victim / ".ssh/id_rsa").read_text() == "a key"


@pytest.mark.slow
def test_an_existing_guarded_file_stays_unchanged_while_another_command_swaps_links(
    place: Walled,
) -> None:
    guard = place.root / "a/.vscode/tasks.json"
    guard.parent.mkdir(parents=True)
    guard.write_text("as it was")

    run_during_link_swaps(place, "a", "echo x > a/.vscode/tasks.json; echo x > b", 0.001)

    texts = [p.read_text() for p in place.root.rglob("tasks.json")]
    assert texts == ["as it was"]


def other_repository(path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    (path / ".git/hooks/pre-push").write_text("theirs")
    return path / ".git"


@pytest.mark.parametrize(
    "command",
    [
        "mkdir x; echo gitdir: {git} > x/.git",
        "ln -s {git} .git",
        "mkdir -p x/.git; ln -s {git}/config x/.git/config; ln -s {git}/hooks x/.git/hooks",
        "mkdir -p y z; echo gitdir: ../y > z/.git; echo {git} > y/commondir",
        "mkdir -p x; ln -s {git}/.. x/.vscode",
    ],
)
def test_no_file_of_another_repository_is_quarantined(tmp_path: Path, command: str) -> None:
    needs_bubblewrap()
    git = other_repository(tmp_path / "other")
    before = (git / "config").read_text()

    with walled(tmp_path / "ws") as place:
        place.run(command.format(git=git))

    assert (git / "config").read_text() == before
    assert (git / "hooks/pre-push").read_text() == "theirs"


def test_quarantined_files_stay_when_the_session_is_closed(tmp_path: Path) -> None:
    needs_bubblewrap()
    with walled(tmp_path / "ws") as place:
        result = place.run("echo mine > .env")

    (goal,) = [Path(one.goal) for one in result.guarded.undone]
    assert (goal.read_text(), goal.parent.name) == ("mine\n", "ws-quarantine")


def forge_repository(root: Path, git: str, files: dict[str, str]) -> None:
    (root / ".git").write_text(f"gitdir: {git}\n")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("git", "files"),
    [
        ("evil", {"evil/gitdir": ".git", "evil/commondir": "{victim}"}),
        ("evil", {"evil/gitdir": "{root}/.git", "evil/commondir": "/"}),
        ("g/worktrees/e", {"g/worktrees/e/gitdir": "{root}/.git",
                           "g/worktrees/e/commondir": "{victim}"}),
        ("g/worktrees/e", {"g/worktrees/e/gitdir": "{root}/.git",
                           "g/worktrees/e/commondir": "../.."}),
    ],
)  # fmt: skip
def test_forged_worktree_files_make_no_outside_directory_writable(
    tmp_path: Path, git: str, files: dict[str, str]
) -> None:
    needs_bubblewrap()
    root, victim = tmp_path / "ws", tmp_path / "victim"
    root.mkdir()
    other_repository(victim)
    data = {n: t.format(victim=victim / ".git", root=root) for n, t in files.items()}
    forge_repository(root, git, data)

    with walled(root) as place:
        place.run(f"touch {victim}/x {victim}/.git/x")

    assert worktree_of(str(root)) == ""
    assert not (victim / "x").exists()
    assert not (victim / ".git/x").exists()


def test_a_worktree_record_of_another_directory_opens_no_repository(tmp_path: Path) -> None:
    """A link in the workspace leads to the record of a foreign worktree."""
    victim = other_repository(tmp_path / "victim")
    record = victim / "worktrees/theirs"
    record.mkdir(parents=True)
    (record / "gitdir").write_text(f"{tmp_path}/elsewhere/.git\n")
    (record / "commondir").write_text("../..\n")
    root = tmp_path / "ws"
    root.mkdir()
    forge_repository(root, str(record), {})

    assert worktree_of(str(root)) == ""
    (record / "gitdir").write_text(f"{root}/.git\n")
    assert worktree_of(str(root)) == str(victim)


@pytest.mark.parametrize("name", [".git", ".git/commondir", "sub/.git", ".git/config"])
def test_a_named_pipe_instead_of_a_git_file_does_not_block_commands(
    tmp_path: Path, name: str
) -> None:
    needs_bubblewrap()
    (tmp_path / "ws" / name).parent.mkdir(parents=True)
    os.mkfifo(tmp_path / "ws" / name)

    with walled(tmp_path / "ws") as place:
        assert place.run("echo ran; mkfifo .mcp.json").text == "ran\n"
