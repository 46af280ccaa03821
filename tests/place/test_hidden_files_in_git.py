"""A file that is hidden from a command is neither shown nor recorded as changed by git."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from refold.place.git_index import first_tracked_path, mark_hidden_entries
from refold.place.port import Finished
from refold.values.tools import Confinement
from tests.place.walled import Walled, needs_bubblewrap, walled

SECRET = "hunter2-of-env"
PERSON = ("-c", "user.name=a", "-c", "user.email=a@example.org")
LOOKS = (
    "git diff", "git diff HEAD", "git diff --stat -p", "git status --short", "git diff --cached",
    "git grep hunter2", "git ls-files -m", "git diff-files -p", "git diff-index -p HEAD",
    "git -c core.sparseCheckout=true diff", "git stash show -p", "git status -v -v --porcelain",
)  # fmt: skip


def git(folder: Path, *text: str) -> str:
    done = subprocess.run(
        ["git", *PERSON, *text], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Walled]:
    """The user has committed files with keys, and hidden one more by a rule."""
    needs_bubblewrap()
    denied = str(tmp_path.resolve() / "ws/certs")
    with walled(tmp_path / "ws", unread=lambda: [denied]) as result:
        root = result.root
        (root / "certs").mkdir()
        (root / "sub").mkdir()
        for name in (".env", "sub/.env.local", "certs/key", "plain"):
            (root / name).write_text(f"{'K=' + SECRET if name != 'plain' else 'x'}\n")
        git(root, "init", "-q")
        git(root, "add", "-f", ".")
        git(root, "commit", "-qm", "one")
        yield result


def run(place: Walled, command: str, *, narrow: bool) -> Finished:
    async def main() -> Finished:
        confines = Confinement(writes=narrow, narrow=narrow)
        return await place.commands.run(
            command, cwd=str(place.root), seconds=30, confines=confines
        )

    return anyio.run(main)


@pytest.mark.parametrize("narrow", [False, True], ids=["read-only", "in mode sandbox"])
def test_git_shows_a_hidden_file_neither_as_empty_nor_as_changed(
    place: Walled, narrow: bool
) -> None:
    (place.root / "plain").write_text("changed\n")

    text = run(place, "; ".join(LOOKS), narrow=narrow).text

    assert "+changed" in text
    assert " M plain" in text
    assert SECRET not in text
    assert ".env" not in text
    assert "certs" not in text


@pytest.mark.parametrize(
    "command",
    ["git add -A", "git commit -qam two", "git stash", "git add -A && git commit -qm two"],
)
def test_an_unapproved_program_commits_no_change_of_a_hidden_file(
    place: Walled, command: str
) -> None:
    (place.root / "plain").write_text("changed\n")
    (place.root / "x.sh").write_text(
        f"git {' '.join(PERSON)} {command.removeprefix('git ')}"
    )

    run(place, "bash x.sh", narrow=True)

    assert git(place.root, "status", "--short").split("\n")[0] == " M plain"
    assert git(place.root, "log", "--format=%s", "--", ".env") == "one\n"
    assert git(place.root, "stash", "list") == ""


def test_an_index_with_an_unknown_format_is_hidden_from_commands(place: Walled) -> None:
    git(place.root, "update-index", "--split-index")

    text = run(place, "git diff; git status", narrow=False).text

    assert SECRET not in text
    assert "index file corrupt" in text


def test_commits_work_in_a_repository_without_tracked_hidden_files(tmp_path: Path) -> None:
    needs_bubblewrap()
    with walled(tmp_path / "ws") as place:
        git(place.root, "init", "-q")
        (place.root / "a").touch()
        (place.root / ".env").write_text(SECRET)

        done = run(
            place, f"git add a && git {' '.join(PERSON)} commit -qm one", narrow=True
        )

        assert done.code == 0
        assert git(place.root, "log", "--format=%s") == "one\n"


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("hashing", ["sha1", "sha256"])
def test_git_reads_the_copied_index_in_every_format(
    tmp_path: Path, version: str, hashing: str
) -> None:
    git(tmp_path, "init", "-q", f"--object-format={hashing}")
    for name in (
        ".env",
        "a/.env.local",
        f"a/{'long' * 40}",
        "keys/one",
        "keys/deep/two",
        "z",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{SECRET} {name[-3:]}\n")
    git(tmp_path, "add", "-f", ".")
    git(tmp_path, "commit", "-qm", "one")
    git(tmp_path, "update-index", "--index-version", version)

    copy = mark_hidden_entries(
        (tmp_path / ".git/index").read_bytes(), {b".env", b"keys", b"a/.env.local"}
    )

    assert copy is not None
    (tmp_path / ".git/index").write_bytes(copy)
    (tmp_path / ".env").write_text("a stand-in\n")
    shutil.rmtree(tmp_path / "keys")
    assert git(tmp_path, "status", "--short") + git(tmp_path, "diff") == ""
    marked = [
        line for line in git(tmp_path, "ls-files", "-t").splitlines() if line[0] == "S"
    ]
    assert marked == ["S .env", "S a/.env.local", "S keys/deep/two", "S keys/one"]


@pytest.mark.parametrize("end", [0, 11, -1])
def test_a_damaged_index_raises_value_error(tmp_path: Path, end: int) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".env").write_text(SECRET)
    git(tmp_path, "add", "-f", ".")
    whole = (tmp_path / ".git/index").read_bytes()

    with pytest.raises(ValueError, match=r"."):
        mark_hidden_entries(whole[:end] if end >= 0 else b"XXXX" + whole[4:], {b".env"})


def test_the_search_for_a_repository_ends_at_the_root_of_the_disk(tmp_path: Path) -> None:
    hidden = str(tmp_path / "none" / ".env")

    assert first_tracked_path((hidden,), ("/",)) == ""


def test_the_first_tracked_hidden_file_is_named_by_its_own_path(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "b.env").write_text(SECRET)
    git(tmp_path, "add", "-f", ".")
    hidden = (str(tmp_path / "a.env"), str(tmp_path / "b.env"))

    assert first_tracked_path(hidden, (str(tmp_path),)) == str(tmp_path / "b.env")
