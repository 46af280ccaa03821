"""Deleting a session, and what other sessions share with it."""

import os
from pathlib import Path

import anyio
import pytest

from refold.errors import BadInput, Held, JournalError
from refold.journal.events.kinds import Ended
from refold.journal.fork import fork
from refold.journal.journal_directory import JournalDirectory
from refold.journal.store.blobs import BlobFiles
from refold.journal.store.delete import DELETE_PREFIX, delete, session_size
from refold.journal.store.disk import Disk
from refold.journal.store.file import FileStore
from tests.journal.disks import Careless
from tests.journal.journals import THREADS
from tests.journal.shelves import conversation_events, put_journal


@pytest.fixture
def home(tmp_path: Path) -> JournalDirectory:
    directory = JournalDirectory(tmp_path / "sessions")
    put_journal(directory, "one", *conversation_events("umbrella"))
    put_journal(directory, "one/child-1", *conversation_events("below"))
    return directory


def names(home: JournalDirectory) -> list[str]:
    return sorted(os.listdir(home.root))


def test_deleting_a_session_deletes_its_children(home: JournalDirectory) -> None:
    put_journal(home, "two", *conversation_events("stays"))

    delete(home.root, home.path("one"))

    assert names(home) == ["two"]


def test_deleting_a_session_keeps_the_blobs_that_a_fork_shares(
    home: JournalDirectory,
) -> None:
    name = BlobFiles(home.path("one"), Disk()).put(b"a long result")
    put_journal(
        home,
        "one",
        *conversation_events("umbrella"),
        Ended("c", "done", "a long…", full_blob=name),
    )
    forked_session = fork(home, "one", None, 1.8e9, Careless())
    before = session_size(home.root, home.path("one"))

    delete(home.root, home.path("one"))

    assert (before.sessions, before.files) == (2, 3)
    assert names(home) == [forked_session.id]
    assert BlobFiles(home.path(forked_session.id), Disk()).get(name) == b"a long result"


@pytest.mark.parametrize("written", ["one", "one/child-1"])
def test_a_session_that_is_being_written_is_not_deleted(
    home: JournalDirectory, written: str
) -> None:
    async def try_it() -> None:
        store = FileStore(home.path(written), THREADS, Careless())
        await store.lease()
        try:
            delete(home.root, home.path("one"))
        finally:
            await store.release()

    with pytest.raises(Held, match=f"is being written by process {os.getpid()} on"):
        anyio.run(try_it)

    assert (home.path("one/child-1") / "events.jsonl").exists()


def test_delete_removes_remains_of_an_interrupted_delete(home: JournalDirectory) -> None:
    put_journal(home, "two", *conversation_events("stays"))
    left = home.root / f"{DELETE_PREFIX}999999999-old"
    left.mkdir()
    (left / "events.jsonl").write_bytes(b"")

    delete(home.root, home.path("one"))

    assert names(home) == ["two"]


def test_a_delete_that_the_disk_refuses_is_reported_and_loses_nothing(
    home: JournalDirectory,
) -> None:
    class Stuck(Disk):
        def rename(self, old: Path, new: Path) -> None:
            raise PermissionError(13, "Permission denied")

    with pytest.raises(
        JournalError, match=r"cannot delete .*/one: Permission denied; make"
    ):
        delete(home.root, home.path("one"), Stuck())

    assert session_size(home.root, home.path("one")).sessions == 2


def test_delete_does_not_follow_links(home: JournalDirectory, tmp_path: Path) -> None:
    put_journal(home, "two", *conversation_events("stays"))
    elsewhere = home.path("two").rename(tmp_path / "elsewhere")
    home.path("two").symlink_to(elsewhere)
    (home.path("one") / "more").symlink_to(elsewhere)

    with pytest.raises(BadInput, match=r"two is a link to .*/elsewhere: nothing is"):
        delete(home.root, home.path("two"))
    delete(home.root, home.path("one"))

    assert names(home) == ["two"]
    assert (elsewhere / "events.jsonl").is_file()
