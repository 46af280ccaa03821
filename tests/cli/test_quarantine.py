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
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def quarantine(place: Path, content: str = "echo hello\n") -> str:
    """A file, or with no content a directory with one; its name in quarantine."""
    if content:
        place.write_text(content)
    else:
        (place / "inside").mkdir(parents=True)
        (place / "inside/file").write_text("12345")
    here = os.open(place.parent, FOLDER_FLAGS)
    where = os.path.join(os.environ["REFOLD_HOME"], "quarantine")
    try:
        return Path(move_to(place.name, here, str(place.parent / place.name), where)).name
    finally:
        os.close(here)


def run_quarantine(capfd: Said, *arguments: str) -> tuple[int, str, str]:
    code = main(["quarantine", *arguments])
    return (code, *capfd.readouterr())


def list_quarantine(capfd: Said) -> list[dict[str, Any]]:
    _, out, _ = run_quarantine(capfd, "list", "--json")
    return [json.loads(line) for line in out.splitlines()]


def test_quarantined_files_are_listed_with_origin_time_and_size(
    work: Path, capfd: Said
) -> None:
    assert run_quarantine(capfd, "list") == (0, "", "the quarantine is empty\n")
    quarantine(work / ".envrc")
    name = quarantine(work / ".vscode", "")

    assert [(row["path"], row["size"], row["kind"]) for row in list_quarantine(capfd)] == [
        (str(work / ".vscode"), 5, "directory"),
        (str(work / ".envrc"), 11, "file"),
    ]
    _, out, _ = run_quarantine(capfd, "list")
    first, _ = out.splitlines()
    assert first.split()[0] == f"{name}/"
    assert first.endswith(f"from {work / '.vscode'}")


@pytest.mark.parametrize("content", ["echo hello\n", ""], ids=["a file", "a directory"])
def test_a_quarantined_file_is_restored_to_its_path_or_another(
    work: Path, capfd: Said, content: str
) -> None:
    first, second = quarantine(work / "thing", content), quarantine(work / "thing", content)

    as_listed = first if content else f"{first}/"
    assert run_quarantine(capfd, "restore", as_listed)[0] == 0
    assert run_quarantine(capfd, "restore", second[:8], "--to", "other")[0] == 0

    for place in (work / "thing", work / "other"):
        assert (place / "inside/file").exists() if not content else place.read_text()
    assert list_quarantine(capfd) == []
    assert list((work.parent / "home/quarantine/.from").iterdir()) == []


@pytest.mark.parametrize("there", ["file", "directory", "dangling link"])
@pytest.mark.parametrize("content", ["echo hello\n", ""], ids=["a file", "a directory"])
def test_quarantine_restore_refuses_to_replace_an_existing_path(
    work: Path, capfd: Said, content: str, there: str
) -> None:
    name = quarantine(work / "thing", content)
    if there == "file":
        (work / "thing").write_text("mine")
    elif there == "directory":
        (work / "thing").mkdir()
    else:
        (work / "thing").symlink_to("/nowhere")
    before = (work / "thing").lstat().st_ino

    code, _, err = run_quarantine(capfd, "restore", name)

    assert (code, err) == (
        1,
        f"refold: {work}/thing already exists: choose another place with --to PATH\n",
    )
    assert (work / "thing").lstat().st_ino == before
    assert len(list_quarantine(capfd)) == 1


def test_quarantine_restore_does_not_follow_symlinks(work: Path, capfd: Said) -> None:
    (work / "sub").mkdir()
    name = quarantine(work / "sub/thing")
    (work / "sub").rmdir()
    (work.parent / "outside").mkdir()
    (work / "sub").symlink_to(work.parent / "outside")

    back, elsewhere = (
        run_quarantine(capfd, "restore", name),
        run_quarantine(capfd, "restore", name, "--to", "sub/thing"),
    )

    assert (back[0], elsewhere[0]) == (1, 1)
    assert "links are not followed" in back[2]
    assert list((work.parent / "outside").iterdir()) == []


def test_delete_removes_a_quarantined_directory_and_no_target_of_its_links(
    work: Path, capfd: Said
) -> None:
    (work / "mine").write_text("mine")
    (work / ".vscode").mkdir()
    (work / ".vscode/link").symlink_to(work)
    name = quarantine(work / ".vscode", "")

    assert run_quarantine(capfd, "delete", "--yes", name)[0] == 0

    assert list_quarantine(capfd) == []
    assert (work / "mine").read_text() == "mine"


@pytest.mark.parametrize("name", ["", "nothing", "../home", ".from", "/", "x"])
def test_quarantine_refuses_an_unknown_or_ambiguous_name(
    work: Path, capfd: Said, name: str
) -> None:
    home = Path(os.environ["REFOLD_HOME"])
    quarantine(work / "thing")
    for mark in ("x1", "x2"):
        (home / "quarantine" / mark).write_text("x")

    for what in ("restore", "delete"):
        code, _, err = run_quarantine(capfd, what, name)
        assert (code, "refold quarantine list shows all" in err) == (1, True)
    assert len(list_quarantine(capfd)) == 3


def test_a_quarantined_file_of_unknown_origin_needs_a_target(
    work: Path, capfd: Said
) -> None:
    home = Path(os.environ["REFOLD_HOME"])
    (home / "quarantine").mkdir(parents=True)
    (home / "quarantine/0123-old").write_text("x")

    unknown = run_quarantine(capfd, "restore", "0123-old")
    known = run_quarantine(capfd, "restore", "0123-old", "--to", "old")

    assert (unknown[0], "add --to PATH" in unknown[2], known[0]) == (1, True, 0)
    assert (work / "old").read_text() == "x"
