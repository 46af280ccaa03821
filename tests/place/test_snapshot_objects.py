"""Reading contents of snapshots: how often git is asked, and what is done with its answers."""

import io
from collections.abc import Iterator
from hashlib import sha1
from subprocess import Popen
from typing import cast

import pytest

from refold.errors import ToolFailed
from refold.place.snapshot_objects import GitBlobReader

CONTENTS = [f"content {number}\n".encode() for number in range(1_000)]


def blob_name(content: bytes) -> str:
    return sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()


class Questions(io.BytesIO):
    """Standard input that counts the writes."""

    def __init__(self) -> None:
        super().__init__()
        self.flushes = 0

    def flush(self) -> None:
        self.flushes += 1


class CatFile:
    """A `git cat-file --batch` whose answers are known."""

    def __init__(self, contents: Iterator[bytes]) -> None:
        self.stdin = Questions()
        self.stdout = io.BytesIO(
            b"".join(
                b"%s blob %d\n%s\n" % (blob_name(content).encode(), len(content), content)
                for content in contents
            )
        )


def reader(own: CatFile) -> GitBlobReader:
    return GitBlobReader(cast("Popen[bytes]", own), lambda: None)


def test_snapshot_contents_are_read_in_order_with_few_requests_to_git() -> None:
    own = CatFile(iter(CONTENTS))
    names = [blob_name(content) for content in CONTENTS]

    assert list(reader(own).read_all(names)) == CONTENTS
    assert own.stdin.getvalue().decode().split() == names
    assert own.stdin.flushes <= len(CONTENTS) // 50


def test_snapshot_content_that_is_not_the_requested_one_is_refused() -> None:
    own = CatFile(iter([CONTENTS[1], CONTENTS[0]]))

    with pytest.raises(ToolFailed, match=f"is lost: {blob_name(CONTENTS[0])}"):
        next(reader(own).read_all([blob_name(content) for content in CONTENTS[:2]]))
