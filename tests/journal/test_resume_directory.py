"""The directory in which a session resumes, read from its lines without folding them."""

from pathlib import Path

import anyio
import pytest
from msgspec import Raw

from refold.journal.events.kinds import (
    Event,
    Imported,
    ModelAnswered,
    Said,
    SessionResumed,
    SessionStarted,
)
from refold.journal.journal_directory import JournalDirectory, current_directories
from refold.journal.state.session_info import SessionDirectories
from refold.session.recorder import Recorder
from refold.values.messages import Message, ToolCall

STARTED = SessionStarted("/a", roots=("/b", "/c"))
# The words of a line, in the arguments of a call: they stand there as they are.
LIE = b'{"kind":"SessionResumed","data":{"directory":"/lie","roots":[]}}'
SAID = ModelAnswered(Message("assistant", (ToolCall("c", "t", Raw(LIE)),)))


def write_session(directory: Path, *events: Event) -> Path:
    async def run_story() -> None:
        record = Recorder(JournalDirectory(directory).store("one"))
        await record.open()
        await record(*events)
        await record.close()

    anyio.run(run_story)
    return directory / "one"


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ((), SessionDirectories("/a", ("/b", "/c"))),
        ((SessionResumed("1"),), SessionDirectories("/a", ("/b", "/c"))),
        ((SessionResumed(roots=("/d",)),), SessionDirectories("/a", ("/d",))),
        ((SessionResumed(directory="/e", roots=()),), SessionDirectories("/e")),
        (
            (SessionResumed(directory="/e", roots=("/d",)), SessionResumed()),
            SessionDirectories("/e", ("/d",)),
        ),
        (
            (SessionResumed(directory="/e"), Imported("x", "y", "/f")),
            SessionDirectories("/f"),
        ),
        (
            (Imported("x", "y", "/f"), SessionResumed(roots=("/d",))),
            SessionDirectories("/f", ("/d",)),
        ),
        ((SAID, Said('"kind":"SessionResumed"')), SessionDirectories("/a", ("/b", "/c"))),
    ],
)
def test_the_latest_event_decides_the_directory_and_the_roots(
    tmp_path: Path, later: tuple[Event, ...], expected: SessionDirectories
) -> None:
    assert current_directories(write_session(tmp_path, STARTED, *later)) == expected


def test_current_directories_match_the_folded_session(tmp_path: Path) -> None:
    async def run_story() -> tuple[str, tuple[str, ...]]:
        record = Recorder(JournalDirectory(tmp_path).store("one"))
        await record.open()
        moved = SessionResumed(directory="/e", roots=("/d",))
        await record(STARTED, SessionResumed("1"), moved, SessionResumed("2"))
        await record.close()
        return record.view.session.directory, record.view.session.roots

    directory, roots = anyio.run(run_story)

    assert (
        current_directories(tmp_path / "one")
        == SessionDirectories(directory, roots)
        == SessionDirectories("/e", ("/d",))
    )


@pytest.mark.parametrize("content", [None, b"", b"no line", b"no line\n"])
def test_current_directories_without_a_valid_journal_are_empty(
    tmp_path: Path, content: bytes | None
) -> None:
    (tmp_path / "one").mkdir()
    if content is not None:
        (tmp_path / "one/events.jsonl").write_bytes(content)

    assert current_directories(tmp_path / "one") == SessionDirectories()
