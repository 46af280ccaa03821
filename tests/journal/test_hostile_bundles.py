"""Hostile files, and files that are not exported sessions: refused in one sentence."""

import gzip
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from refold.errors import BadInput, JournalError
from refold.journal.bundle.archive import end_of_archive, header_member, member
from refold.journal.bundle.pack import SessionPacker
from refold.journal.bundle.unpack import unpack
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import Ended, Entry, Said
from refold.journal.journal_directory import JournalDirectory
from refold.journal.store.blobs import BlobFiles
from refold.journal.store.disk import Disk
from refold.values.messages import Image
from tests.journal.disks import Failing
from tests.views.planted import family, start_events, write_journal

ID = "20260101-000000-abcd"
BLOB = sha256(b"picture" * 9).hexdigest()
Harm = Callable[[bytes], bytes]


def document(tmp_path: Path) -> bytes:
    """Return a session with a blob and with children."""
    home = JournalDirectory(tmp_path / "one")
    path = home.path(ID)
    family(path)
    name = BlobFiles(path, Disk()).put(b"picture" * 9)
    lines = (path / "events.jsonl").read_bytes().split(b"\n")[:-1]
    events = [entry.event for entry, _ in codec.decode(lines)]
    write_journal(path, [*events, Said("see", images=(Image(name, "image/png"),))])
    return b"".join(SessionPacker(path, ID).pieces())


def read_refusal(tmp_path: Path, made: bytes) -> str:
    home = JournalDirectory(tmp_path / "two")
    home.root.mkdir(exist_ok=True)

    with pytest.raises(BadInput) as error:
        unpack(home, io.BytesIO(made), "s.tar", 5.0, "/here")

    assert list(home.root.iterdir()) == []
    return str(error.value)


def chain_lines(*lines: Mapping[str, object]) -> bytes:
    """Lines that follow on each other, whatever they say: a forger can do this, too."""
    head, chunks = Head(), list[bytes]()
    for seq, line in enumerate(lines, start=1):
        plain = {
            "at": 1.0,
            "epoch": 1,
            "turn": 0,
            "by": "",
            "cause": 0,
            "v": codec.EVENT_FORMAT,
        }
        entry = Entry(seq, Said(""))
        _, after = codec.encode(entry, head)
        rest = msgspec.json.encode({"seq": seq, **plain, **line})[1:]
        h = _hash(head.h, rest)
        chunks.append(b'{"h":"' + h.encode() + b'",' + rest)
        head = Head(after.seq, h)
    return _pack_lines(chunks)


def _hash(before: str, rest: bytes) -> str:
    return sha256(before.encode() + rest).hexdigest()[:16]


def _pack_lines(lines: list[bytes]) -> bytes:
    content = b"\n".join(lines) + b"\n"
    return b"".join(
        [
            *header_member("x"),
            *member("events.jsonl", len(content), [content]),
            end_of_archive(),
        ]
    )


def with_other_headers(change: Callable[[list[tarfile.TarInfo]], object]) -> Harm:
    """Return the same contents under other headers, as any tar writes them."""

    def harm(made: bytes) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=io.BytesIO(made)) as old:
            contents = {info.name: old.extractfile(info) for info in old}
            infos = old.getmembers()
        before = [contents[info.name] for info in infos]
        change(infos)
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as new:
            for info, content in zip(infos, before, strict=True):
                new.addfile(info, content)
        return out.getvalue()

    return harm


def rename_member(old: str, new: str) -> Harm:
    def change(infos: list[tarfile.TarInfo]) -> None:
        [info] = [info for info in infos if info.name == old]
        info.name = new

    return with_other_headers(change)


def with_type(kind: bytes, link: str = "") -> Harm:
    def change(infos: list[tarfile.TarInfo]) -> None:
        infos[-1].type, infos[-1].linkname = kind, link

    return with_other_headers(change)


def with_member_twice(name: str) -> Harm:
    def harm(made: bytes) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(made)) as old:
            [info] = [info for info in old if info.name.startswith(name)]
            stop = info.offset_data + -(-info.size // 512) * 512
        return made[:stop] + made[info.offset : stop] + made[stop:]

    return harm


def make_empty(made: bytes) -> bytes:
    return b""


def make_binary(made: bytes) -> bytes:
    return b"\x7fELF\x00\n" + made


def make_longer(made: bytes) -> bytes:
    return made + b"x"


def add_words_to_padding(made: bytes) -> bytes:
    position = made.index(b"\0", made.index(b'{"format"'))
    return made[:position] + b"x" + made[position + 1 :]


def compress(made: bytes) -> bytes:
    return gzip.compress(made)


def as_json(made: bytes) -> bytes:
    return b'{"format":"refold session","version":1,"refold":"0","id":"x","sessions":[\n'


def swap_bytes(old: bytes, new: bytes) -> Harm:
    def harm(made: bytes) -> bytes:
        assert old in made
        assert len(old) == len(new)
        return made.replace(old, new, 1)

    return harm


def with_size(size: int) -> Harm:
    """With such a number in the header of the journal, which has room for it."""

    def harm(made: bytes) -> bytes:
        info = tarfile.TarInfo("events.jsonl")
        info.size = size
        return b"".join(header_member(ID)) + info.tobuf(tarfile.GNU_FORMAT) + made[1536:]

    return harm


def with_id(id_: str) -> Harm:
    """Another header before the same members."""

    def harm(made: bytes) -> bytes:
        return b"".join(header_member(id_)) + made[1024:]

    return harm


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (make_empty, "not an exported session"),
        (make_binary, "not an exported session"),
        (compress, "not an exported session"),
        (as_json, "was exported as JSON, by an earlier refold"),
        (swap_bytes(b'"version":2', b'"version":3'), "version 3 of the form"),
        (swap_bytes(b'"format":"refold', b'"format":"reform'), "not an exported session"),
        (swap_bytes(b'"refold":', b'"reform":'), "not as refold writes it"),
        (with_id("../../etc"), r"'../../etc' is not the id of a session"),
        (with_id(""), "'' is not the id of a session"),
        (with_id("x" * 64_000), "not an exported session"),
        (with_size(-512), "is not a plain file"),
        (with_size(2**62), "journal is damaged|has no end|cut off"),
        (rename_member("session.json", "other.json"), "not an exported session"),
        (rename_member("child-1/events.jsonl", "../x/events.jsonl"), "has started a subagent '../x'"),
        (rename_member("child-1/events.jsonl", "/events.jsonl"), "started a subagent ''"),
        (rename_member("child-1/events.jsonl", "/etc/events.jsonl"), "started a subagent '/etc'"),
        (rename_member("child-1/events.jsonl", "child-3/events.jsonl"), "started a subagent 'child-3'"),
        (rename_member("child-1/events.jsonl", "child-2/../events.jsonl"), "has started a subagent"),
        (rename_member("child-1/events.jsonl", "events.jsonl"), "has started a subagent ''"),
        (rename_member("child-1/events.jsonl", "child-2/events.jsonl"), "has started a subagent"),
        (rename_member("child-1/events.jsonl", "blobs/events.jsonl"), "has started a subagent 'blobs'"),
        (rename_member("child-1/events.jsonl", "child-1/pen"), "has no such file here"),
        (rename_member("events.jsonl", "child-1/events.jsonl"), "has started a subagent"),
        (rename_member("events.jsonl", "blobs/" + "0" * 64), "has no such file here"),
        (with_member_twice("events.jsonl"), "has started a subagent ''"),
        (with_member_twice("blobs/"), "no event here names a blob"),
        (with_type(tarfile.SYMTYPE, "/etc/passwd"), "is not a plain file"),
        (with_type(tarfile.LNKTYPE, "events.jsonl"), "is not a plain file"),
        (with_type(tarfile.DIRTYPE), "is not a plain file"),
        (with_type(tarfile.FIFOTYPE), "is not a plain file"),
        (with_type(tarfile.CHRTYPE), "is not a plain file"),
        (with_type(tarfile.XHDTYPE), "is not a plain file"),
        (with_type(tarfile.GNUTYPE_LONGNAME), "is not a plain file"),
        (with_type(tarfile.GNUTYPE_SPARSE), "is not a plain file"),
        (swap_bytes(b"find the bug", b"find the bog"), "line 2 of the journal is damaged"),
        (swap_bytes(b"picturepicture", b"picturepicturE"), "does not match its checksum"),
        (rename_member(f"blobs/{BLOB}", "blobs/../x"), "has no such file here"),
        (rename_member(f"blobs/{BLOB}", "blobs/x"), "no event here names a blob"),
        (rename_member(f"blobs/{BLOB}", f"child-1/blobs/{BLOB}"), "has no such file here"),
        (add_words_to_padding, "this is not a part of an exported session"),
        (make_longer, "there is something after the end"),
        (lambda made: b"".join(header_member(ID)) + end_of_archive(), "there is no session in it"),
        (lambda _: b"".join([*header_member(ID), *member("events.jsonl", 0, []), end_of_archive()]), "has no events"),
        (lambda _: b"".join([*header_member(ID), *member("events.jsonl", 1, [b"x"]), end_of_archive()]), "has no end"),
    ],
)  # fmt: skip
def test_malformed_bundle_is_refused_in_one_line(
    tmp_path: Path, harm: Harm, message: str
) -> None:
    text = read_refusal(tmp_path, harm(document(tmp_path)))

    assert re.search(message, text), text
    assert text.startswith("s.tar")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"kind": "Said", "data": {"text": "x"}, "at": 1e300}, "is not a valid date"),
        ({"kind": "Said", "data": {"text": "x"}, "at": -1}, "is not a valid date"),
        ({"kind": "Said", "data": {"text": "x"}, "epoch": 2**60}, "is damaged"),
        ({"kind": "Said", "data": {"text": "x"}, "cause": -1}, "is damaged"),
        ({"kind": "Said", "data": {}, "seq": 7}, "is damaged"),
        (
            {"kind": "Ended", "data": {
                "call_id": "c", "outcome": "done", "text": "", "full_blob": "../../../etc/passwd"}},
            "a blob's name in it is not valid",
        ),
    ],
)  # fmt: skip
def test_a_bundle_with_a_correctly_chained_but_invalid_event_is_refused(
    tmp_path: Path, line: dict[str, object], message: str
) -> None:
    assert message in read_refusal(tmp_path, chain_lines(line))


def test_a_bundle_with_a_number_that_is_too_large_is_refused(tmp_path: Path) -> None:
    usage = {"fresh": msgspec.Raw(b"1" + b"0" * 400)}
    message = {"role": "assistant", "parts": ()}
    line = {"kind": "ModelAnswered", "data": {"message": message, "usage": usage}}

    text = read_refusal(
        tmp_path, chain_lines({"kind": "Said", "data": {"text": "x"}}, line)
    )

    assert "it has a number that is too large" in text


def test_a_bundle_with_a_deeply_nested_event_is_refused(tmp_path: Path) -> None:
    deep = msgspec.Raw(b"[" * 200_000 + b"]" * 200_000)

    text = read_refusal(
        tmp_path, chain_lines({"kind": "Noted", "data": {"name": "x", "data": deep}})
    )

    assert "damaged" in text


def test_a_bundle_with_an_endless_line_is_refused_before_it_fills_the_memory(
    tmp_path: Path,
) -> None:
    class Endless(io.RawIOBase):
        def __init__(self) -> None:
            self.given = 0
            self.head = b"".join(header_member("x")) + next(
                member("events.jsonl", 2**32, [])
            )

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            piece = self.head or b"x" * len(buffer)
            self.head = b""
            self.given += len(piece)
            buffer[: len(piece)] = piece
            return len(piece)

    file = Endless()
    home = JournalDirectory(tmp_path)

    with pytest.raises(BadInput, match="is longer than 64,000,000 bytes"):
        unpack(home, io.BufferedReader(file, 1 << 16), "s.tar", 5.0, "/here")

    assert file.given < 70_000_000
    assert list(home.root.iterdir()) == []


@pytest.mark.parametrize("share", range(1, 60))
def test_a_truncated_bundle_is_refused_wherever_it_was_cut(
    tmp_path: Path, share: int
) -> None:
    bundle = document(tmp_path)

    text = read_refusal(tmp_path, bundle[: len(bundle) * share // 60])

    assert "s.tar, " in text or "not an exported session" in text


@pytest.mark.parametrize("share", range(80))
def test_a_bundle_with_a_changed_byte_is_refused_or_has_all_events_unchanged(
    tmp_path: Path, share: int
) -> None:
    """In the header, the version of the writer and the id may change freely."""
    bundle = document(tmp_path)
    position = len(bundle) * share // 80
    changed = bytes([bundle[position] ^ 1])
    home = JournalDirectory(tmp_path / "two")
    home.root.mkdir()

    try:
        session = unpack(
            home,
            io.BytesIO(bundle[:position] + changed + bundle[position + 1 :]),
            "s",
            5.0,
            "/",
        )
    except BadInput:
        assert list(home.root.iterdir()) == []
        return

    assert position < bundle.index(b"\n")
    for path in (tmp_path / "one" / ID).rglob("events.jsonl"):
        imported_path = home.path(session.id) / path.relative_to(tmp_path / "one" / ID)
        assert imported_path.read_bytes().startswith(path.read_bytes())


def test_a_bundle_import_on_a_failing_disk_leaves_no_files(tmp_path: Path) -> None:
    data = document(tmp_path)
    home = JournalDirectory(tmp_path / "two")
    home.root.mkdir()

    position = 0
    for position in range(1, 200):
        disk = Failing(position)
        try:
            unpack(home, io.BytesIO(data), "s.tar", 5.0, "/", disk)
        except JournalError:
            # It exists only if it was renamed and the rename could not be synced.
            assert [home.check(session.id).damages for session in home.sessions()] in (
                [],
                [()],
            )
            shutil.rmtree(home.path(ID), ignore_errors=True)
            continue
        finally:
            disk.die()
        break

    assert 10 < position < 199


DYING = """
import io, os, signal, sys
from pathlib import Path
from refold.journal.bundle.unpack import unpack
from refold.journal.store.disk import Disk
from refold.journal.journal_directory import JournalDirectory

class Dying(Disk):
    left = int(sys.argv[3])
    def sync(self, file):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)

unpack(JournalDirectory(Path(sys.argv[1])), open(sys.argv[2], "rb"), "s", 5.0, "/", Dying())
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", [1, 2, 4, 5])
def test_a_killed_bundle_import_leaves_no_session_and_the_next_removes_its_files(
    tmp_path: Path, when: int
) -> None:
    data = document(tmp_path)
    (tmp_path / "s.tar").write_bytes(data)
    home = JournalDirectory(tmp_path / "two")
    home.root.mkdir()
    command_line = [
        sys.executable,
        "-c",
        DYING,
        str(home.root),
        str(tmp_path / "s.tar"),
        f"{when}",
    ]

    done = subprocess.run(command_line, check=False, timeout=60, env={**os.environ})
    left, sessions = len(list(home.root.iterdir())), list(home.sessions())
    unpack(home, io.BytesIO(data), "s.tar", 5.0, "/here")

    assert (done.returncode, left, sessions) == (-signal.SIGKILL, 1, [])
    assert [p.name for p in home.root.iterdir()] == [ID]


def test_a_session_export_reads_no_file_whose_name_is_not_a_blob_name(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_text("x", "utf-8")
    write_journal(
        tmp_path / ID, [*start_events(), Ended("c", "done", "", full_blob="../../secret")]
    )

    packing = SessionPacker(tmp_path / ID, ID)

    assert packing.damages == ["the journal names a blob '../../secret': there is none"]
