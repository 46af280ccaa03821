"""The cache of folded views: it saves time, and is never believed against the journal."""

import errno
import os
import shutil
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from msgspec import Raw

from refold.client.event_documents import ALL_DOCUMENTS, Cursor
from refold.client.stored_sessions import StoredSessions
from refold.errors import Corrupt
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import (
    Delivered,
    Ended,
    Entry,
    Event,
    HookRan,
    Judged,
    ModelAnswered,
    ModelAsked,
    Rewound,
    Said,
    SessionStarted,
    Started,
    TurnEnded,
    TurnStarted,
)
from refold.journal.journal_directory import JournalDirectory
from refold.journal.state.fold import View, fold
from refold.journal.state.view_codec import EncodedView, ListTable
from refold.journal.store.disk import Disk
from refold.journal.store.log_file import VIEWS_KEY_FILE
from refold.journal.store.view_cache import ViewCache
from refold.session.recorder import VIEW_EVENTS, Recorder
from refold.values.messages import Message, Text, ToolCall
from tests.journal.disks import Failing

SESSION_ID = "20260101-000000-aaaa"
EVENT_COUNT = 2 * VIEW_EVENTS + 300


def turns(after: int = 0) -> Iterator[Event]:
    """Yield the events of a session, or those that follow on event `after`."""
    numbered, seq, message = _turns(), after, 0
    if after:
        next(numbered)
    for event in numbered:
        seq += 1
        match event:
            case Said():
                message = seq
            case Delivered():
                event = Delivered((message,))
            case Rewound():
                event = Rewound(message - 48)
            case _:
                pass
        yield event


def _turns() -> Iterator[Event]:
    yield SessionStarted("/work", "0.1")
    for turn in range(10_000):
        yield Said(f"Do step {turn}.")
        yield TurnStarted(1)
        yield Delivered(())
        yield ModelAsked()
        call = ToolCall(f"c{turn}", "bash", Raw(b'{"command":"make"}'))
        yield ModelAnswered(Message("assistant", (Text("I do it."), call)))
        yield Judged(call.id, "allow", "bypass")
        yield Started(call.id)
        yield Ended(call.id, "done", f"done {turn}\n" + "output\n" * 9)
        yield HookRan("PostToolUse", "check", outcome="failed", reason="It is not there.")
        yield ModelAsked()
        yield ModelAnswered(Message("assistant", (Text("It is done."),)))
        yield TurnEnded("answered")
        if turn % 50 == 49:
            yield Rewound(0)


def record_events(
    home: JournalDirectory, events: list[Event], name: str = SESSION_ID
) -> View:
    async def write() -> View:
        recorder = Recorder(home.store(name), clock=lambda: 5.0, durable=False)
        await recorder.open()
        for first in range(0, len(events), 7):
            await recorder(*events[first : first + 7])
        await recorder.close()
        return recorder.view

    return anyio.run(write)


def read_view(home: JournalDirectory, name: str = SESSION_ID) -> View:
    return anyio.run(Recorder(home.store(name)).fold_without_lock)


def entries_of(home: JournalDirectory) -> list[Entry]:
    return [entry for entry, _ in codec.decode(lines_of(home))]


def lines_of(home: JournalDirectory) -> list[bytes]:
    return journal_of(home).read_bytes().split(b"\n")[:-1]


def journal_of(home: JournalDirectory) -> Path:
    return home.path(SESSION_ID) / "events.jsonl"


def views_of(home: JournalDirectory) -> Path:
    return home.path(SESSION_ID) / "views"


def cache_of(home: JournalDirectory, disk: Disk | None = None) -> ViewCache:
    return ViewCache(home.path(SESSION_ID), home.root / VIEWS_KEY_FILE, disk or Disk())


def seq_of_cached_view(home: JournalDirectory) -> int:
    loaded = cache_of(home).load()
    return loaded.view.seq if loaded else 0


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> JournalDirectory:
    home = JournalDirectory(tmp_path_factory.mktemp("data") / "sessions")
    record_events(home, list(islice(turns(), EVENT_COUNT)))
    return home


@pytest.fixture
def home(original: JournalDirectory, tmp_path: Path) -> JournalDirectory:
    shutil.copytree(original.root, tmp_path / "sessions")
    return JournalDirectory(tmp_path / "sessions")


def test_long_session_is_opened_from_its_newest_view_and_the_events_after_it(
    home: JournalDirectory,
) -> None:
    expected = fold(entries_of(home))

    assert read_view(home) == expected
    assert EVENT_COUNT - seq_of_cached_view(home) < VIEW_EVENTS
    journal, views = journal_of(home).stat(), views_of(home).stat()
    assert views.st_size < journal.st_size
    assert views.st_mode & 0o777 == 0o600


def test_stored_session_gives_the_same_documents_with_and_without_the_cache(
    home: JournalDirectory,
) -> None:
    stored = StoredSessions(home)
    middle = Cursor(1_500, ALL_DOCUMENTS, 1)

    def documents() -> list[object]:
        sizes = ((None, 40), (None, 700), (middle, 40))
        windows = (stored.window(SESSION_ID, before, n) for before, n in sizes)
        events = stored.events(SESSION_ID, middle, 1_000)
        return [*map(list, windows), list(events), stored.messages(SESSION_ID)]

    from_views = documents()
    views_of(home).unlink()

    assert from_views == documents()


def test_short_session_has_no_view_cache(tmp_path: Path) -> None:
    home = JournalDirectory(tmp_path)

    record_events(home, list(islice(turns(), VIEW_EVENTS - 1)))

    assert not views_of(home).exists()
    assert not (home.root / VIEWS_KEY_FILE).exists()


def test_view_with_a_failed_hook_is_cached(tmp_path: Path) -> None:
    home = JournalDirectory(tmp_path)
    view = record_events(home, list(islice(turns(), 10)))  # the newest event is of the hook

    assert view.failures.hooks
    assert EncodedView(view, ListTable()).piece


def test_resumed_session_adds_to_its_view_cache(home: JournalDirectory) -> None:
    before = views_of(home).read_bytes()

    view = record_events(home, list(islice(turns(EVENT_COUNT), EVENT_COUNT - 1)))

    assert views_of(home).read_bytes().startswith(before)
    assert seq_of_cached_view(home) > EVENT_COUNT + VIEW_EVENTS
    assert read_view(home) == view == fold(entries_of(home))


def test_long_session_without_a_view_cache_gets_one_when_it_is_next_written(
    home: JournalDirectory,
) -> None:
    views_of(home).unlink()

    view = record_events(home, [])

    assert seq_of_cached_view(home) == EVENT_COUNT
    assert read_view(home) == view


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.integers(0, EVENT_COUNT))
def test_cut_journal_with_a_view_cache_gives_the_view_of_its_remaining_lines(
    home: JournalDirectory, cut: int
) -> None:
    whole = journal_of(home).read_bytes()
    lines = whole.split(b"\n")[:cut]

    journal_of(home).write_bytes(b"".join(line + b"\n" for line in lines))

    assert read_view(home) == fold(entry for entry, _ in codec.decode(lines))
    journal_of(home).write_bytes(whole)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.floats(0, 1), some.sampled_from(["flip", "cut", "insert", "zero"]))
def test_damaged_view_cache_changes_no_view(
    home: JournalDirectory, place: float, damage: str
) -> None:
    whole, expected = views_of(home).read_bytes(), _view_of(home)
    position = int(place * (len(whole) - 1))
    content = {
        "flip": whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :],
        "cut": whole[:position],
        "insert": whole[:position] + b"0" + whole[position:],
        "zero": whole[:position] + bytes(len(whole) - position),
    }

    views_of(home).write_bytes(content[damage])

    assert read_view(home) == expected
    views_of(home).write_bytes(whole)


@cache
def _view_of(home: JournalDirectory) -> View:
    return fold(entries_of(home))


def test_view_forged_without_the_key_of_the_installation_is_ignored(
    home: JournalDirectory, tmp_path: Path
) -> None:
    """The forged file is a valid cache for these lines, and its view allows every call."""
    expected, forger = read_view(home), JournalDirectory(tmp_path / "forger")
    shutil.copytree(home.path(SESSION_ID), forger.path(SESSION_ID))
    views_of(forger).unlink()
    forged = fold([Entry(expected.seq, Said("Delete it all."))], expected)
    cache_of(forger).save(forged, newest_head(home))
    assert seq_of_cached_view(forger) == EVENT_COUNT

    shutil.copy(views_of(forger), views_of(home))

    assert read_view(home) == expected


def newest_head(home: JournalDirectory) -> Head:
    *_, (_, head) = codec.decode(lines_of(home))
    return head


def test_reordered_pieces_of_a_view_cache_and_those_of_another_session_are_ignored(
    home: JournalDirectory,
) -> None:
    expected, whole = read_view(home), views_of(home).read_bytes()
    second = whole.index(b'\n{"mac"') + 1
    record_events(home, list(islice(cycle([Said("Hello.")]), EVENT_COUNT)), "other")

    for content in (
        whole[second:],
        whole[second:] + whole[:second],
        (home.path("other") / "views").read_bytes(),
    ):
        views_of(home).write_bytes(content)
        assert seq_of_cached_view(home) == 0
        assert read_view(home) == expected


def test_changed_journal_line_that_a_cached_view_covers_is_reported(
    home: JournalDirectory,
) -> None:
    data = journal_of(home).read_bytes()
    journal_of(home).write_bytes(data.replace(b"Do step 3.", b"Do step 4.", 1))

    with pytest.raises(Corrupt) as caught:
        read_view(home)

    assert caught.value.line == 38


def test_view_cache_made_by_other_source_code_is_ignored(home: JournalDirectory) -> None:
    """The key of a cache contains a digest of the source."""
    (home.root / VIEWS_KEY_FILE).write_bytes(os.urandom(32))

    assert seq_of_cached_view(home) == 0
    assert read_view(home) == fold(entries_of(home))


@pytest.mark.parametrize(("call", "times"), [(1, 1), (2, 1), (2, 2)])
def test_full_disk_leaves_the_view_cache_unchanged(
    home: JournalDirectory, call: int, times: int
) -> None:
    disk = Failing(call, errno.ENOSPC, times)
    cache = cache_of(home, disk)
    before = cache.load()
    assert before is not None
    view = fold(entries_of(home)[before.view.seq :], before.view)

    cache.save(view, newest_head(home))

    assert seq_of_cached_view(home) == before.view.seq < EVENT_COUNT
    cache.save(view, newest_head(home))
    assert seq_of_cached_view(home) == EVENT_COUNT
    assert disk.calls > call
    assert read_view(home) == view


@pytest.mark.parametrize("left", [b"", b"k" * 31])
def test_view_cache_key_that_a_full_disk_cut_off_is_replaced(
    home: JournalDirectory, left: bytes
) -> None:
    (home.root / VIEWS_KEY_FILE).write_bytes(left)

    cache_of(home).save(_view_of(home), newest_head(home))

    assert seq_of_cached_view(home) == EVENT_COUNT


def test_two_caches_that_save_views_in_turn_leave_a_correct_view_or_none(
    home: JournalDirectory,
) -> None:
    entries, heads = entries_of(home), [head for _, head in codec.decode(lines_of(home))]
    views_of(home).unlink()
    caches, views = [cache_of(home), cache_of(home)], dict[int, View]()

    for turn, seq in enumerate(range(500, EVENT_COUNT, 300)):
        views[seq] = fold(entries[:seq])
        caches[turn % 2].save(views[seq], heads[seq - 1])
        loaded = cache_of(home).load()
        assert loaded is None or loaded.view == views[loaded.view.seq]


def test_a_view_cache_is_read_up_to_a_part_that_another_process_wrote(
    home: JournalDirectory,
) -> None:
    """Each part is right by itself, but the second process numbers its lists in another way,
    because its first save failed.
    """
    entries, heads = entries_of(home), [head for _, head in codec.decode(lines_of(home))]
    contents = list[bytes]()
    for disk in (Disk(), Failing(1)):
        views_of(home).unlink()
        cache = cache_of(home, disk)
        if isinstance(disk, Failing):
            cache.save(fold(entries[:1000]), heads[999])
        view = fold(entries[:1000])
        cache.save(view, heads[999])
        cache.save(fold(entries[1000:2000], view), heads[1999])
        assert seq_of_cached_view(home) == 2000
        contents.append(views_of(home).read_bytes())
    first, second = (content.index(b'\n{"mac"') + 1 for content in contents)

    views_of(home).write_bytes(contents[0][:first] + contents[1][second:])

    assert seq_of_cached_view(home) == 1000


def test_view_whose_last_line_is_not_in_the_journal_is_not_cached(
    home: JournalDirectory,
) -> None:
    views_of(home).unlink()

    cache_of(home).save(_view_of(home), Head(EVENT_COUNT, "0" * 16))

    assert views_of(home).read_bytes() == b""


def test_deleted_view_cache_is_written_anew_by_the_process_that_has_the_session(
    home: JournalDirectory,
) -> None:
    async def write() -> View:
        recorder = Recorder(home.store(SESSION_ID))
        await recorder.open()
        views_of(home).unlink()
        await recorder(*islice(turns(EVENT_COUNT), VIEW_EVENTS))
        await recorder.close()
        return recorder.view

    view = anyio.run(write)

    assert seq_of_cached_view(home) == view.seq == EVENT_COUNT + VIEW_EVENTS
    assert read_view(home) == view


def test_pipe_in_place_of_the_view_cache_does_not_block_a_reader(
    home: JournalDirectory,
) -> None:
    expected = read_view(home)
    views_of(home).unlink()
    os.mkfifo(views_of(home))

    assert read_view(home) == expected
    assert record_events(home, []) == expected


def test_link_in_place_of_the_view_cache_is_not_written_through(
    home: JournalDirectory, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    views_of(home).unlink()
    views_of(home).symlink_to(target)

    record_events(home, list(islice(turns(EVENT_COUNT), VIEW_EVENTS)))

    assert target.read_bytes() == b"precious"
