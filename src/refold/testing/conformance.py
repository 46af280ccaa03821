"""The contracts of `Store` and `Blobs`, as tests for other implementations.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def open_store(self, tmp_path): return lambda: MyStore(tmp_path / "j")

Each call of `open_store` returns a store for another writer of the same journal.

Failures of a disk (no power, no space) and a second process need tests of their own.
"""

from collections.abc import Awaitable, Callable
from hashlib import sha256

import anyio
import pytest

from refold.errors import Conflict, Fenced, Held, JournalError
from refold.journal.store.port import Blobs, Store

LINES = [b'{"odd":"\xe2\x98\x82"}', b"not even JSON", b"\x00\xff\r", b""]
BLOB = b"\x89PNG\r\n\x1a\n" * 1000


class StoreContract:
    """The contract of a store: a subclass provides the fixture `open_store`.

    Each lease has a number, its epoch. A claim is a worker's right to a session, also a number.
    """

    @pytest.fixture
    def store(self, open_store: Callable[[], Store]) -> Store:
        return open_store()

    def test_a_new_store_is_empty(self, store: Store) -> None:
        assert list(anyio.run(store.read)) == []

    def test_a_lease_without_an_append_writes_nothing(self, store: Store) -> None:
        async def main() -> list[bytes]:
            await store.lease()
            await store.keep()
            await store.release()
            return list(await store.read())

        assert anyio.run(main) == []

    def test_any_lines_are_read_as_they_were_written(self, store: Store) -> None:
        async def main() -> list[bytes]:
            epoch = (await store.lease()).epoch
            await store.append(LINES[:2], expect=0, epoch=epoch, head=(2, "b"))
            await store.append(LINES[2:], expect=2, epoch=epoch, head=(4, "d"))
            await store.keep()
            return list(await store.read())

        assert anyio.run(main) == LINES

    @pytest.mark.parametrize("after", range(len(LINES) + 2))
    def test_read_returns_the_lines_after_a_number(self, store: Store, after: int) -> None:
        async def main() -> list[bytes]:
            await _write_lines(store)
            return list(await store.read(after))

        assert anyio.run(main) == LINES[after:]

    def test_repeated_reads_return_the_new_lines(self, store: Store) -> None:
        async def main() -> list[list[bytes]]:
            epoch = (await store.lease()).epoch
            batches = list[list[bytes]]()
            for n, line in enumerate(LINES):
                await store.append([line], expect=n, epoch=epoch, head=(n + 1, "x"))
                batches.append(list(await store.read(after=n)))
            return batches

        assert anyio.run(main) == [[line] for line in LINES]

    def test_a_writer_that_did_not_read_the_last_line_is_refused(
        self, store: Store
    ) -> None:
        async def main() -> list[bytes]:
            epoch = (await store.lease()).epoch
            await store.append(LINES[:1], expect=0, epoch=epoch, head=(1, "a"))
            with pytest.raises(Conflict):
                await store.append(LINES[1:], expect=0, epoch=epoch, head=(4, "d"))
            return list(await store.read())

        assert anyio.run(main) == LINES[:1]

    def test_a_writer_whose_lock_was_taken_stays_fenced(
        self, open_store: Callable[[], Store]
    ) -> None:
        """The writer was paused meanwhile, and leases again, as a recorder does after each
        failure.
        """

        async def main() -> list[bytes]:
            old, new = open_store(), open_store()
            epoch = (await old.lease(1)).epoch
            await old.append(LINES[:1], expect=0, epoch=epoch, head=(1, "a"))
            taken = await _take_over(old, new, claim=2)
            with pytest.raises(JournalError):
                await old.append(LINES[2:3], expect=1, epoch=epoch, head=(2, "z"))
            await new.append(LINES[1:2], expect=1, epoch=taken, head=(2, "b"))
            await new.release()
            for claim in (1, 3):
                with pytest.raises(Fenced):
                    await old.lease(claim)
            with pytest.raises(Fenced):
                await old.append(LINES[2:], expect=2, epoch=epoch + 2, head=(4, "d"))
            return list(await new.read())

        assert anyio.run(main) == LINES[:2]

    def test_a_claim_that_is_older_than_the_recorded_one_is_refused(
        self, open_store: Callable[[], Store]
    ) -> None:
        async def main() -> list[int]:
            first, late, next_one = open_store(), open_store(), open_store()
            epoch = (await first.lease(2)).epoch
            await first.append(LINES[:1], expect=0, epoch=epoch, head=(1, "a"))
            await first.release()
            with pytest.raises(Fenced):
                await late.lease(1)
            claims = [await next_one.read_claim()]
            await next_one.lease(3)
            return [*claims, await next_one.read_claim()]

        assert anyio.run(main) == [2, 3]

    def test_a_claim_is_leased_again_with_another_store(
        self, open_store: Callable[[], Store]
    ) -> None:
        """A session leases again when it moves to another directory within one claim."""

        async def main() -> list[bytes]:
            left, opened = open_store(), open_store()
            epoch = (await left.lease(2)).epoch
            await left.append(LINES[:1], expect=0, epoch=epoch, head=(1, "a"))
            taken = await _take_over(left, opened, claim=2)
            await opened.append(LINES[1:2], expect=1, epoch=taken, head=(2, "b"))
            with pytest.raises(JournalError):
                await left.append(LINES[2:3], expect=1, epoch=epoch, head=(2, "z"))
            return list(await opened.read())

        assert anyio.run(main) == LINES[:2]

    def test_a_lease_without_a_claim_keeps_the_recorded_one(
        self, open_store: Callable[[], Store]
    ) -> None:
        async def main() -> list[int]:
            first, second = open_store(), open_store()
            claims = [await first.read_claim()]
            epoch = (await first.lease(2)).epoch
            await first.append(LINES[:1], expect=0, epoch=epoch, head=(1, "a"))
            await first.release()
            await second.lease()
            return [*claims, await second.read_claim()]

        assert anyio.run(main) == [0, 2]

    def test_a_writer_leases_again_under_its_own_claim(self, store: Store) -> None:
        """A recorder leases again after the disk failed."""

        async def main() -> list[bytes]:
            epoch = (await store.lease(7)).epoch
            await store.append(LINES[:1], expect=0, epoch=epoch, head=(1, "a"))
            epoch = (await store.lease(7)).epoch
            await store.append(LINES[1:2], expect=1, epoch=epoch, head=(2, "b"))
            return list(await store.read())

        assert anyio.run(main) == LINES[:2]

    def test_each_lease_has_a_higher_epoch(self, store: Store) -> None:
        async def main() -> list[int]:
            epochs = list[int]()
            for n in range(3):
                epochs.append((await store.lease()).epoch)
                await store.append([b"x"], expect=n, epoch=epochs[-1], head=(n + 1, "x"))
                await store.release()
            return epochs

        epochs = anyio.run(main)

        assert 0 < epochs[0] < epochs[1] < epochs[2]

    def test_a_lease_has_the_head_of_the_last_writer(self, store: Store) -> None:
        async def main() -> list[tuple[int, str]]:
            first = await store.lease()
            await store.append(
                LINES, expect=0, epoch=first.epoch, head=(4, "0123456789abcdef")
            )
            await store.release()
            return [first.head, (await store.lease()).head]

        assert anyio.run(main) == [(0, ""), (4, "0123456789abcdef")]

    def test_store_continues_in_another_event_loop(self, store: Store) -> None:
        epoch = anyio.run(_write_lines, store)

        async def main() -> list[bytes]:
            await store.append([b"later"], expect=4, epoch=epoch, head=(5, "e"))
            await store.keep()
            return list(await store.read())

        assert anyio.run(main) == [*LINES, b"later"]

    def test_many_writers_can_wait_for_the_same_line(self, store: Store) -> None:
        async def main() -> int:
            await _write_lines(store)
            return await _run_concurrently([store.keep] * 20)

        assert anyio.run(main) == 20


class BlobsContract:
    """The contract of a blob store: a subclass provides the fixture `blobs`."""

    def test_a_blob_comes_back_under_its_hash(self, blobs: Blobs) -> None:
        async def main() -> tuple[str, str, bytes]:
            name, second = await blobs.put(BLOB), await blobs.put(BLOB)
            return name, second, await blobs.get(name)

        name = sha256(BLOB).hexdigest()
        assert anyio.run(main) == (name, name, BLOB)

    def test_an_empty_blob_can_be_stored(self, blobs: Blobs) -> None:
        async def main() -> bytes:
            return await blobs.get(await blobs.put(b""))

        assert anyio.run(main) == b""

    @pytest.mark.parametrize("name", ["", "../events.jsonl", "0" * 64])
    def test_a_missing_blob_is_an_error(self, blobs: Blobs, name: str) -> None:
        with pytest.raises(JournalError, match="blob"):
            anyio.run(blobs.get, name)


async def _take_over(old: Store, new: Store, *, claim: int) -> int:
    """Lease the journal of the store `old` with the store `new`, and return the epoch.

    If `old` holds a lock, `old` releases it first.
    """
    try:
        return (await new.lease(claim)).epoch
    except Held:
        await old.release()
        return (await new.lease(claim)).epoch


async def _write_lines(store: Store) -> int:
    """Write all `LINES` to an empty store, and return the epoch."""
    epoch = (await store.lease()).epoch
    await store.append(LINES, expect=0, epoch=epoch, head=(4, "d"))
    return epoch


async def _run_concurrently(actions: list[Callable[[], Awaitable[None]]]) -> int:
    """Run all actions at the same time. Return the number of actions that completed."""
    count = 0

    async def do(action: Callable[[], Awaitable[None]]) -> None:
        nonlocal count
        await action()
        count += 1

    async with anyio.create_task_group() as group:
        for action in actions:
            group.start_soon(do, action)
    return count
