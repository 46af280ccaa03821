"""Measures the time from `refold -r ID` to a prompt for a long session, and that of a new one.

Each start is a process of its own in a pseudo terminal, and the kinds of starts run in turn. The
long session has the same events as one turn and as many turns, because the view drops much of a
turn at its end.

Usage: python -m bench.resuming [-n 10] [--events 22000]
"""

import argparse
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import chain, count, islice
from pathlib import Path

import anyio
from msgspec.structs import replace

from bench import journal, runs, table
from refold.journal.events.kinds import (
    Entry,
    ModelAsked,
    SessionStarted,
    Stopped,
    TurnEnded,
    TurnStarted,
)
from refold.journal.journal_directory import JournalDirectory
from refold.views.screen.screen import screen_of

PROMPT = b"\x1b[?2004h"  # the line editor asks for marked pastes, and then waits
CTRL_D = b"\x04"
STEPS = 20  # model responses in each of the many turns
MAX_WAIT_SECONDS = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10, help="runs of each (10)")
    parser.add_argument("--events", type=int, default=22_000, help="of a session (22000)")
    chosen = parser.parse_args()
    report(chosen.n, chosen.events)


def report(times: int, events: int) -> None:
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as directory:
        work, home = Path(directory) / "work", Path(directory) / "home"
        work.mkdir()
        one = list(session(work, events))
        sessions = {
            "20260101-000001-0001": one,
            "20260101-000002-0002": list(split_into_turns(one)),
        }
        for name, entries in sessions.items():
            anyio.run(
                journal.write, JournalDirectory(home / "sessions").path(name), entries
            )
        blocks = len(screen_of(one).done)
        script = Path(directory) / "script.json"
        script.write_text('{"text": "Good morning."}', encoding="utf-8")
        bare = ("--script", str(script))
        commands = {
            "a new session": bare,
            "one turn": (*bare, "-r", "20260101-000001-0001"),
            f"turns of {STEPS} answers": (*bare, "-r", "20260101-000002-0002"),
        }
        took: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(times):
            for name, words in commands.items():
                took[name].append(seconds_to_prompt(words, work, home))
    title = f"to a prompt, {events} events, {blocks} blocks, {times} runs each, in turn"
    table.compare(title, took)


def seconds_to_prompt(words: Sequence[str], workspace: Path, home: Path) -> float:
    """Start refold, wait for its prompt, and leave. Return the seconds until the prompt."""
    place = {**os.environ, "REFOLD_HOME": str(home), "TERM": "xterm-256color"}
    program, (terminal, program_side) = (
        [sys.executable, "-m", "refold", *words],
        os.openpty(),
    )
    began = time.perf_counter()
    child = subprocess.Popen(
        program,
        cwd=workspace,
        env=place,
        stdin=program_side,
        stdout=program_side,
        stderr=program_side,
        process_group=0,
    )
    os.close(program_side)
    try:
        read_until(PROMPT, terminal)
        took = time.perf_counter() - began
        os.write(terminal, CTRL_D)
    except BaseException:
        child.kill()
        raise
    finally:
        runs.wait(child, MAX_WAIT_SECONDS)
        os.close(terminal)
    return took


def read_until(shown: bytes, terminal: int) -> None:
    data = b""
    while shown not in data:
        try:
            if not select.select([terminal], [], [], MAX_WAIT_SECONDS)[0]:
                raise TimeoutError
            data += os.read(terminal, 65_536)
        except OSError as error:  # late, or the program has exited
            missing = f"{shown!r} never came after {data[-500:]!r}"
            raise RuntimeError(missing) from error


def session(workspace: Path, events: int) -> Iterator[Entry]:
    """Yield the entries of a session in this directory, whose only turn has ended."""
    story = journal.long_turn()
    next(story)
    result = chain([SessionStarted(str(workspace), "0.1.0")], islice(story, events - 3))
    seq = 0
    for seq, event in enumerate(result, start=1):
        yield Entry(seq, event, at=1.8e9 + seq, epoch=1, by="agent")
    yield Entry(seq + 1, Stopped("enough"), at=1.8e9 + seq)
    yield Entry(seq + 2, TurnEnded("interrupted"), at=1.8e9 + seq)


def split_into_turns(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the entries with a new turn after every `STEPS` answers."""
    seq, steps = count(1), 0
    for entry in entries:
        steps += isinstance(entry.event, ModelAsked)
        if isinstance(entry.event, ModelAsked) and steps % STEPS == 0:
            yield replace(entry, seq=next(seq), event=TurnEnded("answered"))
            yield replace(entry, seq=next(seq), event=TurnStarted(2, "continue"))
        yield replace(entry, seq=next(seq))


if __name__ == "__main__":
    main()
