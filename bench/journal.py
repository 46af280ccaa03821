"""Measures the journal alone: folding, opening a long session, and appending.

Usage: python -m bench.journal [--open 10000] [--fold 60000]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import anyio
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
    TurnStarted,
)
from refold.journal.journal_directory import JournalDirectory
from refold.journal.state import fold
from refold.journal.store.file import FileStore
from refold.session.recorder import Recorder
from refold.values.messages import Message, Text, ToolCall
from refold.values.usage import Usage

APPENDS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--open", type=int, default=10_000, help="events to open (10000)")
    parser.add_argument("--fold", type=int, default=60_000, help="events to fold (60000)")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        open_one(chosen.child)
    else:
        report(chosen.open, chosen.fold)


def report(opened: int, folded: int) -> None:
    many = list(entries(folded))
    began = time.perf_counter()
    fold.fold(many)
    took = time.perf_counter() - began
    rows = [(f"fold {folded} events", table.ms(took), f"{took / folded * 1e6:.2f} µs each")]
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as directory:
        sessions = JournalDirectory(Path(directory))
        for count in dict.fromkeys((opened, folded)):
            path = sessions.path(f"s{count}")
            anyio.run(write, path, many[:count])
            for state in ("never opened", "from the folded view"):
                result = subprocess.run(
                    [sys.executable, "-m", "bench.journal", "--child", str(path)],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout.split()
                row = (
                    f"open {count} events, {state}",
                    f"{result[0]} ms",
                    f"process {result[1]} MB",
                )
                rows.append(row)
                anyio.run(keep_view, path)
    table.show("journal", ["took", ""], rows)
    measure_syncs()


def open_one(directory: Path) -> None:
    """Open a session in this process, and print its milliseconds and megabytes.

    The process does nothing else, so its memory is that of one open session.
    """

    async def time_opening() -> float:
        began = time.perf_counter()
        view = await recorder(directory).fold_without_lock()
        assert view.seq
        return time.perf_counter() - began

    took = anyio.run(time_opening)  # starting an event loop is not part of it
    # `ru_maxrss` would include the memory of the process from which this one was forked.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    largest = int(status.partition("VmHWM:")[2].split()[0]) // 1024
    print(f"{took * 1000:.1f} {largest}")


def recorder(directory: Path) -> Recorder:
    return Recorder(JournalDirectory(directory.parent).store(directory.name))


async def keep_view(directory: Path) -> None:
    """Open and close the session as its writer, who keeps a folded view beside it."""
    record = recorder(directory)
    await record.open()
    await record.close()


async def write(directory: Path, entries: list[Entry]) -> None:
    store, head, lines = FileStore(directory), codec.Head(), list[bytes]()
    lease = await store.lease()
    for entry in entries:
        line, head = codec.encode(entry, head)
        lines.append(line)
    await store.append(lines, expect=0, epoch=lease.epoch, head=(head.seq, head.h))
    await store.keep()
    await store.release()


def measure_syncs() -> None:
    """Append and keep events, in turn with bare writes and fdatasyncs of the same lines."""
    with tempfile.TemporaryDirectory(prefix="refold-bench-", dir=Path.cwd()) as directory:
        ours, bare = anyio.run(measure_side_by_side, Path(directory))
    table.show(
        f"append one event and keep it, {APPENDS} of each, in turn",
        ["median", "min", "above the bare disk"],
        [
            ("write + fdatasync", table.ms(median(bare)), table.ms(min(bare)), ""),
            (
                "journal",
                table.ms(median(ours)),
                table.ms(min(ours)),
                table.ms(median(ours) - median(bare)),
            ),
        ],
    )


async def measure_side_by_side(directory: Path) -> tuple[list[float], list[float]]:
    store, head = FileStore(directory / "journal"), codec.Head()
    lease = await store.lease()
    ours, bare = list[float](), list[float]()
    file = os.open(directory / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for entry in entries(APPENDS):
        began = time.perf_counter()
        line, after = codec.encode(entry, head)
        await store.append(
            [line], expect=head.seq, epoch=lease.epoch, head=(after.seq, after.h)
        )
        await store.keep()
        ours.append(time.perf_counter() - began)
        head = after
        bare.append(time_call(lambda line=line: write_and_sync(file, line)))
    os.close(file)
    await store.release()
    return ours, bare


def write_and_sync(file: int, line: bytes) -> None:
    os.write(file, line + b"\n")
    os.fdatasync(file)


def time_call(function: Callable[[], None]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def entries(count: int) -> Iterator[Entry]:
    """Yield the entries of a session of one long turn, as an agent with a shell writes it."""
    for seq, (_, event) in enumerate(zip(range(count), long_turn(), strict=False), start=1):
        yield Entry(
            seq, event, at=1.8e9 + seq, epoch=1, turn=2 if seq > 2 else 0, by="agent"
        )


def long_turn() -> Iterator[Event]:
    yield SessionStarted("/home/somebody/project", "0.1.0")
    yield Said("Run the steps until there are no more.")
    yield TurnStarted(2)
    yield SystemPromptSet("You are a coding agent.", (), "openai-chat/mock-model", 128_000)
    yield Delivered((2,))
    step = 0
    while True:
        step += 1
        call = ToolCall(f"c{step}", "bash", Raw(b'{"command":"echo step"}'))
        yield ModelAsked()
        yield ModelAnswered(
            Message("assistant", (Text("I take the next step of the task now."), call)),
            Usage(),
            "calls",
            "mock-model",
        )
        yield Judged(call.id, "allow", "bypass")
        yield Started(call.id)
        yield Ended(call.id, "done", f"step-{step}\n" + "a line of output\n" * 20)


if __name__ == "__main__":
    main()
