"""Measures how long it takes to index, list, search and resume thousands of sessions.

Usage: python -m bench.sessions [--sessions 5000] [--steps 12] [--runs 5]
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from msgspec import Raw

from bench import table
from refold.journal.events import codec
from refold.journal.events.kinds import (
    Delivered,
    Ended,
    Entry,
    Event,
    Judged,
    ModelAnswered,
    ModelAsked,
    Said,
    SessionStarted,
    Started,
    SystemPromptSet,
    TurnEnded,
    TurnStarted,
)
from refold.journal.journal_directory import JournalDirectory
from refold.values.messages import Message, Text, ToolCall
from refold.values.usage import Usage

DIRECTORIES = 40
RARE = "quetzalcoatl"  # one session of a hundred has it
QUERIES = (
    "the journal",
    "quetz*",
    '"read on from"',
    "src/refold/journal/events/codec.py",
    "日志",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=5_000, help="how many (5000)")
    parser.add_argument("--steps", type=int, default=12, help="calls in each (12)")
    parser.add_argument("--runs", type=int, default=5, help="of each command (5)")
    chosen = parser.parse_args()
    report(chosen.sessions, chosen.steps, chosen.runs)


def report(count: int, steps: int, runs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as directory:
        home = JournalDirectory(Path(directory) / "home" / "sessions")
        number = make_journals(home, count, steps, Path(directory) / "work")
        rows = list(measure_build(home, count, number))
        table.show(f"a catalogue of {count} sessions", ["took", ""], rows)
        table.show(
            "asked within a process", ["median", "hits"], list(measure_queries(home, runs))
        )
        oldest = Path(directory) / "work" / "oldest"
        oldest.mkdir(parents=True)
        table.show(
            "whole commands, beside one that does nothing",
            ["median", "beside --version"],
            list(commands(home, runs, oldest)),
        )


def make_journals(home: JournalDirectory, count: int, steps: int, workspace: Path) -> int:
    """Make the journals of `count` sessions. Return the sum of their sizes in bytes."""
    chance, result = random.Random(7), 0
    paragraphs = prose()
    for n in range(count):
        name = f"20260101-{n:06d}-{n % 9973:04d}"
        directory = workspace / ("oldest" if n == 0 else f"project-{n % DIRECTORIES}")
        lines, head = list[bytes](), codec.Head()
        for event in story(chance, paragraphs, str(directory), steps, n):
            line, head = codec.encode(Entry(head.seq + 1, event, at=1.7e9 + n), head)
            lines.append(line + b"\n")
        path = home.path(name)
        path.mkdir(parents=True, mode=0o700)
        file = path / "events.jsonl"
        file.write_bytes(b"".join(lines))
        os.utime(file, (1.7e9 + n, 1.7e9 + n))
        result += sum(map(len, lines))
    return result


def prose() -> Sequence[str]:
    """Return paragraphs of refold's documentation, with words that people and models use."""
    docs = Path(__file__).parents[1] / "docs"
    texts = [page.read_text(encoding="utf-8") for page in sorted(docs.glob("*/*.md"))]
    return [part for text in texts for part in text.split("\n\n") if len(part) > 60]


def story(
    chance: random.Random, paragraphs: Sequence[str], directory: str, steps: int, n: int
) -> Iterator[Event]:
    rare = f" {RARE} 的日志" if n % 100 == 0 else ""
    yield SessionStarted(directory, "0.1.0", f"s{n}")
    yield Said(chance.choice(paragraphs)[:300] + rare)
    yield TurnStarted(2)
    yield SystemPromptSet(
        "You are a coding agent. " * 200, (), "openai-chat/mock-model", 128_000
    )
    yield Delivered((2,))
    for step in range(steps):
        call = ToolCall(f"c{step}", "bash", Raw(b'{"command":"pytest -q tests/unit"}'))
        yield ModelAsked()
        text = Text(chance.choice(paragraphs)[:600])
        usage = Usage(fresh=900 + step, output=80)
        yield ModelAnswered(
            Message("assistant", (text, call)), usage, "calls", "mock-model", cost=0.001
        )
        yield Judged(call.id, "allow", "bypass")
        yield Started(call.id)
        yield Ended(call.id, "done", chance.choice(paragraphs) + "\na line of output" * 20)
    yield ModelAsked()
    yield ModelAnswered(Message("assistant", (Text("Done."),)), Usage(output=3), "end")
    yield TurnEnded("answered")


def measure_build(
    home: JournalDirectory, count: int, written: int
) -> Iterator[tuple[str, str, str]]:
    rebuild = home.catalogue().rebuild()
    text = table.ms(rebuild.seconds / count)
    size = f"{rebuild.bytes / 1e6:.0f} MB for {written / 1e6:.0f} MB of journals"
    yield "build it", f"{rebuild.seconds:.2f} s", f"{text} each, {size}"
    half = count // 2
    began = time.perf_counter()
    for session in list(home.sessions())[:half]:
        events = home.path(session.id) / "events.jsonl"
        os.utime(events, (1.8e9, session.changed))
        with events.open("ab") as file:
            file.write(b"half a line")
    began = time.perf_counter()
    home.catalogue().freshen()
    took = time.perf_counter() - began
    yield f"look into {half} that changed", f"{took:.2f} s", f"{table.ms(took / half)} each"
    yield "nothing has changed", table.ms(time_call(home.catalogue().freshen)), ""


def measure_queries(home: JournalDirectory, runs: int) -> Iterator[tuple[str, str, object]]:
    took = [time_call(home.catalogue().cards) for _ in range(runs)]
    yield "list all", table.ms(median(took)), len(home.catalogue().cards())
    for query in QUERIES:
        hits = home.catalogue().search(query, 20)
        took = [
            time_call(lambda q=query: home.catalogue().search(q, 20)) for _ in range(runs)
        ]
        yield f"search {query}", table.ms(median(took)), len(hits)


def commands(
    home: JournalDirectory, runs: int, oldest: Path
) -> Iterator[tuple[str, str, str]]:
    bare = time_command(home, runs, Path.cwd(), "--version")
    yield "refold --version", table.ms(bare), "×1.00"
    for words in (
        ("sessions", "list", "--all"),
        ("sessions", "list", "--all", "--json"),
        ("sessions", "list", "--all", "--limit", "20"),
        ("sessions", "search", "--all", "the journal"),
        ("context", "--json"),  # of the newest session of this directory: the oldest of all
    ):
        took = time_command(home, runs, oldest, *words)
        yield f"refold {' '.join(words)}", table.ms(took), table.times(took, bare)


def time_command(home: JournalDirectory, runs: int, directory: Path, *text: str) -> float:
    place = {**os.environ, "REFOLD_HOME": str(home.root.parent)}

    def once() -> None:
        subprocess.run(
            [sys.executable, "-m", "refold", *text],
            cwd=directory,
            env=place,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    once()
    return median(time_call(once) for _ in range(runs))


def time_call(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
