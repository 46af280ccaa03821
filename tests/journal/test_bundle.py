"""A session exported to one file and imported again: the same bytes, and only history."""

import io
import os
import stat
import tarfile
from pathlib import Path

import msgspec
import pytest

from refold.errors import BadInput, JournalError
from refold.journal.bundle.archive import end_of_archive, member
from refold.journal.bundle.pack import SessionPacker
from refold.journal.bundle.unpack import ImportedSession, unpack
from refold.journal.events import codec
from refold.journal.events.child_events import (
    ChildBorn,
    VariableInjected,
    VariablesRestored,
    VariablesSaved,
)
from refold.journal.events.kinds import (
    Ended,
    Event,
    Forked,
    Imported,
    Said,
    SessionStarted,
    TurnEnded,
    TurnStarted,
    Unknown,
)
from refold.journal.journal_directory import JournalDirectory, current_directory
from refold.journal.store.blobs import BlobFiles
from refold.journal.store.check import check
from refold.journal.store.disk import Disk
from refold.values.messages import Image
from tests.views.planted import answer, family, start_events, write_journal

ID = "20260101-000000-abcd"
NOW = 1_800_000_000.0


def pack(home: JournalDirectory, id_: str = ID) -> bytes:
    return b"".join(SessionPacker(home.path(id_), id_).pieces())


def unpack_bundle(
    home: JournalDirectory, document: bytes, directory: str = "/here"
) -> ImportedSession:
    return unpack(home, io.BytesIO(document), "s.tar", NOW, directory)


def homes(tmp_path: Path) -> tuple[JournalDirectory, JournalDirectory]:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    return JournalDirectory(tmp_path / "one"), JournalDirectory(tmp_path / "two")


def events_of(path: Path) -> list[Event]:
    lines = (path / "events.jsonl").read_bytes().split(b"\n")[:-1]
    return [entry.event for entry, _ in codec.decode(lines)]


def with_blobs(path: Path, *blobs: bytes) -> list[str]:
    files = BlobFiles(path, Disk())
    return [files.put(blob) for blob in blobs]


RICH = [
    *start_events('Grüße 🌧️ \u202e\x00 "]},\n`'),
    answer("I look.", ("call-0", "read_file", '{"kind":"Imported","path":"a"}')),
    Unknown("FromTomorrow", msgspec.Raw(b'{"a": [1, 2.50, "\\u00e9"],  "b":null}')),
    Ended("call-0", "done", "x"),
    answer("Done."),
    TurnEnded("answered"),
]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(RICH, id="unicode, raw JSON, a kind of a later version"),
        pytest.param([*RICH, Forked("20250101-000000-aaaa", 3, id=ID)], id="a fork"),
        pytest.param(start_events("a turn under way"), id="a turn under way"),
        pytest.param([SessionStarted("/w", id=ID)], id="nothing said yet"),
    ],
)
def test_exporting_an_imported_session_gives_the_same_bytes(
    tmp_path: Path, events: list[Event]
) -> None:
    one, two = homes(tmp_path)
    bytes_ = write_journal(one.path(ID), events)
    document = pack(one)

    session = unpack_bundle(two, document)

    assert pack(two) == document
    assert session.id == ID
    assert (two.path(ID) / "events.jsonl").read_bytes().startswith(bytes_)
    assert check(two.path(ID)).damages == ()
    assert events_of(two.path(ID))[-1] == Imported(ID, ID, "/here")


def test_children_and_blobs_are_exported_and_imported(tmp_path: Path) -> None:
    one, two = homes(tmp_path)
    path = family(one.path(ID))
    large = os.urandom(2_000_000)
    names = with_blobs(path, b"", b"a", large)
    pictures = tuple(Image(name, "image/png") for name in (*names, names[1]))
    write_journal(
        path, [*start_events(), Said("see", images=pictures), *events_of(path)[5:]]
    )
    (deep,) = with_blobs(path / "children/child-2", b"whole")
    below = events_of(path / "children/child-2")
    write_journal(
        path / "children/child-2", [*below, Ended("c", "done", "", full_blob=deep)]
    )
    document = pack(one)

    session = unpack_bundle(two, document)

    assert pack(two) == document
    assert (session.sessions, session.blobs) == (4, 4)
    there = {p.relative_to(path) for p in path.rglob("*")}
    assert {p.relative_to(two.path(ID)) for p in two.path(ID).rglob("*")} == there
    assert BlobFiles(two.path(ID), Disk()).get(names[2]) == large
    for text in ("", "children/child-1", "children/child-1/children/child-1"):
        assert check(two.path(ID) / text).damages == ()
    modes = {stat.S_IMODE(p.stat().st_mode) for p in two.root.rglob("*") if p.is_file()}
    folders = {stat.S_IMODE(p.stat().st_mode) for p in two.root.rglob("*") if p.is_dir()}
    assert (modes, folders) == ({0o600}, {0o700})


def test_importing_an_existing_id_gives_a_new_id_and_the_same_content(
    tmp_path: Path,
) -> None:
    one, _ = homes(tmp_path)
    family(one.path(ID))
    document = pack(one)

    session = unpack_bundle(one, document)

    assert session.taken
    assert session.id != ID
    assert pack(one, session.id) == document
    assert events_of(one.path(session.id))[-1] == Imported(ID, session.id, "/here")
    child = events_of(one.path(f"{session.id}/child-1"))[-1]
    assert child == Imported(f"{ID}/child-1", f"{session.id}/child-1", "/here")


def test_an_export_is_a_standard_tar_with_the_names_of_the_session_files(
    tmp_path: Path,
) -> None:
    one, _ = homes(tmp_path)
    path = family(one.path(ID))
    (name,) = with_blobs(path, b"picture")
    write_journal(path, [*events_of(path), Said("see", images=(Image(name, "image/png"),))])

    with tarfile.open(fileobj=io.BytesIO(pack(one))) as file:
        file.extractall(tmp_path / "apart", filter="data")

    apart = tmp_path / "apart"
    names = {str(p.relative_to(apart)) for p in apart.rglob("*") if p.is_file()}
    assert names == {
        "session.json",
        "events.jsonl",
        f"blobs/{name}",
        "child-1/events.jsonl",
        "child-1/child-1/events.jsonl",
        "child-2/events.jsonl",
    }
    assert (apart / "events.jsonl").read_bytes() == (path / "events.jsonl").read_bytes()
    assert (apart / "blobs" / name).read_bytes() == b"picture"
    assert msgspec.json.decode((apart / "session.json").read_bytes())["id"] == ID


def test_exporting_a_journal_that_shrinks_meanwhile_fails(
    tmp_path: Path,
) -> None:
    one, _ = homes(tmp_path)
    write_journal(one.path(ID), RICH)
    packing = SessionPacker(one.path(ID), ID)
    (one.path(ID) / "events.jsonl").write_bytes(b"")

    with pytest.raises(JournalError, match=r"events\.jsonl was changed meanwhile"):
        list(packing.pieces())


def test_member_beyond_the_size_limit_of_tar_is_refused() -> None:
    with pytest.raises(BadInput, match=r"events\.jsonl cannot be exported, 8,589,934,592"):
        list(member("events.jsonl", 8 << 30, []))


def test_python_variables_are_neither_exported_nor_imported(
    tmp_path: Path,
) -> None:
    one, two = homes(tmp_path)
    path = one.path(ID)
    path.mkdir()
    index, part, files, whole = with_blobs(path, b"index", b"part", b"files", b"whole")
    write_journal(
        path,
        [
            *start_events("Hello"),
            VariableInjected("context", index, files_blob=files),
            VariablesSaved("c0", index, parts=(part,)),
            VariablesRestored(index, parts=(part,)),
            Said("Look", images=(Image(whole, "image/png"),)),
        ],
    )

    document = pack(one)
    end = end_of_archive()
    earlier = b"".join(member(f"blobs/{part}", 4, [b"part"])) + end
    session = unpack_bundle(two, document.removesuffix(end) + earlier)

    assert document.count(b"blobs/") == 1
    assert (session.blobs, session.lacking) == (1, 0)
    assert [p.name for p in two.path(session.id).glob("blobs/*")] == [whole]
    assert pack(two, session.id) == document
    assert [d for p in (path, two.path(session.id)) for d in check(p).damages] == []


def test_export_includes_events_recorded_after_an_import(tmp_path: Path) -> None:
    one, two = homes(tmp_path)
    write_journal(one.path(ID), RICH)
    unpack_bundle(two, pack(one))
    write_journal(two.path(ID), [*events_of(two.path(ID)), Said("More."), TurnStarted(13)])
    document = pack(two)

    unpack_bundle(one, document)

    assert events_of(two.path(ID))[-3:-1] == [Imported(ID, ID, "/here"), Said("More.")]
    again = next(s.id for s in one.sessions() if s.id != ID)
    assert pack(one, again) == document


def test_an_imported_session_continues_in_the_directory_of_the_import(
    tmp_path: Path,
) -> None:
    one, two = homes(tmp_path)
    write_journal(one.path(ID), RICH)
    here = tmp_path / "here"
    here.mkdir()

    unpack_bundle(two, pack(one), str(here))

    assert current_directory(one.path(ID)) == "/work/place"
    assert current_directory(two.path(ID)) == str(here)


@pytest.mark.parametrize("harm", ["flip", "cut", "gap"])
def test_exporting_a_damaged_journal_includes_the_events_before_the_damage(
    tmp_path: Path, harm: str
) -> None:
    one, two = homes(tmp_path)
    bytes_ = write_journal(one.path(ID), RICH)
    lines = bytes_.split(b"\n")[:-1]
    good = b"\n".join(lines[:7]) + b"\n"
    rest = {
        "flip": lines[7].replace(b"a", b"b", 1) + b"\n" + lines[8] + b"\n",
        "cut": lines[7][:40],
        "gap": lines[8] + b"\n",
    }
    (one.path(ID) / "events.jsonl").write_bytes(good + rest[harm])

    packing = SessionPacker(one.path(ID), ID)
    document = b"".join(packing.pieces())
    session = unpack_bundle(two, document)

    [damage] = packing.damages
    assert "events.jsonl" in damage
    assert session.events == 7
    assert pack(two) == document
    assert check(two.path(ID)).damages == ()


def test_a_child_without_a_valid_event_is_omitted_from_the_export(tmp_path: Path) -> None:
    one, two = homes(tmp_path)
    path = family(one.path(ID))
    (path / "children/child-2/events.jsonl").write_bytes(b"{}\n")

    packing = SessionPacker(path, ID)
    session = unpack_bundle(two, b"".join(packing.pieces()))

    [damage] = packing.damages
    assert "child-2" in damage
    assert (session.sessions, check(two.path(ID)).damages) == (3, ())


def test_damaged_blobs_are_reported_and_omitted(tmp_path: Path) -> None:
    one, two = homes(tmp_path)
    names = with_blobs(one.path(ID), b"a", b"b", b"c")
    pictures = tuple(Image(name, "image/png") for name in names)
    write_journal(one.path(ID), [*start_events(), Said("see", images=pictures)])
    (one.path(ID) / "blobs" / names[0]).unlink()
    (one.path(ID) / "blobs" / names[1]).write_bytes(b"!")

    packing = SessionPacker(one.path(ID), ID)
    session = unpack_bundle(two, b"".join(packing.pieces()))

    assert [("missing" in d, "changed" in d) for d in packing.damages] == [
        (True, False),
        (False, True),
    ]
    assert (session.lacking, session.blobs) == (2, 1)


def test_a_child_can_be_exported_alone_with_all_its_descendants(tmp_path: Path) -> None:
    one, two = homes(tmp_path)
    family(one.path(ID))
    child = f"{ID}/child-1"
    document = pack(one, child)

    session = unpack_bundle(two, document)

    assert pack(two, session.id) == document
    assert (session.source, session.taken, "/" in session.id) == (child, False, False)
    assert check(two.path(session.id)).damages == ()
    below = [session.id, *(f"{session.id}/{name}" for name in born_in(one.path(child)))]
    assert [events_of(two.path(id_))[-1] for id_ in below] == [
        Imported(id_.replace(session.id, child, 1), id_, "/here") for id_ in below
    ]
    assert len(below) > 1


def born_in(path: Path) -> list[str]:
    return [event.child for event in events_of(path) if isinstance(event, ChildBorn)]


def test_a_concurrent_import_of_the_same_session_fails_and_loses_nothing(
    tmp_path: Path,
) -> None:
    one, two = homes(tmp_path)
    write_journal(one.path(ID), [*start_events(), answer("So."), TurnEnded("answered")])
    document = pack(one)

    class Overtaken(Disk):
        def rename(self, old: Path, new: Path) -> None:
            write_journal(two.path(ID), start_events())
            super().rename(old, new)

    with pytest.raises(BadInput, match=f"has just created the session {ID}; nothing was"):
        unpack(two, io.BytesIO(document), "s.tar", 5.0, "/here", Overtaken())

    assert os.listdir(two.root) == [ID]
