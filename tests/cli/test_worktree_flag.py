"""`--worktree`: a session in a git working tree of its own."""

import io
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from refold.cli.main import main
from refold.config.paths import paths
from refold.config.project import read_project
from refold.config.trusted_folders import TrustedFolders
from tests.cli.running import call

pytestmark = pytest.mark.slow
WHERE = call("bash", command="pwd > where; cat where")


def git(folder: Path, *arguments: str) -> str:
    own = ("-c", "user.name=n", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *own, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with one commit, to stand in, and nothing on stdin."""
    path = tmp_path / "project"
    (path / "sub").mkdir(parents=True)
    (path / "a.txt").write_text("one\n")
    (path / "sub/b.txt").write_text("two\n")
    git(path, "init", "-q", "-b", "trunk")
    git(path, "add", ".")
    git(path, "commit", "-qm", "one")
    monkeypatch.chdir(path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    monkeypatch.setattr("select.select", lambda *_: ([sys.stdin], [], []))
    return path


def task(repository: Path, *flags: str, does: object = None) -> int:
    path = repository.parent / "script.jsonl"
    lines = ([does] if does else []) + [{"text": "Done."}]
    path.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))
    return main(["-p", "Go", "--yolo", "--script", str(path), *flags])


def test_a_task_runs_in_its_worktree_and_its_changes_remain_there(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = task(repository, "-w", "paint", does=WHERE)

    tree = repository.parent / "project-paint"
    assert (code, (tree / "where").read_text().strip()) == (0, str(tree))
    assert not (repository / "where").exists()
    assert git(tree, "branch", "--show-current") == "refold/paint"
    assert git(repository, "branch", "--show-current") == "trunk"
    out, err = capfd.readouterr()
    assert (out, err.splitlines()) == ("Done.\n", [
        f"refold: works in {tree}, on the branch refold/paint",
        f"refold: the work is in {tree}, on the branch refold/paint",
    ])  # fmt: skip


@pytest.mark.parametrize("trusted", [True, False])
def test_untracked_deny_rules_of_a_trusted_folder_apply_in_its_worktree(
    repository: Path, *, trusted: bool
) -> None:
    settings = repository / ".refold/config.local.toml"
    settings.parent.mkdir()
    settings.write_text('[permissions]\ndeny = ["bash(pwd *)"]\n')
    (repository / ".git/info/exclude").write_text(".refold/\n")
    if trusted:
        folders = TrustedFolders(paths(os.environ).folders)
        folders.trust(read_project(repository, paths(os.environ).settings))

    task(repository, "-w", "paint", does=WHERE)

    assert (repository.parent / "project-paint/where").exists() != trusted


def test_an_unchanged_worktree_is_removed(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = task(repository, "-w", does=call("bash", command="cat a.txt"))

    assert (code, [path.name for path in repository.parent.glob("project*")]) == (
        0,
        ["project"],
    )
    assert git(repository, "branch", "--list", "refold/*") == ""
    assert "nothing was changed, so " in capfd.readouterr().err


def test_a_task_begins_in_the_same_subfolder_of_the_worktree(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository / "sub")

    task(repository, "-w", "paint", does=WHERE)

    tree = repository.parent / "project-paint/sub"
    assert (tree / "where").read_text().strip() == str(tree)


def test_a_second_task_with_the_same_name_reuses_the_worktree(repository: Path) -> None:
    task(repository, "-w", "paint", does=WHERE)
    tree = repository.parent / "project-paint"
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "where")

    code = task(repository, "--worktree=paint", does=call("bash", command="cat where"))

    assert (code, git(tree, "log", "-1", "--format=%s")) == (0, "where")


def test_a_worktree_is_removed_when_the_start_fails(
    repository: Path,
) -> None:
    assert main(["-p", "Go", "-w", "paint", "--script", "none.jsonl"]) == 1

    assert [path.name for path in repository.parent.glob("project*")] == ["project"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-w", "fix the test"), "'fix the test' is not a name for a working tree"),
        (("-w", "a..b"), "'a..b' is not a name"),
        (("-w", "-c"), "it cannot be combined with -c or -r"),
        (("-w", "taken"), "already exists and is not a working tree of"),
    ],
)
def test_an_invalid_worktree_is_refused_with_one_sentence(
    repository: Path,
    capfd: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    message: str,
) -> None:
    (repository.parent / "project-taken").mkdir()

    assert task(repository, *flags) == 1

    err = capfd.readouterr().err
    assert (message in err, err.count("\n")) == (True, 1)
    assert git(repository, "branch", "--list", "refold/*") == ""


def test_a_worktree_outside_a_repository_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["-p", "Go", "-w"]) == 1

    text = f"refold: --worktree: {tmp_path} is not a git repository, so no working tree "
    assert capfd.readouterr().err == f"{text}can be made\n"


RULES = '[permissions]\nallow = ["bash(touch *)"]\n'


@pytest.mark.parametrize(("committed", "counts"), [(RULES, True), (RULES + "#\n", False)])
def test_settings_apply_in_a_worktree_only_if_they_equal_the_trusted_ones(
    repository: Path, committed: str, counts: bool
) -> None:
    own = repository / ".refold/config.toml"
    own.parent.mkdir()
    own.write_text(committed)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "settings")
    own.write_text(RULES)
    places = paths(os.environ)
    TrustedFolders(places.folders).trust(read_project(repository, places.settings))
    path = repository.parent / "script.jsonl"
    lines = (call("bash", command="touch b"), {"text": "Done."})
    path.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))

    main(["-p", "Go", "-w", "paint", "--script", str(path)])

    assert (repository.parent / "project-paint/b").exists() == counts
