"""The tool `tree`: names below a directory, with the same rules as its siblings."""

import os
from collections.abc import Callable, Iterator

import anyio
import pytest

from refold.errors import ToolFailed
from refold.place.files import DiskFiles
from refold.testing.places import ToolDirectory, temporary_place
from refold.tools.tree import tree


@pytest.fixture
def place() -> Iterator[ToolDirectory]:
    with temporary_place() as result:
        yield result


def write_files(place: ToolDirectory, *names: str) -> None:
    for name in names:
        path = place.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def show_tree(place: ToolDirectory, **arguments: object) -> list[str]:
    return anyio.run(place.use, tree, arguments).text.split("\n")


def test_tree_lists_directories_first_and_indents_the_names_in_them(
    place: ToolDirectory,
) -> None:
    write_files(place, "b.py", "src/deep/c.py", "src/a.py", ".hidden", "new\nline")
    (place.directory / "empty").mkdir()

    assert show_tree(place) == [
        "empty/", "src/", "  deep/", "    c.py", "  a.py", ".hidden", "b.py", r"new\nline"
    ]  # fmt: skip


def test_tree_marks_directories_at_the_depth_limit_as_not_opened(
    place: ToolDirectory,
) -> None:
    write_files(place, "src/deep/c.py", "src/a.py")

    assert show_tree(place, depth=1) == ["src/ …"]
    assert show_tree(place, depth=2) == ["src/", "  deep/ …", "  a.py"]
    assert show_tree(place, path="src/deep") == ["c.py"]


def test_tree_leaves_out_and_counts_ignored_names(place: ToolDirectory) -> None:
    write_files(
        place, ".git/config", "a.py", "a.log", "build/b.py", "src/only.py", "src/kept.log"
    )
    (place.directory / ".gitignore").write_text("*.log\nbuild/\n")
    (place.directory / "src/.gitignore").write_text("/only.py\n!kept.log\n")

    assert show_tree(place) == [
        "src/", "  .gitignore", "  kept.log", ".gitignore", "a.py",
        "(3 ignored names are left out; list_files shows them)",
    ]  # fmt: skip


def test_tree_shows_an_ignored_directory_that_is_named(place: ToolDirectory) -> None:
    write_files(place, ".git/config", "build/b.py")
    (place.directory / ".gitignore").write_text("build/\n")

    assert show_tree(place, path="build") == ["b.py"]


def test_tree_shows_links_and_does_not_follow_them(place: ToolDirectory) -> None:
    write_files(place, "src/a.py")
    (place.directory / "loop").symlink_to(".")
    os.mkfifo(place.directory / "pipe")

    assert show_tree(place) == ["src/", "  a.py", "loop (link)", "pipe (device or pipe)"]


def test_tree_omits_files_that_may_not_be_read(place: ToolDirectory) -> None:
    write_files(place, "src/secret.txt", "src/a.py")
    place.files = DiskFiles(
        place.directory,
        why_unreadable=lambda real: "a rule forbids it" if "secret" in real else "",
    )

    assert show_tree(place) == ["src/", "  a.py"]


@pytest.fixture
def lock(place: ToolDirectory, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes listing these directories fail, also for root."""

    def lock_directories(*names: str) -> None:
        real_scandir = os.scandir
        locked = {os.stat(place.directory / name).st_ino for name in names}

        def scandir(number: int) -> object:
            if os.fstat(number).st_ino in locked:
                raise PermissionError(13, "Permission denied")
            return real_scandir(number)

        monkeypatch.setattr("os.scandir", scandir)

    return lock_directories


def test_tree_names_directories_that_cannot_be_listed(
    place: ToolDirectory, lock: Callable[..., None]
) -> None:
    write_files(place, "src/a.py", "locked/b.py")
    lock("locked")

    rows = show_tree(place)

    assert rows[:3] == ["locked/ …", "src/", "  a.py"]
    assert rows[3].startswith("Not listed: ")
    assert "locked" in rows[3]


def test_tree_names_only_five_directories_that_cannot_be_listed(
    place: ToolDirectory, lock: Callable[..., None]
) -> None:
    names = [f"locked{number}" for number in range(8)]
    write_files(place, *(f"{name}/b.py" for name in names))
    lock(*names)

    remark = show_tree(place)[-1]

    assert [name in remark for name in names] == [True] * 5 + [False] * 3
    assert remark.endswith("; and 3 more.")


def test_tree_shortens_a_large_directory_so_that_others_are_shown(
    place: ToolDirectory,
) -> None:
    write_files(place, *(f"a/{n:03}" for n in range(150)), "z/one")

    rows = show_tree(place)

    assert rows[:2] == ["a/", "  000"]
    assert rows[-3:] == ["  (and 50 more)", "z/", "  one"]


def test_a_tree_shows_at_most_500_names_and_omits_the_deepest_first(
    place: ToolDirectory,
) -> None:
    write_files(place, *(f"{d:02}/{n:02}/x" for d in range(20) for n in range(30)))

    rows = show_tree(place)

    assert rows[-1] == "(500 names, and no more: give the path of a part)"
    names = [row for row in rows[:-1] if "more)" not in row]
    assert len(names) == 500
    assert all(f"{d:02}/" in names or f"{d:02}/ …" in names for d in range(20))


@pytest.mark.parametrize("path", ["a.py", "missing"])
def test_tree_refuses_a_path_that_is_not_a_directory(
    place: ToolDirectory, path: str
) -> None:
    write_files(place, "a.py")

    with pytest.raises(ToolFailed, match="directory"):
        anyio.run(place.use, tree, {"path": path})


def test_tree_reports_an_empty_directory_as_empty(place: ToolDirectory) -> None:
    assert show_tree(place) == [". is empty."]
