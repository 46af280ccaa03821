"""Files that are no exported session, or one that means harm: one sentence, and nothing made."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest
from disks import Failing

from refold.errors import BadInput, JournalError
from refold.journal import codec
from refold.journal.blobs import Blobs
from refold.journal.bundle.packing import Packing
from refold.journal.bundle.unpacking import unpack
from refold.journal.check import check
from refold.journal.codec import Head
from refold.journal.disk import Disk
from refold.journal.events import Ended, Entry, Said
from refold.journal.home import Home
from refold.values.messages import Image
from tests.views.planted import begun, family, plant

ID = "20260101-000000-abcd"
Harm = Callable[[bytes], bytes]


def document(tmp_path: Path) -> bytes:
    """A session with a blob and with children."""
    home = Home(tmp_path / "one")
    path = home.path(ID)
    family(path)
    name = Blobs(path, Disk()).put(b"picture" * 9)
    lines = (path / "events.jsonl").read_bytes().split(b"\n")[:-1]
    events = [entry.event for entry, _ in codec.decode(lines)]
    plant(path, [*events, Said("see", pictures=(Image(name, "image/png"),))])
    return b"".join(Packing(path, ID).pieces())


def refusal(tmp_path: Path, made: bytes) -> str:
    home = Home(tmp_path / "two")
    home.root.mkdir(exist_ok=True)

    with pytest.raises(BadInput) as error:
        unpack(home, io.BytesIO(made), "s.json", 5.0, "/here")

    assert list(home.root.iterdir()) == []
    return str(error.value)


def chained(*lines: Mapping[str, object]) -> bytes:
    """Lines that follow on each other, whatever they say: a forger can do this, too."""
    head, made = Head(), list[bytes]()
    for seq, line in enumerate(lines, start=1):
        plain = {"at": 1.0, "epoch": 1, "turn": 0, "by": "", "cause": 0, "v": 1}
        entry = Entry(seq, Said(""))
        _, after = codec.encode(entry, head)
        rest = msgspec.json.encode({"seq": seq, **plain, **line})[1:]
        h = _hash(head.h, rest)
        made.append(b'{"h":"' + h.encode() + b'",' + rest)
        head = Head(after.seq, h)
    return _around(made)


def _hash(before: str, rest: bytes) -> str:
    from hashlib import sha256

    return sha256(before.encode() + rest).hexdigest()[:16]


def _around(lines: list[bytes], name: bytes = b"") -> bytes:
    head = b'{"format":"refold session","version":1,"refold":"0","id":"x","sessions":[\n'
    opening = b'{"name":"' + name + b'","events":[\n'
    end = b'],"sessions_in_all":1,"events_in_all":%d,"blobs_in_all":0}\n' % len(lines)
    return head + opening + b",\n".join(lines) + b'\n],"blobs":{\n}}\n' + end


def empty(made: bytes) -> bytes:
    return b""


def binary(made: bytes) -> bytes:
    return b"\x7fELF\x00\n" + made


def nested(made: bytes) -> bytes:
    return b"[" * 60_000 + b"\n"


def broken_up(made: bytes) -> bytes:
    return made[:1] + b"\n  " + made[1:]


def longer(made: bytes) -> bytes:
    return made + b"x"


def without_comma(made: bytes) -> bytes:
    return made.replace(b"},\n{", b"}\n{", 1)


def of_windows(made: bytes) -> bytes:
    return made.replace(b"\n", b"\r\n")


def swapped(old: bytes, new: bytes) -> Harm:
    def harm(made: bytes) -> bytes:
        assert old in made
        return made.replace(old, new, 1)

    return harm


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (empty, "line 1: the file is cut off here"),
        (binary, "no exported session"),
        (nested, "no exported session"),
        (broken_up, "was it formatted anew"),
        (msgspec.json.format, "no exported session|formatted anew"),
        (swapped(b'"version":1', b'"version":2'), "version 2 of the form"),
        (swapped(b'"version":1', b'"version":"1"'), "version '1' of the form"),
        (swapped(ID.encode(), b"../../etc"), r"'../../etc' is no session's id"),
        (swapped(ID.encode(), b""), "'' is no session's id"),
        (swapped(b'"name":"child-1"', b'"name":"../x"'), "has begun a child '../x'"),
        (swapped(b'"name":"child-1"', b'"name":"child-3"'), "begun a child 'child-3'"),
        (swapped(b'"name":"child-1"', b'"name":"child-2/.."'), "has begun a child"),
        (swapped(b'"name":"child-1"', b'"name":""'), "has begun a child ''"),
        (swapped(b'"name":"child-1"', b'"name":"child-2"'), "has begun a child"),
        (swapped(b'"name":""', b'"name":"child-1"'), "has begun a child"),
        (swapped(b"find the bug", b"find the bog"), "line 2 of the journal is damaged"),
        (swapped(b"cGljdHVyZ", b"cGljdHVyY"), "is not what its name says"),
        (swapped(b'"cGljdHVyZ', b'"c!ljdHVyZ'), "this is no base64"),
        (swapped(b'"blobs":{\n"', b'"blobs":{\n"../../x'), "no event here names a blob"),
        (swapped(b'"sessions_in_all":4', b'"sessions_in_all":3'), "this counts other"),
        (longer, "something stands after the end"),
        (without_comma, "comma is missing|damaged|ends"),
        (of_windows, "no exported session"),
    ],
)  # fmt: skip
def test_what_is_not_as_refold_writes_it_is_refused(
    tmp_path: Path, harm: Harm, told: str
) -> None:
    said = refusal(tmp_path, harm(document(tmp_path)))

    assert re.search(told, said), said
    assert said.startswith("s.json")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"kind": "Said", "data": {"words": "x"}, "at": 1e300}, "is in no calendar"),
        ({"kind": "Said", "data": {"words": "x"}, "at": -1}, "is in no calendar"),
        ({"kind": "Said", "data": {"words": "x"}, "epoch": 2**60}, "is damaged"),
        ({"kind": "Said", "data": {"words": "x"}, "cause": -1}, "is damaged"),
        ({"kind": "Said", "data": {}, "seq": 7}, "is damaged"),
        (
            {"kind": "Ended", "data": {
                "call_id": "c", "outcome": "done", "text": "", "whole": "../../../etc/passwd"}},
            "what is no blob's name",
        ),
    ],
)  # fmt: skip
def test_what_a_forger_can_chain_is_looked_at_all_the_same(
    tmp_path: Path, line: dict[str, object], told: str
) -> None:
    assert told in refusal(tmp_path, chained(line))


def test_numbers_that_nobody_can_count_with_are_refused(tmp_path: Path) -> None:
    usage = {"fresh": msgspec.Raw(b"1" + b"0" * 400)}
    message = {"role": "assistant", "parts": ()}
    line = {"kind": "ModelAnswered", "data": {"message": message, "usage": usage}}

    said = refusal(tmp_path, chained({"kind": "Said", "data": {"words": "x"}}, line))

    assert "it has a number that is too large" in said


def test_what_nests_without_end_is_refused(tmp_path: Path) -> None:
    deep = msgspec.Raw(b"[" * 200_000 + b"]" * 200_000)

    said = refusal(
        tmp_path, chained({"kind": "Noted", "data": {"name": "x", "data": deep}})
    )

    assert "damaged" in said


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    class Endless(io.RawIOBase):
        def __init__(self) -> None:
            self.given = 0
            self.head = chained({"kind": "Said", "data": {"words": "x"}})[:150]

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            piece = self.head or b"x" * len(buffer)
            self.head = b""
            self.given += len(piece)
            buffer[: len(piece)] = piece
            return len(piece)

    file = Endless()
    home = Home(tmp_path)

    with pytest.raises(BadInput, match="is longer than 64,000,000 bytes"):
        unpack(home, io.BufferedReader(file, 1 << 16), "s.json", 5.0, "/here")

    assert file.given < 70_000_000
    assert list(home.root.iterdir()) == []


@pytest.mark.parametrize("share", range(1, 60))
def test_a_file_that_was_cut_off_is_refused_wherever_that_was(
    tmp_path: Path, share: int
) -> None:
    made = document(tmp_path)

    said = refusal(tmp_path, made[: len(made) * share // 60])

    assert "s.json, line" in said or "no exported session" in said


@pytest.mark.parametrize("share", range(80))
def test_a_changed_byte_is_refused_or_changes_nothing_that_counts(
    tmp_path: Path, share: int
) -> None:
    """Of the header, the version that wrote it and the id may be any."""
    made = document(tmp_path)
    at = len(made) * share // 80
    other = bytes([made[at] ^ 1])
    home = Home(tmp_path / "two")
    home.root.mkdir()

    try:
        found = unpack(home, io.BytesIO(made[:at] + other + made[at + 1 :]), "s", 5.0, "/")
    except BadInput:
        assert list(home.root.iterdir()) == []
        return

    assert at < made.index(b"\n")
    for path in (tmp_path / "one" / ID).rglob("events.jsonl"):
        there = home.path(found.id) / path.relative_to(tmp_path / "one" / ID)
        assert there.read_bytes().startswith(path.read_bytes())


def test_a_disk_that_fails_anywhere_leaves_nothing(tmp_path: Path) -> None:
    made = document(tmp_path)
    home = Home(tmp_path / "two")
    home.root.mkdir()

    at = 0
    for at in range(1, 200):
        disk = Failing(at)
        try:
            unpack(home, io.BytesIO(made), "s.json", 5.0, "/", disk)
        except JournalError:
            # Only when it stood in its place and that could not be kept, it is there.
            assert [check(found.path).damages for found in home.sessions()] in ([], [()])
            shutil.rmtree(home.path(ID), ignore_errors=True)
            continue
        finally:
            disk.die()
        break

    assert 10 < at < 199


DYING = """
import io, os, signal, sys
from pathlib import Path
from refold.journal.bundle.unpacking import unpack
from refold.journal.disk import Disk
from refold.journal.home import Home

class Dying(Disk):
    left = int(sys.argv[3])
    def sync(self, file):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)

unpack(Home(Path(sys.argv[1])), open(sys.argv[2], "rb"), "s", 5.0, "/", Dying())
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", [1, 2, 4, 5])
def test_killed_in_the_middle_it_leaves_no_session_and_the_next_one_sweeps(
    tmp_path: Path, when: int
) -> None:
    made = document(tmp_path)
    (tmp_path / "s.json").write_bytes(made)
    home = Home(tmp_path / "two")
    home.root.mkdir()
    words = [
        sys.executable,
        "-c",
        DYING,
        str(home.root),
        str(tmp_path / "s.json"),
        f"{when}",
    ]

    done = subprocess.run(words, check=False, timeout=60, env={**os.environ})
    left, found = len(list(home.root.iterdir())), list(home.sessions())
    unpack(home, io.BytesIO(made), "s.json", 5.0, "/here")

    assert (done.returncode, left, found) == (-signal.SIGKILL, 1, [])
    assert [p.name for p in home.root.iterdir()] == [ID]


def test_an_export_of_a_journal_that_names_no_blob_s_name_reads_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_text("x", "utf-8")
    plant(tmp_path / ID, [*begun(), Ended("c", "done", "", whole="../../secret")])

    packing = Packing(tmp_path / ID, ID)

    assert packing.damages == ["the journal names a blob '../../secret': there is none"]
