"""A large blob that several sessions have takes its space once, and as long as one has it."""

import os
from pathlib import Path

import anyio
import pytest

from refold.journal.journal_directory import JournalDirectory
from refold.journal.store.blobs import MIN_SHARED_BYTES, SHARED_DIRECTORY_NAME
from refold.journal.store.delete import session_size

LARGE_BLOB = os.urandom(MIN_SHARED_BYTES)


@pytest.fixture
def home(tmp_path: Path) -> JournalDirectory:
    return JournalDirectory(tmp_path)


def put(home: JournalDirectory, session: str, blob: bytes = LARGE_BLOB) -> Path:
    name = anyio.run(home.store(session).blobs.put, blob)
    file = home.path(session) / "blobs" / name
    assert file.read_bytes() == blob
    return file


def shared_files(home: JournalDirectory) -> list[Path]:
    return list((home.root / SHARED_DIRECTORY_NAME).glob("*"))


def test_large_blob_of_two_sessions_is_stored_once(home: JournalDirectory) -> None:
    one, two = put(home, "one"), put(home, "two")

    assert one.samefile(two)
    assert session_size(home.root, home.path("one")).bytes == 0


def test_small_blob_is_not_shared(home: JournalDirectory) -> None:
    one, two = put(home, "one", b"small"), put(home, "two", b"small")

    assert not one.samefile(two)
    assert shared_files(home) == []


def test_size_of_a_session_has_a_shared_blob_that_no_other_session_uses(
    home: JournalDirectory,
) -> None:
    put(home, "one")

    assert session_size(home.root, home.path("one")).bytes == len(LARGE_BLOB)


def test_shared_blob_stays_until_its_last_session_is_deleted(
    home: JournalDirectory,
) -> None:
    put(home, "one")
    two = put(home, "two")

    home.delete("one")
    assert two.read_bytes() == LARGE_BLOB
    assert len(shared_files(home)) == 1

    home.delete("two")
    assert shared_files(home) == []


@pytest.mark.parametrize("damage", ["changed", "cut", "link", "pipe", "missing"])
def test_damaged_shared_blob_is_not_used(home: JournalDirectory, damage: str) -> None:
    put(home, "one")
    (shared,) = shared_files(home)
    shared.unlink()
    match damage:
        case "changed":
            shared.write_bytes(LARGE_BLOB[:-1] + b"?")
        case "cut":
            shared.write_bytes(LARGE_BLOB[:-1])
        case "link":
            shared.symlink_to(home.root / "elsewhere")
        case "pipe":
            os.mkfifo(shared)
        case _:
            pass

    two = put(home, "two")

    assert two.samefile(put(home, "three"))


def test_shared_blob_is_private(home: JournalDirectory) -> None:
    file = put(home, "one")

    assert file.stat().st_mode & 0o777 == 0o600
    assert (home.root / SHARED_DIRECTORY_NAME).stat().st_mode & 0o777 == 0o700


def test_link_in_place_of_the_shared_blobs_deletes_nothing_of_the_user(
    home: JournalDirectory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    of_user = tmp_path_factory.mktemp("user")
    (of_user / "letter.txt").write_text("Dear Ada")
    (of_user / ("a" * 64)).write_text("looks like a blob")
    (home.root / SHARED_DIRECTORY_NAME).symlink_to(of_user)

    put(home, "one")
    home.delete("one")

    assert sorted(file.name for file in of_user.iterdir()) == ["a" * 64, "letter.txt"]
