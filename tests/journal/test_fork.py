"""A fork: the same bytes up to an event, then a session of its own."""

import errno
import os
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from refold.engine.model_call import build_request
from refold.engine.world import World
from refold.errors import BadInput, JournalError
from refold.journal.events import codec
from refold.journal.events.kinds import (
    ChildBorn,
    Ended,
    Entry,
    Event,
    Forked,
    ModelAnswered,
    Said,
    SessionStarted,
    Started,
    TurnStarted,
    VariablesSaved,
)
from refold.journal.fork import UNKNOWN_END, Fork, fork
from refold.journal.journal_directory import JournalDirectory
from refold.journal.state.fold import View, fold
from refold.journal.store.check import check
from refold.journal.store.disk import Disk
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.testing.providers import Line, ScriptedProvider, check_history
from refold.values.messages import Image, Message, ToolCall
from refold.values.usage import Budget, Spent, Usage
from tests.engine.house import BOOK, WEATHER, raw, world

NOW = 1_000_000.0
SCRIPTS = some.lists(
    some.sampled_from(["Yes.", [WEATHER], [BOOK, WEATHER], [("fly", "{}")], ""]), max_size=4
)


def write_session(home: JournalDirectory, *events: Event, name: str = "a") -> Path:
    """Return a session with these events in it."""

    async def write() -> None:
        record = Recorder(home.store(name), clock=lambda: 5.0)
        await record.open()
        await record(*events)
        await record.close()

    anyio.run(write)
    return home.path(name)


def run_session(
    home: JournalDirectory, script: list[Line], scripted_world: World, name: str = "a"
) -> Path:
    async def live() -> None:
        record = Recorder(home.store(name), clock=lambda: 5.0)
        async with await Session.open(
            record, lambda _: scripted_world, id_=name
        ) as session:
            await session.inbox.say("Well?")
            await session.run_turns()

    anyio.run(live)
    return home.path(name)


def lines_of(path: Path) -> list[bytes]:
    return (path / "events.jsonl").read_bytes().split(b"\n")[:-1]


def entries_of(path: Path) -> list[Entry]:
    return [entry for entry, _ in codec.decode(lines_of(path))]


def file_contents(path: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()
    }


def continue_session(home: JournalDirectory, id_: str, scripted_world: World) -> View:
    async def main() -> View:
        record = Recorder(home.store(id_), clock=lambda: 9.0)
        async with await Session.open(record, lambda _: scripted_world) as session:
            await session.inbox.say("And now?")
            return await session.run_turns()

    return anyio.run(main)


def check_forks(
    home: JournalDirectory, script: list[Line], *, may_book: bool, step: int = 1
) -> None:
    orders: list[str] = []
    rules = world(ScriptedProvider()).rules if may_book else ()
    path = run_session(home, script, world(ScriptedProvider(*script), orders, rules=rules))
    before, source, ordered = file_contents(path), entries_of(path), list(orders)

    for seq in range(1, len(source) + 1, step):
        forked_session = fork(home, "a", seq, NOW)

        copy = home.path(forked_session.id)
        ours = entries_of(copy)
        forked = Forked("a", seq, _hash(path, seq), forked_session.id)
        assert lines_of(copy)[:seq] == lines_of(path)[:seq]
        assert (ours[:seq], ours[seq].event) == (source[:seq], forked)
        assert fold(ours[: seq + 1]) == fold([ours[seq]], fold(source[:seq]))
        assert check(copy).damages == ()
        assert all(c.result is not None for c in fold(ours).conversation.calls)
        view = continue_session(
            home, forked_session.id, world(ScriptedProvider("Now."), orders)
        )
        check_history(s.message for s in build_request(view).messages)
        assert check(copy).damages == ()

    assert file_contents(path) == before
    assert orders == ordered  # nothing that was under way is done a second time


def test_a_fork_at_any_event_has_the_earlier_events_and_continues_independently(
    tmp_path: Path,
) -> None:
    check_forks(
        JournalDirectory(tmp_path), [[BOOK, WEATHER], "Yes."], may_book=True, step=2
    )


@pytest.mark.slow
@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(SCRIPTS, some.booleans())
def test_forks_of_generated_sessions_have_the_earlier_events_and_continue(
    tmp_path: Path, script: list[Line], may_book: bool
) -> None:
    check_forks(JournalDirectory(tmp_path / os.urandom(6).hex()), script, may_book=may_book)


def _hash(path: Path, seq: int) -> str:
    return [head for _, head in codec.decode(lines_of(path))][seq - 1].h


def test_fork_ends_open_calls_as_unknown(tmp_path: Path) -> None:
    home = JournalDirectory(tmp_path)
    calls = (ToolCall("c1", "book", raw("{}")), ToolCall("c2", "book", raw("{}")))
    answer = ModelAnswered(Message("assistant", calls))
    write_session(
        home, SessionStarted("/w"), Said("x"), TurnStarted(2), answer, Started("c1"),
        Ended("c1", "done", "ok"),
    )  # fmt: skip

    entries = entries_of(home.path(fork(home, "a", None, NOW).id))

    assert [entry.event for entry in entries[7:]] == [Ended("c2", "unknown", UNKNOWN_END)]
    assert fold(entries).conversation.calls == ()


def test_forks_of_a_session_and_of_a_fork_leave_the_original_unchanged(
    tmp_path: Path,
) -> None:
    home = JournalDirectory(tmp_path)
    path = run_session(home, ["Yes."], world(ScriptedProvider("Yes.")))
    before = file_contents(path)

    first, second = fork(home, "a", None, NOW), fork(home, "a", 4, NOW)
    continue_session(home, first.id, world(ScriptedProvider("One.")))
    third = fork(home, first.id, None, NOW)
    continue_session(home, second.id, world(ScriptedProvider("Two.")))

    views = [fold(entries_of(home.path(item.id))) for item in (first, second, third)]
    assert len({first.id, second.id, third.id}) == 3
    assert [v.session.forked[0] for v in views] == ["a", "a", first.id]
    assert [v.session.id for v in views] == [first.id, second.id, third.id]
    assert file_contents(path) == before
    assert [check(home.path(e.id)).damages for e in (first, second, third)] == [()] * 3


def test_a_fork_has_the_blobs_and_python_variables_of_its_events(tmp_path: Path) -> None:
    home = JournalDirectory(tmp_path)

    async def put_blobs(*contents: bytes) -> list[str]:
        return [await home.store("a").blobs.put(content) for content in contents]

    names = anyio.run(put_blobs, b"picture", b"whole", b"variables", b"later")
    path = write_session(
        home,
        SessionStarted("/w"),
        Said("x", images=(Image(names[0], "image/png"),)),
        Ended("c", "done", "cut", full_blob=names[1]),
        VariablesSaved("c", names[2]),
        Ended("d", "done", "cut", full_blob=names[3]),
    )

    forked_session = fork(home, "a", 4, NOW)

    copy = home.path(forked_session.id)
    there = {p.name: p.stat().st_ino for p in (copy / "blobs").iterdir()}
    assert there == {n: (path / "blobs" / n).stat().st_ino for n in names[:3]}
    assert fold(entries_of(copy)).conversation.variables == names[2]
    assert check(copy).blobs == 3


def test_blobs_are_copied_on_a_disk_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = JournalDirectory(tmp_path)

    async def put_blob() -> str:
        return await home.store("a").blobs.put(b"whole")

    name = anyio.run(put_blob)
    write_session(home, SessionStarted("/w"), Ended("c", "done", "cut", full_blob=name))

    def no_link(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_link)

    copy = home.path(fork(home, "a", None, NOW).id)

    assert (copy / "blobs" / name).read_bytes() == b"whole"
    assert (copy / "blobs" / name).stat().st_mode & 0o777 == 0o600
    assert check(copy).damages == ()


def test_a_fork_does_not_take_over_the_children_of_the_original(tmp_path: Path) -> None:
    home = JournalDirectory(tmp_path)
    born = ChildBorn("child-1", "c1", "explore", "look", grant=Budget(2.0))
    call = ModelAnswered(
        Message("assistant", (ToolCall("c1", "task", raw("{}")),)), Usage(5, output=2)
    )
    write_session(
        home, SessionStarted("/w"), Said("x"), TurnStarted(2), call, Started("c1"), born
    )
    write_session(home, SessionStarted("/w"), name="a/child-1")

    forked_session = fork(home, "a", None, NOW)

    view = fold(entries_of(home.path(forked_session.id)))
    assert not (home.path(forked_session.id) / "children").exists()
    assert [c.foreign for c in view.children.children] == [True]
    assert (view.children.running, view.turn.granted) == ((), ())
    assert view.account.spent == Spent()
    with pytest.raises(BadInput, match="a/child-1 is a subagent"):
        fork(home, "a/child-1", None, NOW)


@pytest.mark.parametrize(
    ("at", "words"), [(0, "1 to 2"), (3, "no event 3"), (-1, "1 to 2")]
)
def test_a_fork_at_an_invalid_event_is_refused(tmp_path: Path, at: int, words: str) -> None:
    home = JournalDirectory(tmp_path)
    write_session(home, SessionStarted("/w"), Said("x"))

    with pytest.raises(BadInput, match=words):
        fork(home, "a", at, NOW)

    assert [s.id for s in home.sessions()] == ["a"]


def test_a_damaged_session_can_be_forked_before_the_damage(tmp_path: Path) -> None:
    home = JournalDirectory(tmp_path)
    path = write_session(home, SessionStarted("/w"), Said("x"), Said("y"), Said("z"))
    whole = (path / "events.jsonl").read_bytes()
    (path / "events.jsonl").write_bytes(whole.replace(b'"text":"y"', b'"text":"n"'))

    with pytest.raises(BadInput, match=r"fork it at event 2 or before"):
        fork(home, "a", None, NOW)

    assert check(home.path(fork(home, "a", 2, NOW).id)).damages == ()


class Dying(Disk):
    """Carries out `calls` operations. At the next one the process dies."""

    def __init__(self, calls: int, error: BaseException) -> None:
        self.left, self.error = calls, error

    def _one(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.error

    def write(self, file: int, data: bytes, offset: int) -> None:
        self._one()
        super().write(file, data, offset)

    def sync(self, file: int) -> None:
        self._one()
        super().sync(file)

    def mkdir(self, path: Path) -> None:
        self._one()
        super().mkdir(path)

    def rename(self, old: Path, new: Path) -> None:
        self._one()
        super().rename(old, new)

    def sync_directory(self, path: Path) -> None:
        self._one()
        super().sync_directory(path)


@pytest.mark.parametrize("calls", range(7))
def test_a_fork_on_a_failing_disk_leaves_no_partial_session(
    tmp_path: Path, calls: int
) -> None:
    home = JournalDirectory(tmp_path)
    path = write_session(home, SessionStarted("/w"), Said("x"))
    before = file_contents(path)
    full = OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(JournalError, match="free up disk space"):
        fork(home, "a", None, NOW, Dying(calls, full))

    whole = [home.check(s.id).damages for s in home.sessions()]
    assert whole in ([()], [(), ()])
    assert file_contents(path) == before
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_unfinished_fork_of_a_dead_process_is_not_listed_and_is_removed(
    tmp_path: Path,
) -> None:
    home = JournalDirectory(tmp_path)
    path = write_session(home, SessionStarted("/w"), Said("x"))
    left = tmp_path / ".fork-999999999-b"
    left.mkdir()
    (left / "events.jsonl").write_bytes((path / "events.jsonl").read_bytes())

    ids = [s.id for s in home.sessions()]
    fork(home, "a", None, NOW)

    assert ids == ["a"]
    assert not left.exists()


def test_a_session_can_be_forked_while_it_is_written(tmp_path: Path) -> None:
    home = JournalDirectory(tmp_path)

    async def write() -> Fork:
        record = Recorder(home.store("a"))
        await record.open()
        await record(SessionStarted("/w"), Said("x"))
        sync = await anyio.to_thread.run_sync(fork, home, "a", None, NOW)
        await record(Said("later"))
        await record.close()
        return sync

    result = anyio.run(write)

    assert [type(e.event) for e in entries_of(home.path(result.id))][-1] is Forked
    assert check(home.path("a")).events == 3
