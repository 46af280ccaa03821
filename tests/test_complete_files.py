"""A file that is created completely or not at all: keys and identities that processes share."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from refold.config.mask_key import read_mask_key
from refold.safe_open import create_complete_file


def refuse(*_: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def test_threads_that_create_the_mask_key_at_the_same_time_get_one_key(
    tmp_path: Path,
) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(read_mask_key, [tmp_path] * 64))

    assert len(keys) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mask.key"]


def test_create_complete_file_leaves_no_file_if_the_write_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="not permitted"):
        create_complete_file(tmp_path / "key", b"content")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("has_links", [True, False])
def test_create_complete_file_does_not_replace_an_existing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    if not has_links:
        monkeypatch.setattr("os.link", refuse)
    create_complete_file(tmp_path / "key", b"first")
    with pytest.raises(FileExistsError):
        create_complete_file(tmp_path / "key", b"second")

    assert (tmp_path / "key").read_bytes() == b"first"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert len(list(tmp_path.iterdir())) == 1
