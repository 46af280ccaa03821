"""The contract of a store, as tests that anyone can run on their own store.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self, tmp_path): return MyStore(tmp_path / "j")

Behaviour of a disk (power failures, full disks, a second process) needs tests of its own.
"""

from collections.abc import Awaitable, Callable
from hashlib import sha256

import anyio
import pytest

from refold.errors import Conflict, Fenced, JournalError
from refold.journal.store.port import Store

LINES = [b'{"odd":"\xe2\x98\x82"}', b"not even JSON", b"\x00\xff\r", b""]
BLOB = b"\x89PNG\r\n\x1a\n" * 1000


class StoreContract:
    def test_a_new_store_is_empty(self, store: Store) -> None:
        assert list(anyio.run(store.read)) == []

    def test_looking_and_leaving_writes_nothing(self, store: Store) -> None:
        async def use() -> list[bytes]:
            await store.lease()
            await store.keep()
            await store.release()
            return list(await store.read())

        assert anyio.run(use) == []

    def test_lines_come_back_as_they_were_whatever_they_say(self, store: Store) -> None:
        async def use() -> list[bytes]:
            epoch = (await store.lease()).epoch
            await store.append(LINES[:2], expect=0, epoch=epoch, head=(2, "b"))
            await store.append(LINES[2:], expect=2, epoch=epoch, head=(4, "d"))
            await store.keep()
            return list(await store.read())

        assert anyio.run(use) == LINES

    @pytest.mark.parametrize("after", range(len(LINES) + 2))
    def test_reading_goes_on_after_a_line(self, store: Store, after: int) -> None:
        async def use() -> list[bytes]:
            await _begin(store)
            return list(await store.read(after))

        assert anyio.run(use) == LINES[after:]

    def test_who_reads_on_gets_what_is_new(self, store: Store) -> None:
        async def use() -> list[list[bytes]]:
            epoch = (await store.lease()).epoch
            found = list[list[bytes]]()
            for n, line in enumerate(LINES):
                await store.append([line], expect=n, epoch=epoch, head=(n + 1, "x"))
                found.append(list(await store.read(after=n)))
            return found

        assert anyio.run(use) == [[line] for line in LINES]

    def test_a_writer_that_did_not_read_the_last_line_is_refused(
        self, store: Store
    ) -> None:
        async def use() -> list[bytes]:
            epoch = (await store.lease()).epoch
            await store.append(LINES[:1], expect=0, epoch=epoch, head=(1, "a"))
            with pytest.raises(Conflict):
                await store.append(LINES[1:], expect=0, epoch=epoch, head=(4, "d"))
            return list(await store.read())

        assert anyio.run(use) == LINES[:1]

    def test_a_writer_whose_pen_was_taken_is_refused(self, store: Store) -> None:
        async def use() -> list[bytes]:
            old = (await store.lease()).epoch
            new = (await store.lease()).epoch
            await store.append(LINES[:1], expect=0, epoch=new, head=(1, "a"))
            with pytest.raises(Fenced):
                await store.append(LINES[1:], expect=1, epoch=old, head=(4, "d"))
            return list(await store.read())

        assert anyio.run(use) == LINES[:1]

    def test_every_pen_has_a_higher_number(self, store: Store) -> None:
        async def use() -> list[int]:
            epochs = list[int]()
            for n in range(3):
                epochs.append((await store.lease()).epoch)
                await store.append([b"x"], expect=n, epoch=epochs[-1], head=(n + 1, "x"))
                await store.release()
            return epochs

        epochs = anyio.run(use)

        assert 0 < epochs[0] < epochs[1] < epochs[2]

    def test_the_next_writer_hears_where_the_last_one_ended(self, store: Store) -> None:
        async def use() -> list[tuple[int, str]]:
            first = await store.lease()
            await store.append(
                LINES, expect=0, epoch=first.epoch, head=(4, "0123456789abcdef")
            )
            await store.release()
            return [first.head, (await store.lease()).head]

        assert anyio.run(use) == [(0, ""), (4, "0123456789abcdef")]

    def test_what_one_loop_began_another_goes_on_with(self, store: Store) -> None:
        epoch = anyio.run(_begin, store)

        async def go_on() -> list[bytes]:
            await store.append([b"later"], expect=4, epoch=epoch, head=(5, "e"))
            await store.keep()
            return list(await store.read())

        assert anyio.run(go_on) == [*LINES, b"later"]

    def test_many_wait_for_the_same_line_to_be_kept(self, store: Store) -> None:
        async def use() -> int:
            await _begin(store)
            return await _all_at_once([store.keep] * 20)

        assert anyio.run(use) == 20

    def test_a_blob_comes_back_under_its_hash(self, store: Store) -> None:
        async def use() -> tuple[str, str, bytes]:
            await _begin(store)
            name, again = await store.put(BLOB), await store.put(BLOB)
            return name, again, await store.get(name)

        name = sha256(BLOB).hexdigest()
        assert anyio.run(use) == (name, name, BLOB)

    @pytest.mark.parametrize("name", ["", "../events.jsonl", "0" * 64])
    def test_a_blob_that_is_not_there_is_told(self, store: Store, name: str) -> None:
        async def use() -> None:
            await _begin(store)
            with pytest.raises(JournalError, match="blob"):
                await store.get(name)

        anyio.run(use)


async def _begin(store: Store) -> int:
    epoch = (await store.lease()).epoch
    await store.append(LINES, expect=0, epoch=epoch, head=(4, "d"))
    return epoch


async def _all_at_once(deeds: list[Callable[[], Awaitable[None]]]) -> int:
    done = 0

    async def do(deed: Callable[[], Awaitable[None]]) -> None:
        nonlocal done
        await deed()
        done += 1

    async with anyio.create_task_group() as group:
        for deed in deeds:
            group.start_soon(do, deed)
    return done
