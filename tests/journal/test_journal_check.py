"""Every kind of damage is found and reported with its place."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from refold.errors import Corrupt, JournalError
from refold.journal.events import codec
from refold.journal.events.kinds import Ended
from refold.journal.store.check import JournalCheck, check
from refold.journal.store.file import FileStore
from tests.journal.disks import Careless
from tests.journal.journals import EVENTS, THREADS, add, as_file, lines, write

MADE, _ = lines(EVENTS)


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """Return a whole session of five events."""
    anyio.run(write, FileStore(tmp_path / "one", THREADS, Careless()), EVENTS)
    return tmp_path / "one"


def describe_damages(report: JournalCheck) -> list[str]:
    return [f"{d.file.name} {d.line}: {d.what}; lost: {d.lost}" for d in report.damages]


def check_after(session: Path, change: Callable[[list[bytes]], list[bytes]]) -> list[str]:
    (session / "events.jsonl").unlink()  # some disks sync a file that is cut and filled
    (session / "events.jsonl").write_bytes(as_file(change(list(MADE))))
    return describe_damages(check(session))


def test_an_intact_session_has_no_damage(session: Path) -> None:
    assert check(session) == JournalCheck(session, 5, 0)


@pytest.mark.parametrize("number", range(1, 6))
def test_a_flipped_byte_is_reported_as_damage_of_its_line_only(
    session: Path, number: int
) -> None:
    expected = [
        f"events.jsonl {number}: it was changed after it was written; lost: event {number}"
    ]
    seq = MADE[number - 1].index(b'"seq":') + 6
    for position in range(len(MADE[number - 1])):
        bad = bytearray(MADE[number - 1])
        bad[position] ^= 1

        texts = check_after(
            session,
            lambda made: [*made[: number - 1], bad, *made[number:]],  # noqa: B023
        )
        with pytest.raises(Corrupt) as caught:
            list(codec.decode([*MADE[: number - 1], bytes(bad), *MADE[number:]]))

        if (
            number < 5 or position != seq
        ):  # a false number in the last line reads like a gap
            assert texts == expected, position
        assert texts[0].startswith(f"events.jsonl {number}: ")
        assert caught.value.line == number


def test_check_reports_a_missing_journal_line(session: Path) -> None:
    assert check_after(session, lambda made: made[:1] + made[3:]) == [
        "events.jsonl 2: it is event 4, not 2; lost: events 2 to 3"
    ]


def test_check_reports_a_duplicated_journal_line(session: Path) -> None:
    assert check_after(session, lambda made: made[:2] + made[1:]) == [
        "events.jsonl 3: event 2 is here a second time; lost: nothing"
    ]


def test_check_reports_swapped_journal_lines(session: Path) -> None:
    assert check_after(session, lambda m: [m[0], m[2], m[1], m[3], m[4]]) == [
        "events.jsonl 2: event 3 is here out of its place; lost: nothing",
        "events.jsonl 4: it is event 4, not 3; lost: event 3",
    ]


def test_check_reports_two_damaged_places_of_a_journal(session: Path) -> None:
    assert check_after(session, lambda m: [b"?", m[1], m[2], m[4]]) == [
        "events.jsonl 1: it was changed after it was written; lost: event 1",
        "events.jsonl 2: it was changed after it was written; lost: event 2",
        "events.jsonl 4: it is event 5, not 4; lost: event 4",
    ]


def test_check_reports_lines_missing_at_the_end_of_a_journal(session: Path) -> None:
    assert check_after(session, lambda made: made[:3]) == [
        "events.jsonl 3: it ends at event 3, but its writer recorded event 5; "
        "lost: events 4 to 5"
    ]


def test_check_reports_an_incomplete_last_journal_line_wherever_it_was_cut(
    session: Path,
) -> None:
    for left in range(1, len(MADE[4]) + 1):
        (session / "events.jsonl").unlink()
        (session / "events.jsonl").write_bytes(as_file(MADE[:4]) + MADE[4][:left])

        assert describe_damages(check(session)) == [
            f"events.jsonl 5: it has no end after {left} bytes; the next writer cuts it "
            "off; lost: event 5, if that was ever acknowledged",
            "events.jsonl 4: it ends at event 4, but its writer recorded event 5; "
            "lost: event 5",
        ]


def test_check_reports_a_replaced_journal(session: Path) -> None:
    others, _ = lines(EVENTS[::-1])

    assert check_after(session, lambda _: others) == [
        "events.jsonl 0: event 5 is not the one that its writer recorded; "
        "lost: what was there before"
    ]


@pytest.mark.parametrize("damage", ["missing", "changed after it was written"])
def test_check_reports_a_missing_or_changed_blob(tmp_path: Path, damage: str) -> None:
    async def make() -> str:
        store = FileStore(tmp_path, THREADS)
        name = await store.blobs.put(b"all of it")
        await write(store, [Ended("call-1", "done", "a part", full_blob=name)])
        return name

    blob = tmp_path / "blobs" / anyio.run(make)
    assert check(tmp_path) == JournalCheck(tmp_path, 1, 1)
    if damage == "missing":
        blob.unlink()
    else:
        blob.write_bytes(b"all of itch")

    [result] = check(tmp_path).damages

    assert (result.file, result.line, result.lost) == (blob, 0, "the rest of line 1")
    assert damage in result.what


def test_check_reports_an_unreadable_lock_file(session: Path) -> None:
    (session / "pen").write_bytes(b"?")

    assert describe_damages(check(session)) == [
        "pen 0: it cannot be read; lost: the writer and the end of the lines"
    ]


def test_a_session_can_be_checked_while_it_is_written(tmp_path: Path) -> None:
    async def main() -> JournalCheck:
        store = FileStore(tmp_path, THREADS)
        epoch = (await store.lease()).epoch
        chunks, head = lines(EVENTS)
        await store.append(chunks, expect=0, epoch=epoch, head=(head.seq, head.h))
        report = check(tmp_path)
        await add(store, epoch, b"still the writer", 5)
        await store.release()
        return report

    assert anyio.run(main) == JournalCheck(tmp_path, 5, 0)


def test_checking_a_directory_without_a_journal_fails(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=f"there is no journal in {tmp_path}"):
        check(tmp_path)
