"""A process that is killed while indexing leaves a valid catalogue, or none."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import Entry, Event, Said, SessionStarted
from refold.journal.journal_directory import JournalDirectory

PROCESS = Path(__file__).with_name("indexing_process.py")
COUNT = 400


def sessions(root: Path) -> JournalDirectory:
    home = JournalDirectory(root)
    for n in range(COUNT):
        head, chunks = Head(), list[bytes]()
        events: list[Event] = [SessionStarted("/work"), *[Said(f"umbrella {n}")] * 20]
        for event in events:
            line, head = codec.encode(Entry(head.seq + 1, event), head)
            chunks.append(line + b"\n")
        file = home.path(f"s{n:03}") / "events.jsonl"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"".join(chunks))
        os.utime(file, (n + 1, n + 1))
    return home


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 1, 37, 200, COUNT - 1])
def test_the_session_list_is_correct_after_a_kill_during_indexing(
    tmp_path: Path, at: int
) -> None:
    home = sessions(tmp_path / "data" / "sessions")

    for killed_at in (at, 25):  # killed while it indexes this session, then further on
        done = subprocess.run(
            [sys.executable, str(PROCESS), str(home.root), str(killed_at)],
            check=False,
            timeout=60,
        )
        assert done.returncode == -signal.SIGKILL

    notices = list[str]()
    cards = home.catalogue(notice=notices.append).cards()
    hits = home.catalogue(notice=notices.append).search("umbrella", COUNT * 9)
    assert notices == []
    assert [card.id for card in cards] == [f"s{n:03}" for n in reversed(range(COUNT))]
    assert {card.events for card in cards} == {21}
    assert len(hits) == COUNT * 3  # of each session the best three
    home.catalogue().rebuild()
    assert home.catalogue().cards() == cards
