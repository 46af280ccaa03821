"""Files in quarantine are listed, restored or deleted by the user."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from refold.cli.main import main
from refold.place.openat import FOLDER_FLAGS
from refold.place.quarantine import move_to

Said = pytest.CaptureFixture[str]


@pytest.fixture
def project_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def quarantine(place: Path, content: str = "echo hello\n") -> str:
    """Return a file, or with no content a directory with one; its name in quarantine."""
    if content:
        place.write_text(content)
    else:
        (place / "inside").mkdir(parents=True)
        (place / "inside/file").write_text("12345")
    here = os.open(place.parent, FOLDER_FLAGS)
    quarantine_directory = os.path.join(os.environ["REFOLD_HOME"], "quarantine")
    try:
        return Path(
            move_to(place.name, here, str(place.parent / place.name), quarantine_directory)
        ).name
    finally:
        os.close(here)


def run_quarantine(capfd: Said, *arguments: str) -> tuple[int, str, str]:
    code = main(["quarantine", *arguments])
    return (code, *capfd.readouterr())


def list_quarantine(capfd: Said) -> list[dict[str, Any]]:
    _, out, _ = run_quarantine(capfd, "list", "--json")
    return [json.loads(line) for line in out.splitlines()]


def test_quarantined_files_are_listed_with_origin_time_and_size(
    project_directory: Path, capfd: Said
) -> None:
    assert run_quarantine(capfd, "list") == (0, "", "the quarantine is empty\n")
    quarantine(project_directory / ".envrc")
    name = quarantine(project_directory / ".vscode", "")

    assert [(row["path"], row["size"], row["kind"]) for row in list_quarantine(capfd)] == [
        (str(project_directory / ".vscode"), 5, "directory"),
        (str(project_directory / ".envrc"), 11, "file"),
    ]
    _, out, _ = run_quarantine(capfd, "list")
    first, _ = out.splitlines()
    assert first.split()[0] == f"{name}/"
    assert first.endswith(f"from {project_directory / '.vscode'}")


@pytest.mark.parametrize("content", ["echo hello\n", ""], ids=["a file", "a directory"])
def test_a_quarantined_file_is_restored_to_its_path_or_another(
    project_directory: Path, capfd: Said, content: str
) -> None:
    first, second = (
        quarantine(project_directory / "thing", content),
        quarantine(project_directory / "thing", content),
    )

    as_listed = first if content else f"{first}/"
    assert run_quarantine(capfd, "restore", as_listed)[0] == 0
    assert run_quarantine(capfd, "restore", second[:8], "--to", "other")[0] == 0

    for place in (project_directory / "thing", project_directory / "other"):
        assert (place / "inside/file").exists() if not content else place.read_text()
    assert list_quarantine(capfd) == []
    assert list((project_directory.parent / "home/quarantine/.from").iterdir()) == []


@pytest.mark.parametrize("there", ["file", "directory", "dangling link"])
@pytest.mark.parametrize("content", ["echo hello\n", ""], ids=["a file", "a directory"])
def test_quarantine_restore_refuses_to_replace_an_existing_path(
    project_directory: Path, capfd: Said, content: str, there: str
) -> None:
    name = quarantine(project_directory / "thing", content)
    if there == "file":
        (project_directory / "thing").write_text("mine")
    elif there == "directory":
        (project_directory / "thing").mkdir()
    else:
        (project_directory / "thing").symlink_to("/nowhere")
    before = (project_directory / "thing").lstat().st_ino

    code, _, err = run_quarantine(capfd, "restore", name)

    assert (code, err) == (
        1,
        f"refold: {project_directory}/thing already exists: choose another place with --to PATH\n",
    )
    assert (project_directory / "thing").lstat().st_ino == before
    assert len(list_quarantine(capfd)) == 1


def test_quarantine_restore_does_not_follow_symlinks(
    project_directory: Path, capfd: Said
) -> None:
    (project_directory / "sub").mkdir()
    name = quarantine(project_directory / "sub/thing")
    (project_directory / "sub").rmdir()
    (project_directory.parent / "outside").mkdir()
    (project_directory / "sub").symlink_to(project_directory.parent / "outside")

    back, elsewhere = (
        run_quarantine(capfd, "restore", name),
        run_quarantine(capfd, "restore", name, "--to", "sub/thing"),
    )

    assert (back[0], elsewhere[0]) == (1, 1)
    assert "links are not followed" in back[2]
    assert list((project_directory.parent / "outside").iterdir()) == []


def test_delete_removes_a_quarantined_directory_and_no_target_of_its_links(
    project_directory: Path, capfd: Said
) -> None:
    (project_directory / "mine").write_text("mine")
    (project_directory / ".vscode").mkdir()
    (project_directory / ".vscode/link").symlink_to(project_directory)
    name = quarantine(project_directory / ".vscode", "")

    assert run_quarantine(capfd, "delete", "--yes", name)[0] == 0

    assert list_quarantine(capfd) == []
    assert (project_directory / "mine").read_text() == "mine"


@pytest.mark.parametrize("name", ["", "nothing", "../home", ".from", "/", "x"])
def test_quarantine_refuses_an_unknown_or_ambiguous_name(
    project_directory: Path, capfd: Said, name: str
) -> None:
    home = Path(os.environ["REFOLD_HOME"])
    quarantine(project_directory / "thing")
    for mark in ("x1", "x2"):
        (home / "quarantine" / mark).write_text("x")

    for verb in ("restore", "delete"):
        code, _, err = run_quarantine(capfd, verb, name)
        assert (code, "refold quarantine list shows all" in err) == (1, True)
    assert len(list_quarantine(capfd)) == 3


def test_a_quarantined_file_of_unknown_origin_needs_a_target(
    project_directory: Path, capfd: Said
) -> None:
    home = Path(os.environ["REFOLD_HOME"])
    (home / "quarantine").mkdir(parents=True)
    (home / "quarantine/0123-old").write_text("x")

    unknown = run_quarantine(capfd, "restore", "0123-old")
    known = run_quarantine(capfd, "restore", "0123-old", "--to", "old")

    assert (unknown[0], "add --to PATH" in unknown[2], known[0]) == (1, True, 0)
    assert (project_directory / "old").read_text() == "x"
