"""The file store: crashes, bad disks, and changes by other programs."""

import errno
import os
import stat
from functools import partial
from pathlib import Path

import anyio
import pytest

from refold.errors import Conflict, Fenced, Held, JournalError
from refold.journal.store.file import FileStore
from refold.journal.store.writer_threads import Writers
from tests.journal.disks import Failing, Unpowered
from tests.journal.journals import (
    EVENTS,
    THREADS,
    add,
    append_as_next_writer,
    as_file,
    lines,
    write,
)

MADE, _ = lines(EVENTS)
WHOLE = as_file(MADE)
ONE_THREAD = Writers(threads=1)  # so that the n-th call is the same in every run


@pytest.mark.parametrize("part", range(8))
def test_a_file_cut_at_any_byte_reads_as_its_complete_lines_and_can_continue(
    tmp_path: Path, part: int
) -> None:
    async def every_cut() -> None:
        for cut in range(part, len(WHOLE) + 1, 8):
            here = tmp_path / f"{cut}"
            here.mkdir()
            (here / "events.jsonl").write_bytes(WHOLE[:cut])
            whole = WHOLE[:cut].count(b"\n")
            torn = WHOLE[WHOLE.rfind(b"\n", 0, cut) + 1 : cut]
            assert list(await FileStore(here, THREADS).read()) == MADE[:whole]
            assert await append_as_next_writer(here, b"on") == (
                torn,
                [*MADE[:whole], b"on"],
            )

    anyio.run(every_cut)


def test_only_the_owner_can_read_a_session_whatever_the_umask(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "sessions" / "one"

    async def main() -> None:
        store = FileStore(directory)
        await write(store, EVENTS)
        await store.blobs.put(b"blob")

    before = os.umask(0o277)
    try:
        anyio.run(main)
    finally:
        os.umask(before)

    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.rglob("*")}
    files = {name: mode for name, mode in modes.items() if mode == 0o600}
    assert len(files) == 3
    assert {modes[name] for name in ("data", "sessions", "one", "blobs")} == {0o700}


def test_a_store_that_writes_nothing_creates_no_directory(tmp_path: Path) -> None:
    async def main() -> None:
        store = FileStore(tmp_path / "one")
        await store.lease()
        await store.read()
        await store.release()

    anyio.run(main)

    assert list(tmp_path.iterdir()) == []


def test_a_second_writer_is_refused_with_the_lock_holder_and_may_read(
    tmp_path: Path,
) -> None:
    async def main() -> str:
        first, second = FileStore(tmp_path), FileStore(tmp_path)
        await add(first, (await first.lease()).epoch, b"one", 0)
        with pytest.raises(Held) as caught:
            await second.lease()
        assert list(await second.read()) == [b"one"]
        return str(caught.value)

    text = anyio.run(main)

    assert text.startswith(
        f"session {tmp_path.name} is being written by process {os.getpid()} on "
    )
    assert f"join it with `refold attach {tmp_path.name}`" in text


def test_only_one_of_two_writers_can_begin_a_journal(tmp_path: Path) -> None:
    async def main() -> list[bytes]:
        first, second = FileStore(tmp_path / "one"), FileStore(tmp_path / "one")
        leases = await first.lease(), await second.lease()
        await add(first, leases[0].epoch, b"first", 0)
        with pytest.raises(Held):
            await add(second, leases[1].epoch, b"second", 0)
        await first.release()
        with pytest.raises(Fenced):
            await add(second, leases[1].epoch, b"second", 0)
        return list(await second.read())

    assert anyio.run(main) == [b"first"]


def test_a_writer_that_released_the_lock_has_no_open_file_and_cannot_write(
    tmp_path: Path,
) -> None:
    async def main() -> int:
        store = FileStore(tmp_path)
        epoch = (await store.lease()).epoch
        await add(store, epoch, b"one", 0)
        await store.release()
        with pytest.raises(JournalError, match="does not hold the lock"):
            await add(store, epoch, b"two", 1)
        here = [os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")]
        return sum(path.startswith(f"{tmp_path}/") for path in here)

    assert anyio.run(main) == 0


def test_a_lock_also_holds_for_another_path_of_the_session(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")

    async def main() -> None:
        first, second = FileStore(tmp_path / "real"), FileStore(tmp_path / "link")
        await add(first, (await first.lease()).epoch, b"one", 0)
        with pytest.raises(Held):
            await second.lease()

    anyio.run(main)


@pytest.mark.parametrize("to", ["delete", "damage", "put an older one"])
def test_a_writer_whose_lock_file_was_deleted_or_changed_still_holds_the_lock(
    tmp_path: Path, to: str
) -> None:
    pen = tmp_path / "pen"

    async def main() -> list[bytes]:
        store, other = FileStore(tmp_path), FileStore(tmp_path)
        await write(store, EVENTS)
        older = pen.read_bytes()
        epoch = (await store.lease()).epoch
        if to == "delete":
            pen.unlink()
        else:
            pen.write_bytes(b"?" if to == "damage" else older)
        with pytest.raises(Held):
            await other.lease()
        await add(store, epoch, b"on", len(MADE))
        with pytest.raises(Held, match=f"process {os.getpid()}"):
            await other.lease()
        return list(await store.read())

    assert anyio.run(main) == [*MADE, b"on"]


def test_a_writer_cannot_write_after_a_later_one_has_taken_the_lock(tmp_path: Path) -> None:
    """On network disks without working locks, the number of the writer still prevents it."""
    elsewhere = tmp_path / "elsewhere"

    async def main() -> list[bytes]:
        store = FileStore(tmp_path / "one")
        epoch = (await store.lease()).epoch
        await add(store, epoch, b"one", 0)
        later = FileStore(elsewhere)
        for n in range(2):
            await add(later, (await later.lease()).epoch, b"x", n)
        (elsewhere / "pen").replace(tmp_path / "one" / "pen")
        note = (elsewhere.parent / "one" / "pen").read_bytes()
        for attempt in (partial(add, store, epoch, b"two", 1), store.lease):
            with pytest.raises(Fenced, match="lost the lock to writer 2"):
                await attempt()
        await store.release()
        assert (tmp_path / "one" / "pen").read_bytes() == note
        return list(await store.read())

    assert anyio.run(main) == [b"one"]


def test_a_writer_whose_file_was_replaced_cannot_write(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"

    async def main() -> None:
        store = FileStore(tmp_path)
        epoch = (await store.lease()).epoch
        await add(store, epoch, b"one", 0)
        copy = tmp_path / "copy"
        copy.write_bytes(b"other\n")
        copy.replace(file)
        with pytest.raises(Fenced, match="replaced"):
            await add(store, epoch, b"two", 1)
        with pytest.raises(Fenced, match="replaced"):
            await store.lease()
        await store.release()
        another = FileStore(tmp_path)
        assert (await another.lease()).epoch > epoch
        assert list(await another.read()) == [b"other"]

    anyio.run(main)


def test_an_append_to_a_file_that_another_program_extended_is_a_conflict(
    tmp_path: Path,
) -> None:
    async def main() -> list[bytes]:
        store = FileStore(tmp_path)
        epoch = (await store.lease()).epoch
        await add(store, epoch, b"one", 0)
        with (tmp_path / "events.jsonl").open("ab") as file:
            file.write(b"foreign\nhal")
        with pytest.raises(Conflict, match="something else has changed it"):
            await add(store, epoch, b"two", 1)
        lease = await store.lease()
        assert lease.cut == b"hal"
        await add(store, lease.epoch, b"three", 2)
        await store.keep()
        return list(await store.read())

    assert anyio.run(main) == [b"one", b"foreign", b"three"]


def test_a_new_epoch_is_higher_than_all_before_even_without_the_lock_file(
    tmp_path: Path,
) -> None:
    async def main() -> tuple[int, int]:
        store = FileStore(tmp_path)
        await write(store, EVENTS)
        before = (await store.lease()).epoch
        await store.release()
        (tmp_path / "pen").unlink()
        return before, (await FileStore(tmp_path).lease()).epoch

    before, after = anyio.run(main)

    assert after > before


def test_lines_lost_at_the_end_are_visible_in_the_recorded_head(tmp_path: Path) -> None:
    _, head = lines(EVENTS)

    async def main() -> tuple[int, str]:
        await write(FileStore(tmp_path), EVENTS)
        (tmp_path / "events.jsonl").write_bytes(as_file(MADE[:-2]))
        return (await FileStore(tmp_path).lease()).head

    assert anyio.run(main) == (head.seq, head.h)


def test_a_line_with_a_newline_in_it_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        store = FileStore(tmp_path)
        with pytest.raises(ValueError, match="newline"):
            await add(store, (await store.lease()).epoch, b"a\nb", 0)

    anyio.run(main)


def test_cancelling_an_append_does_not_stop_the_write(tmp_path: Path) -> None:
    async def main() -> list[bytes]:
        store = FileStore(tmp_path)
        epoch = (await store.lease()).epoch
        with anyio.CancelScope() as scope:
            scope.cancel()
            await add(store, epoch, b"one", 0)
        await add(store, epoch, b"two", 1)
        return list(await store.read())

    assert anyio.run(main) == [b"one", b"two"]


def test_one_sync_serves_all_waiting_callers(tmp_path: Path) -> None:
    disk = Unpowered(tmp_path)

    async def main() -> int:
        store = FileStore(tmp_path, ONE_THREAD, disk)
        epoch = (await store.lease()).epoch
        async with anyio.create_task_group() as group:

            async def one(n: int) -> None:
                await add(store, epoch, b"line", n)
                await store.keep()

            for n in range(50):
                group.start_soon(one, n)
        return disk.syncs

    assert anyio.run(main) < 10


def test_keep_with_nothing_new_does_not_sync_again(tmp_path: Path) -> None:
    disk = Unpowered(tmp_path)

    async def main() -> None:
        store = FileStore(tmp_path, disk=disk)
        await write(store, EVENTS)
        await store.lease()
        await store.keep()
        await store.release()

    anyio.run(main)

    assert disk.syncs == 1


class TestABadDisk:
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EINTR, errno.EAGAIN])
    @pytest.mark.parametrize("times", [1, 3])
    @pytest.mark.parametrize("part", range(4))
    def test_a_fault_at_any_disk_call_loses_no_acknowledged_event(
        self, tmp_path: Path, code: int, times: int, part: int
    ) -> None:
        async def each_in_turn() -> int:
            for position in range(1 + part, 100, 4):
                disk = Failing(position, code, times)
                await self.write_on(tmp_path / f"{position}" / "one", disk)
                disk.die()
                if disk.calls < position:
                    return position
            return 0

        assert anyio.run(each_in_turn) > 20

    async def write_on(self, directory: Path, disk: Failing) -> None:
        """Write three lines and a blob. After a fault, begin again from what is there."""
        store, read_chunks = FileStore(directory, ONE_THREAD, disk), list[bytes]()
        texts = list[str]()
        for tried in range(20):
            try:
                epoch = (await store.lease()).epoch
                chunks = list(await store.read())
                assert chunks[: len(read_chunks)] == read_chunks
                blob = await store.blobs.put(b"blob")
                for n in range(len(chunks), 3):
                    await add(store, epoch, b"line %d of try %d" % (n, tried), n)
                    await store.keep()
                    read_chunks = list(await store.read())
                await store.release()
                read_chunks = list(await store.read())
                break
            except JournalError as error:
                texts.append(str(error))
        assert all(str(directory) in words for words in texts)
        assert list(await FileStore(directory).read()) == read_chunks
        assert await store.blobs.get(blob) == b"blob"
        assert len(read_chunks) == 3

    @pytest.mark.parametrize(
        ("code", "message"),
        [
            (errno.ENOSPC, "No space left on device; free up disk space"),
            (errno.EIO, "Input/output error; the disk has a fault"),
            (errno.EROFS, "Read-only file system; set REFOLD_HOME"),
        ],
    )
    def test_a_disk_fault_is_reported_in_one_sentence(
        self, tmp_path: Path, code: int, message: str
    ) -> None:
        async def main() -> str:
            disk = Failing(1, code, 1000)
            store = FileStore(tmp_path / "one", disk=disk)
            with pytest.raises(JournalError) as caught:
                await add(store, (await store.lease()).epoch, b"one", 0)
            return str(caught.value)

        assert anyio.run(main).startswith(
            f"cannot open {tmp_path}/one/events.jsonl: {message}"
        )

    def test_after_a_failed_sync_the_session_must_be_opened_again(
        self, tmp_path: Path
    ) -> None:
        """After a failed fsync the kernel has dropped the pages; a second fsync would
        succeed without them.
        """
        disk = Failing(10_000, errno.EIO)

        async def main() -> None:
            store = FileStore(tmp_path, ONE_THREAD, disk)
            epoch = (await store.lease()).epoch
            await add(store, epoch, b"one", 0)
            await store.keep()
            await add(store, epoch, b"two", 1)
            disk.at = disk.calls + 1
            for _ in range(2):
                with pytest.raises(JournalError):
                    await store.keep()
            with pytest.raises(JournalError, match="open the session again"):
                await add(store, epoch, b"three", 2)
            await add(store, (await store.lease()).epoch, b"three", 2)
            await store.keep()
            assert list(await store.read()) == [b"one", b"two", b"three"]

        anyio.run(main)

    def test_an_incompletely_written_append_is_never_read(self, tmp_path: Path) -> None:
        disk = Failing(10_000, errno.ENOSPC)

        async def main() -> list[bytes]:
            store = FileStore(tmp_path, ONE_THREAD, disk)
            epoch = (await store.lease()).epoch
            await add(store, epoch, b"one", 0)
            disk.at = disk.calls + 1
            with pytest.raises(JournalError):
                await store.append(
                    [b"two", b"a longer line"], expect=1, epoch=epoch, head=(3, "h")
                )
            chunks = list(await FileStore(tmp_path).read())
            await add(store, epoch, b"two again", 1)
            return chunks + list(await FileStore(tmp_path).read())

        assert anyio.run(main) == [b"one", b"one", b"two again"]


class TestAPowerCut:
    """After a power cut only synced data is left, under synced names."""

    def test_synced_events_survive_a_power_failure(self, tmp_path: Path) -> None:
        disk = Unpowered(tmp_path)
        directory = tmp_path / "data" / "sessions" / "one"

        async def main() -> list[bytes]:
            store = FileStore(directory, THREADS, disk)
            epoch = (await store.lease()).epoch
            await add(store, epoch, b"one", 0)
            await store.keep()
            await add(store, epoch, b"two", 1)
            disk.cut_power()
            return list(await FileStore(directory, THREADS).read())

        assert anyio.run(main) == [b"one"]

    def test_events_found_by_the_next_writer_survive_a_power_failure(
        self, tmp_path: Path
    ) -> None:
        disk = Unpowered(tmp_path)

        async def main() -> list[bytes]:
            first = FileStore(tmp_path / "one", THREADS, disk)
            await add(first, (await first.lease()).epoch, b"one", 0)
            disk.die()
            await FileStore(tmp_path / "one", THREADS, disk).lease()
            disk.cut_power()
            return list(await FileStore(tmp_path / "one", THREADS).read())

        assert anyio.run(main) == [b"one"]

    def test_a_stored_blob_survives_a_power_failure(self, tmp_path: Path) -> None:
        disk = Unpowered(tmp_path)

        async def main() -> bytes:
            store = FileStore(tmp_path / "one", THREADS, disk)
            name = await store.blobs.put(b"blob")
            disk.cut_power()
            return await FileStore(tmp_path / "one", THREADS).blobs.get(name)

        assert anyio.run(main) == b"blob"
