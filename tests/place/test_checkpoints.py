"""Checkpoints: what a snapshot contains, what it leaves alone, and what is restored."""

import errno
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from refold import programs
from refold.errors import ToolFailed
from refold.place.checkpoints import NO_GIT, WHOLE_MACHINE, Checkpoints
from refold.place.port import FileChange, Snapshots, SnapshotTaken
from refold.testing.clock import Clock
from tests.place.ports import needs_this_machine
from tests.place.repositories import bytes_of, files, git, repository, snapshots

pytestmark = pytest.mark.usefixtures("port")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def take_snapshot(snapshots: Snapshots) -> SnapshotTaken:
    snapshots.note_change()
    return anyio.run(snapshots.take)


def restore(snapshots: Snapshots, to: SnapshotTaken) -> int:
    return anyio.run(snapshots.restore, take_snapshot(snapshots).trees, to.trees)


def test_restore_undoes_files_that_commands_created_changed_and_deleted(root: Path) -> None:
    (root / "changed.txt").write_text("one\n")
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/gone.txt").write_text("gone\n")
    session_checkpoints = snapshots(root)
    before, then = take_snapshot(session_checkpoints), files(root)
    subprocess.run(
        "echo two >> changed.txt; rm -r deep; mkdir made; echo new > made/new.txt",
        shell=True, cwd=root, check=True,
    )  # fmt: skip

    changes = session_checkpoints.changes(
        before.trees, take_snapshot(session_checkpoints).trees
    )
    count = restore(session_checkpoints, before)

    assert changes == (
        FileChange(f"{root}/changed.txt", "changed", 1, 0),
        FileChange(f"{root}/deep/er/gone.txt", "deleted", 0, 1),
        FileChange(f"{root}/made/new.txt", "created", 1, 0),
    )
    assert (count, files(root), (root / "made").exists()) == (3, then, False)


def test_a_cancelled_restore_ends_after_a_whole_file_and_can_be_repeated(
    root: Path,
) -> None:
    names = [f"{number:03}" for number in range(400)]
    for name in names:
        (root / name).write_text(name * 1_000)
    session_checkpoints = snapshots(root)
    before, then = take_snapshot(session_checkpoints), files(root)
    for name in names:
        (root / name).unlink()
    empty = take_snapshot(session_checkpoints)

    async def cancel_after_the_first_file(group: TaskGroup) -> None:
        while not any(root.iterdir()):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(cancel_after_the_first_file, group)
            await session_checkpoints.restore(empty.trees, before.trees)

    anyio.run(main)
    partly = files(root)

    assert 0 < len(partly) < len(names)
    assert partly.items() <= then.items()
    assert restore(session_checkpoints, before) == len(names) - len(partly)
    assert files(root) == then


def test_restore_returns_unusual_files_byte_for_byte(root: Path) -> None:
    (root / ".gitattributes").write_text(
        "* text eol=lf ident filter=x\n*.u working-tree-encoding=UTF-16\n"
    )
    (root / "crlf.txt").write_bytes(b"one\r\ntwo\nthree\r")
    (root / "a.u").write_bytes(b"$Id$ no utf-16\n")
    (root / "empty").touch()
    (root / "new\nline").write_bytes(b"\0\xff")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")).write_bytes(b"no utf-8")
    (root / "back\\slash ").write_text("b")
    (root / "-n").write_text("option")
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o755)
    (root / "link").symlink_to("nowhere")
    (root / "folder").symlink_to("/")
    session_checkpoints = snapshots(root)
    before, then = take_snapshot(session_checkpoints), files(root)
    for path in list(root.iterdir()):
        path.unlink()

    count = restore(session_checkpoints, before)

    assert (count, files(root), before.left_out) == (len(then), then, ())


def test_restore_replaces_a_directory_by_the_former_file_and_a_file_by_the_former_directory(
    root: Path,
) -> None:
    (root / "a").write_text("file")
    (root / "b").mkdir()
    (root / "b/in").write_text("in")
    (root / "c").symlink_to("b")
    session_checkpoints = snapshots(root)
    before, then = take_snapshot(session_checkpoints), files(root)
    (root / "a").unlink()
    (root / "a").mkdir()
    (root / "a/in").write_text("new")
    shutil.rmtree(root / "b")
    (root / "b").symlink_to("/etc")
    (root / "c").unlink()
    (root / "c").mkdir()
    (root / "c/deep").mkdir()
    (root / "c/deep/file").write_text("x")
    now, after = take_snapshot(session_checkpoints), files(root)

    restore(session_checkpoints, before)
    was = files(root)
    restore(session_checkpoints, now)

    assert (was, files(root)) == (then, after)


def test_a_snapshot_includes_an_edit_of_the_same_size_in_the_same_second(
    root: Path,
) -> None:
    session_checkpoints, texts = snapshots(root), list[str]()
    for word in ("aaa", "bbb", "ccc", "ddd", "eee"):
        (root / "a").write_text(word)
        texts.append(take_snapshot(session_checkpoints).trees[0][1])

    assert len(set(texts)) == 5


def test_a_snapshot_includes_a_replaced_file_with_the_same_modification_time(
    root: Path,
) -> None:
    (root / "a").write_text("aaa")
    os.utime(root / "a", (1e9, 1e9))
    session_checkpoints = snapshots(root)
    before = take_snapshot(session_checkpoints)
    (root / "b").write_text("bbb")
    os.utime(root / "b", (1e9, 1e9))
    (root / "b").rename(root / "a")

    assert take_snapshot(session_checkpoints).trees != before.trees


def test_unchanged_files_give_the_same_snapshot_in_every_session(root: Path) -> None:
    (root / "a").write_text("a")

    one, two = (
        take_snapshot(snapshots(root)),
        take_snapshot(snapshots(root, session="two")),
    )

    assert one == two


@pytest.mark.parametrize("inside", [True, False], ids=["in a repository", "in none"])
def test_ignored_files_are_neither_saved_nor_restored(
    root: Path, inside: bool, home: Path
) -> None:
    if inside:
        repository(root)
        (root / ".git/info/exclude").write_text("secret\n")
        (home / ".config/git").mkdir(parents=True)
        (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/mine\n")
        (home / "mine").write_text("*.bak\n")
    (root / ".gitignore").write_text("*.log\nout/\n")
    (root / "a").write_text("a")
    session_checkpoints = snapshots(root)
    before = take_snapshot(session_checkpoints)
    (root / "a").write_text("b")
    ignored = [
        "x.log",
        "out/deep/file",
        *(["secret", "y.bak"] if inside else ["node_modules/x", "__pycache__/y"]),
    ]
    for name in ignored:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)

    changes = session_checkpoints.changes(
        before.trees, take_snapshot(session_checkpoints).trees
    )
    restore(session_checkpoints, before)

    assert [change.path for change in changes] == [f"{root}/a"]
    assert [(root / name).read_text() for name in ignored] == ignored


def test_a_tracked_file_is_saved_although_it_is_ignored(root: Path) -> None:
    repository(root)
    (root / "forced.log").write_text("one")
    git(root, "add", "-f", "forced.log")
    (root / ".gitignore").write_text("*.log\n")
    session_checkpoints = snapshots(root)
    before = take_snapshot(session_checkpoints)
    (root / "forced.log").write_text("two")

    restore(session_checkpoints, before)

    assert (root / "forced.log").read_text() == "one"


def test_a_workspace_in_a_repository_uses_its_ignore_rules_and_not_its_files(
    root: Path,
) -> None:
    repository(root)
    (root / ".gitignore").write_text("*.log\n")
    inner = root / "sub/here"
    inner.mkdir(parents=True)
    (inner / "a").write_text("a")
    session_checkpoints = snapshots(inner)
    before = take_snapshot(session_checkpoints)
    (inner / "a").write_text("b")
    (inner / "x.log").write_text("log")
    (root / "outside").write_text("o")

    changes = session_checkpoints.changes(
        before.trees, take_snapshot(session_checkpoints).trees
    )
    restore(session_checkpoints, before)

    assert [change.path for change in changes] == [f"{inner}/a"]
    assert ((inner / "a").read_text(), (inner / "x.log").read_text()) == ("a", "log")


def test_a_workspace_ignored_by_its_parent_repository_is_still_saved(root: Path) -> None:
    repository(root)
    (root / ".gitignore").write_text("*\n")
    inner = root / "project"
    inner.mkdir()
    (inner / "a").write_text("a")

    before, session_checkpoints = take_snapshot(snapshots(inner)), snapshots(inner)
    (inner / "a").write_text("b")
    restore(session_checkpoints, before)

    assert (inner / "a").read_text() == "a"


@pytest.mark.parametrize("state", ["plain", "merge", "rebase"])
def test_checkpoint_and_restore_leave_the_git_directory_of_the_user_unchanged(
    root: Path, state: str
) -> None:
    repository(root)
    (root / "a").write_text("base\n")
    git(root, "add", "a")
    git(root, "commit", "-qm", "base")
    git(root, "checkout", "-qb", "other")
    (root / "a").write_text("other\n")
    git(root, "commit", "-qam", "other")
    git(root, "checkout", "-q", "main")
    (root / "a").write_text("main\n")
    git(root, "commit", "-qam", "main")
    (root / "a").write_text("stashed\n")
    git(root, "stash", "-q")
    if state != "plain":
        git(root, state, "other", fails=True)
    (root / "staged").write_text("staged\n")
    git(root, "add", "staged")
    (root / "staged").write_text("and changed\n")
    before, status = bytes_of(root / ".git"), git(root, "--no-optional-locks", "status")
    session_checkpoints = snapshots(root)
    first, then = take_snapshot(session_checkpoints), files(root)

    (root / "a").write_text("by the agent\n")
    (root / "staged").unlink()
    restore(session_checkpoints, first)

    assert (bytes_of(root / ".git"), files(root)) == (before, then)
    assert git(root, "--no-optional-locks", "status") == status


def test_a_nested_repository_has_a_separate_snapshot(root: Path) -> None:
    repository(root)
    inner = repository(root / "vendor/inner")
    (inner / "a").write_text("a")
    session_checkpoints = snapshots(root)
    before, then = take_snapshot(session_checkpoints), files(root)
    (inner / "a").write_text("b")
    (inner / "new").write_text("n")

    changes = session_checkpoints.changes(
        before.trees, take_snapshot(session_checkpoints).trees
    )
    restore(session_checkpoints, before)

    assert [root_of_tree for root_of_tree, _ in before.trees] == [str(root), str(inner)]
    assert [change.path for change in changes] == [f"{inner}/a", f"{inner}/new"]
    assert files(root) == then


def test_restore_reports_a_repository_created_later_and_leaves_it_unchanged(
    root: Path,
) -> None:
    (root / "a").write_text("a")
    session_checkpoints = snapshots(root)
    before = take_snapshot(session_checkpoints)
    (repository(root / "cloned") / "b").write_text("b")

    changes = session_checkpoints.changes(
        before.trees, take_snapshot(session_checkpoints).trees
    )
    count = restore(session_checkpoints, before)

    assert (changes, count) == ((FileChange(f"{root}/cloned/", "created"),), 0)
    assert (root / "cloned/b").read_text() == "b"


@pytest.mark.parametrize("deleted", ["the repository", "all of it"])
def test_restore_recreates_the_files_of_a_deleted_nested_repository(
    root: Path, deleted: str
) -> None:
    inner = repository(root / "inner")
    (inner / "a").write_text("a")
    session_checkpoints = snapshots(root)
    before, then = take_snapshot(session_checkpoints), files(root)
    shutil.rmtree(inner / ".git" if deleted == "the repository" else inner)
    if deleted == "the repository":
        (inner / "a").write_text("b")

    restore(session_checkpoints, before)

    assert files(root) == then


def test_overlapping_roots_are_saved_and_restored_once_each(
    root: Path, tmp_path: Path
) -> None:
    (root / "inside").mkdir()
    (root / "inside/a").write_text("a")
    other = tmp_path / "other"
    other.mkdir()
    (other / "b").write_text("b")
    session_checkpoints = snapshots(root, other, root / "inside")
    before = take_snapshot(session_checkpoints)
    (root / "inside/a").write_text("changed")
    (other / "b").unlink()

    changes = session_checkpoints.changes(
        before.trees, take_snapshot(session_checkpoints).trees
    )
    restore(session_checkpoints, before)

    assert [(change.path, change.kind) for change in changes] == [
        (f"{other}/b", "deleted"),
        (f"{root}/inside/a", "changed"),
    ]
    assert ((root / "inside/a").read_text(), (other / "b").read_text()) == ("a", "b")


def test_files_that_cannot_be_saved_are_listed_and_all_others_are_saved(root: Path) -> None:
    with (root / "large").open("wb") as file:
        file.truncate(33 * 1024 * 1024)
    (root / ".GIT").mkdir()
    (root / ".GIT/x").write_text("x")
    os.mkfifo(root / "pipe")
    (root / "a").write_text("a")
    session_checkpoints = snapshots(root)

    first, again = take_snapshot(session_checkpoints), take_snapshot(session_checkpoints)
    (root / "a").write_text("b")
    restore(session_checkpoints, first)

    assert first == again
    assert first.left_out == (f"{root}/.GIT/x", f"{root}/large")
    assert ((root / "a").read_text(), (root / "large").stat().st_size) == (
        "a",
        33 * 1024 * 1024,
    )


def test_restore_fails_with_the_path_of_a_file_that_grew_too_large(root: Path) -> None:
    (root / "a").write_text("small")
    session_checkpoints = snapshots(root)
    before = take_snapshot(session_checkpoints)
    with (root / "a").open("wb") as file:
        file.truncate(33 * 1024 * 1024)

    with pytest.raises(
        ToolFailed, match=r"in no snapshot is in the way: .*/a\. Move it away"
    ):
        restore(session_checkpoints, before)

    assert (root / "a").stat().st_size == 33 * 1024 * 1024


def test_restore_names_a_file_changed_since_the_snapshot_and_changes_nothing(
    root: Path,
) -> None:
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    session_checkpoints = snapshots(root)
    before = take_snapshot(session_checkpoints)
    (root / "a").write_text("agent")
    (root / "b").write_text("agent")
    now = take_snapshot(session_checkpoints)
    (root / "b").write_text("person")

    with pytest.raises(ToolFailed, match=r"Nothing was changed.*/b\. Try again"):
        anyio.run(session_checkpoints.restore, now.trees, before.trees)

    assert ((root / "a").read_text(), (root / "b").read_text()) == ("agent", "person")


def test_restore_does_not_overwrite_a_file_that_is_in_no_snapshot(root: Path) -> None:
    (root / "a.log").write_text("kept")
    session_checkpoints = snapshots(root)
    before = take_snapshot(session_checkpoints)
    (root / "a.log").unlink()
    take_snapshot(session_checkpoints)
    (root / ".gitignore").write_text("*.log\n")
    (root / "a.log").write_text("ignored and precious")

    with pytest.raises(ToolFailed, match=r"in no snapshot is in the way: .*a\.log"):
        restore(session_checkpoints, before)

    assert (root / "a.log").read_text() == "ignored and precious"


def test_restore_writes_nothing_through_a_link_that_replaced_a_directory(
    root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("mine")
    (root / "d").mkdir()
    (root / "d/a").write_text("a")
    session_checkpoints = snapshots(root)
    before = take_snapshot(session_checkpoints)
    (root / "d/a").write_text("b")
    now = take_snapshot(session_checkpoints)
    shutil.rmtree(root / "d")
    (root / "d").symlink_to(outside)

    with pytest.raises(ToolFailed, match="Nothing was changed"):
        anyio.run(session_checkpoints.restore, now.trees, before.trees)

    assert (outside / "a").read_text() == "mine"


def test_an_interrupted_restore_can_be_repeated(root: Path) -> None:
    for name in ("a", "b", "c"):
        (root / name).write_text(name)
    session_checkpoints = snapshots(root)
    before, then = take_snapshot(session_checkpoints), files(root)
    (root / "a").write_text("agent")
    (root / "b").unlink()
    (root / "d").write_text("agent")
    now = take_snapshot(session_checkpoints)
    (root / "b").write_text("b")  # as if it had been killed after these two
    (root / "d").unlink()
    (root / ".refold-restore-0123").write_text("half")

    anyio.run(session_checkpoints.restore, now.trees, before.trees)

    assert files(root) == then


def test_restore_keeps_the_mode_of_a_file(root: Path) -> None:
    (root / "a").write_text("a")
    (root / "a").chmod(0o600)
    session_checkpoints = snapshots(root)
    before = take_snapshot(session_checkpoints)
    (root / "a").write_text("b")

    restore(session_checkpoints, before)

    assert ((root / "a").stat().st_mode & 0o777, (root / "a").read_text()) == (0o600, "a")


def test_stored_snapshots_are_readable_only_by_their_owner(root: Path) -> None:
    needs_this_machine("it looks into where they are stored")
    (root / "a").write_text("a")
    take_snapshot(snapshots(root))

    store = root.parent / "data/checkpoints"

    assert [p.stat().st_mode & 0o077 for p in (store, *store.iterdir())] == [0, 0]


def test_a_snapshot_leaves_out_the_data_directory_of_refold(root: Path) -> None:
    needs_this_machine("it sets up checkpoints as no place has them")
    (root / "a").write_text("a")
    session_checkpoints = Checkpoints(
        [root], root / "[my] data/checkpoints", os.environ, "one"
    )

    first = take_snapshot(session_checkpoints)
    again = take_snapshot(session_checkpoints)

    assert first == again


def test_without_git_checkpoints_show_a_notice_and_fail(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_this_machine("it sets up checkpoints as no place has them")
    monkeypatch.setattr("refold.place.snapshot_repository.os.access", lambda *_: False)
    session_checkpoints = snapshots(root)

    session_checkpoints.begin()

    assert session_checkpoints.notice == NO_GIT
    with pytest.raises(ToolFailed, match="git is not installed"):
        anyio.run(session_checkpoints.take)


def test_checkpoints_do_not_run_a_git_program_of_the_workspace(
    root: Path, tmp_path: Path
) -> None:
    needs_this_machine("it sets up checkpoints as no place has them")
    (root / "bin").mkdir()
    (root / "bin/git").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (root / "bin/git").chmod(0o755)
    path = f"{root}/bin:bin:{os.environ['PATH']}"
    session_checkpoints = Checkpoints(
        [root], tmp_path / "data/checkpoints", {"PATH": path}, "one"
    )

    take_snapshot(session_checkpoints)

    assert not (tmp_path / "ran").exists()


def test_checkpoints_run_no_program_of_the_git_configuration(
    root: Path, tmp_path: Path
) -> None:
    repository(root)
    program = f"touch {tmp_path}/ran; cat"
    for name in (
        "core.fsmonitor",
        "filter.x.clean",
        "filter.x.smudge",
        "diff.x.textconv",
        "core.pager",
    ):
        git(root, "config", name, program)
    (root / ".gitattributes").write_text("* filter=x diff=x\n")
    (root / "a").write_text("a")
    session_checkpoints = snapshots(root)

    before = take_snapshot(session_checkpoints)
    (root / "a").write_text("b")
    session_checkpoints.changes(before.trees, take_snapshot(session_checkpoints).trees)
    restore(session_checkpoints, before)

    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "message", ["cannot write: No space left on device", "write error. Out of diskspace"]
)
def test_a_snapshot_on_a_full_disk_fails_and_the_next_one_is_complete(
    root: Path, tmp_path: Path, message: str
) -> None:
    needs_this_machine("it sets up checkpoints as no place has them")
    (root / "a").write_text("a")
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'fatal: {message}' >&2\nexit 128\n")
    program.chmod(0o755)
    store = tmp_path / "data/checkpoints"
    session_checkpoints = Checkpoints(
        [root], store, {"PATH": f"{program.parent}:/usr/bin:/bin"}, "one"
    )

    with pytest.raises(ToolFailed, match="the disk is full"):
        take_snapshot(session_checkpoints)
    real = shutil.which("git")
    program.unlink()
    program.symlink_to(str(real))

    assert (
        take_snapshot(session_checkpoints).trees
        == take_snapshot(snapshots(root, session="two")).trees
    )


def test_a_scan_whose_second_git_cannot_start_leaves_no_git_running(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_this_machine("it sets up checkpoints as no place has them")
    really_start, started = programs.start_bounded, list[subprocess.Popen[bytes]]()

    def start(
        argv: Sequence[str], *limits: int, **popen_options: Any
    ) -> subprocess.Popen[bytes]:
        if "diff-files" in argv:
            raise OSError(errno.EMFILE, "Too many open files")
        started.append(really_start(argv, *limits, **popen_options))
        return started[-1]

    monkeypatch.setattr(programs, "start_bounded", start)

    with pytest.raises(ToolFailed, match="Too many open files"):
        take_snapshot(snapshots(root))

    assert "ls-files" in str(started[-1].args)
    assert [process for process in started if process.returncode is None] == []


def test_one_checkpoint_is_reused_for_a_short_time(root: Path) -> None:
    needs_this_machine("it sets up checkpoints as no place has them")
    (root / "a").write_text("a")
    clock = Clock(100.0)
    session_checkpoints = Checkpoints(
        [root], root.parent / "data/checkpoints", os.environ, "one", clock=clock
    )

    session_checkpoints.begin()
    first = anyio.run(session_checkpoints.take)
    (root / "a").write_text("b")
    soon = anyio.run(session_checkpoints.take)
    clock.jump(60)
    late = anyio.run(session_checkpoints.take)
    (root / "a").write_text("c")
    session_checkpoints.note_change()
    dirty = (
        session_checkpoints.is_behind,
        anyio.run(session_checkpoints.take),
        session_checkpoints.is_behind,
    )

    assert soon == first != late
    assert (dirty[0], dirty[2], dirty[1] not in (first, late)) == (True, False, True)


def test_concurrent_snapshots_of_two_sessions_are_equal(root: Path) -> None:
    for n in range(50):
        (root / f"{n}").write_text(f"{n}")
    one, two = snapshots(root), snapshots(root, session="two")

    async def run_both() -> tuple[SnapshotTaken, SnapshotTaken]:
        one.begin()
        two.begin()
        return await one.take(), await two.take()

    first, second = anyio.run(run_both)

    assert first == second


def test_a_snapshot_of_another_directory_is_not_restored(
    root: Path, tmp_path: Path
) -> None:
    (root / "a").write_text("a")
    before = take_snapshot(snapshots(root))
    moved = root.rename(tmp_path / "moved")
    session_checkpoints = snapshots(moved)

    with pytest.raises(ToolFailed, match="of another directory: nothing was changed"):
        restore(session_checkpoints, before)


def test_a_workspace_that_is_the_root_of_the_disk_has_no_checkpoints() -> None:
    needs_this_machine("it sets up checkpoints as no place has them")
    session_checkpoints = Checkpoints(
        ["/"], Path("/nowhere/checkpoints"), os.environ, "one"
    )

    session_checkpoints.begin()

    assert session_checkpoints.notice == WHOLE_MACHINE
    with pytest.raises(ToolFailed, match="whole machine"):
        anyio.run(session_checkpoints.take)


def test_a_nested_repository_that_git_ignores_is_not_saved(root: Path) -> None:
    repository(root)
    (root / ".gitignore").write_text("cache/\n")
    inner = repository(root / "cache/inner")
    (inner / "a").write_text("a")
    session_checkpoints = snapshots(root)

    assert [
        root_of_tree for root_of_tree, _ in take_snapshot(session_checkpoints).trees
    ] == [str(root)]


def test_nested_repositories_beyond_the_limit_are_listed_as_left_out(root: Path) -> None:
    for n in range(10):
        (repository(root / f"r{n}") / "a").write_text("a")

    result = take_snapshot(snapshots(root))

    assert (len(result.trees), result.left_out) == (9, (f"{root}/r8/", f"{root}/r9/"))


def test_old_half_written_packs_are_removed(root: Path) -> None:
    needs_this_machine("it looks into where they are stored")
    (root / "a").write_text("a")
    take_snapshot(snapshots(root))
    packs = next((root.parent / "data/checkpoints").glob("*/objects")) / "pack"
    packs.mkdir(exist_ok=True)
    for name, modified_at in (("tmp_pack_old", 1e9), ("tmp_pack_new", 4e9)):
        (packs / name).touch()
        os.utime(packs / name, (modified_at, modified_at))

    take_snapshot(snapshots(root, session="two"))

    assert [path.name for path in packs.iterdir()] == ["tmp_pack_new"]


def test_a_patch_has_the_lines_of_created_changed_and_deleted_files(root: Path) -> None:
    (root / "changed.py").write_text("def f():\n    return 1\n")
    (root / "gone.txt").write_text("gone\n")
    (root / "same").write_text("same\n")
    session_checkpoints = snapshots(root)
    before = take_snapshot(session_checkpoints)
    (root / "changed.py").write_text("def f():\n    return 2\n")
    (root / "gone.txt").unlink()
    (root / "bytes").write_bytes(b"\0\xff")
    (root / "new.txt").write_text("new\n")

    patch = session_checkpoints.patch(
        before.trees, take_snapshot(session_checkpoints).trees
    )

    assert [(Path(change.path).name, change.kind, text) for change, text in patch] == [
        ("bytes", "created", ""),
        (
            "changed.py", "changed",
            "@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2",
        ),
        ("gone.txt", "deleted", "@@ -1,1 +0,0 @@\n-gone"),
        ("new.txt", "created", "@@ -0,0 +1,1 @@\n+new"),
    ]  # fmt: skip
