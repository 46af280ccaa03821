"""Measures the full screen beside those of codex and claude, in tmux, with the same responses.

`--peers` takes codex and claude from .peers/ (scripts/peers). All programs talk to one server on
loopback, which writes a scripted response in pieces. A long session of refold is measured, too.

Usage: python -m bench.full_screen [-n 5] [--blocks 10000] [--letters 23000] [--peers]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from statistics import median

import anyio

from bench import journal, runs, table
from bench.resuming import session, split_into_turns
from bench.tmux_screen import TICKS, Screen
from refold.journal.events.kinds import Entry
from refold.journal.journal_directory import JournalDirectory
from refold.views.screen.screen import screen_of

KEYS, PAUSE = 100, 0.05  # key presses, and seconds between two
IDLE = 10.0  # seconds in which nothing is done
# Letters that no response contains: Cyrillic and Armenian ones.
LETTERS = [*map(chr, range(0x410, 0x450)), *map(chr, range(0x531, 0x557))]
END = "THEEND"  # a last word, which nothing else contains
LONG = "20260101-000001-0001"
TARGETS = ("", "< 50 ms", "< 50 ms", "", "0", "0", "< 150 MB")
HEADS = (
    "first paint", "key, idle (p99)", "key, writing (p99)", "written", "CPU, idle", "written, idle",
    "memory",
)  # fmt: skip
Environ = Mapping[str, str]


class Program:
    """A program to measure. `ready` is text on its first screen. `prepare` writes its settings.

    `prepare` gets home, workspace and port, and returns environment variables.
    """

    def __init__(
        self, name: str, command: Sequence[str], ready: str,
        prepare: Callable[[Path, Path, int], Environ],
    ) -> None:  # fmt: skip
        self.name, self.command, self.ready, self.prepare = name, command, ready, prepare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=5, help="starts of each (5)")
    parser.add_argument(
        "--blocks", type=int, default=10_000, help="of the long session (10000)"
    )
    parser.add_argument("--letters", type=int, default=23_000, help="of a response (23000)")
    parser.add_argument("--peers", action="store_true", help="beside codex and claude, too")
    chosen = parser.parse_args()
    report(chosen.n, chosen.blocks, chosen.letters, chosen.peers)


def report(times: int, blocks: int, letters: int, peers: bool = False) -> None:
    if shutil.which("tmux") is None:
        print("\nthe full screen: left out, there is no tmux here")
        return
    rows = list[tuple[str, ...]]()
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as directory:
        here = Path(directory)
        with _serve(here, letters) as port:
            for program in _programs(here, blocks, peers=peers):
                rows.append((program.name, *_measure(program, here, port, times)))
    table.show(
        f"full screens in tmux, {letters} letters in a response, {times} starts (median)",
        HEADS, [*rows, ("target for refold", *TARGETS)],
    )  # fmt: skip


def _programs(directory: Path, blocks: int, *, peers: bool) -> Iterator[Program]:
    yield Program(
        "echo of the tty", ("sh", "-c", "echo ready; exec cat"), "ready", _plain_shell
    )
    refold = (sys.executable, "-m", "refold", "tui", "-m", "anthropic/mock-model")
    yield Program("refold tui", refold, "? keys", _refold)
    long_session = _long_session(directory, blocks)
    yield Program(
        f"refold, {long_session} blocks", (*refold, "-r", LONG), "answered by", _refold
    )
    claude = runs.ROOT / ".peers/claude/claude_agent_sdk/_bundled/claude"
    codex = runs.ROOT / ".peers/codex/node_modules/.bin/codex"
    if peers and codex.exists():
        yield Program("codex", (str(codex),), "? for shortcuts", _codex)
    if peers and claude.exists():
        yield Program("claude", (str(claude),), "(shift+tab to cycle)", _claude)


def _measure(program: Program, directory: Path, port: int, times: int) -> Iterator[str]:
    starts = list[float]()
    for _ in range(times - 1):
        screen, took = _start(program, directory, port)
        starts.append(took)
        screen.close()
    screen, took = _start(program, directory, port)
    starts.append(took)
    try:
        time.sleep(2)  # for the work that a program does after the first paint
        idle = list(_time_keys(screen))
        ticks, number = screen.ticks(), screen.byte_count
        time.sleep(IDLE)
        ticks, quiet = screen.ticks() - ticks, screen.byte_count - number
        if program.prepare is _plain_shell:
            yield from ("", _key_times(idle), *[""] * (len(HEADS) - 2))
            return
        number = screen.byte_count
        screen.until(END, _send_message(screen))
        time.sleep(1)
        number = screen.byte_count - number
        busy = list(_time_keys_while_streaming(screen))
        yield table.ms(median(starts))
        yield _key_times(idle)
        yield _key_times(busy)
        yield f"{number / 1000:.0f} kB"
        yield f"{ticks / TICKS / IDLE:.1%}"
        yield f"{quiet} B"
        yield f"{screen.megabytes():.0f} MB"
    finally:
        screen.close()


def _start(program: Program, directory: Path, port: int) -> tuple[Screen, float]:
    home, work = directory / "home", directory / "work"
    home.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    environ = {
        "PATH": os.environ["PATH"], "HOME": str(home), "TERM": "tmux-256color", "LANG": "C.UTF-8",
        **program.prepare(home, work, port),
    }  # fmt: skip
    screen = Screen(program.command, environ, work)
    began = screen.start()
    return screen, screen.until(program.ready) - began


def _send_message(screen: Screen) -> int:
    """Ask for a response. Return the mark after which the output belongs to it."""
    screen.type("go")
    time.sleep(0.5)
    mark = screen.mark
    screen.keys("Enter")
    return mark


def _time_keys(screen: Screen) -> Iterator[float]:
    """Press keys, each with another letter. Yield the time from each key until it is painted."""
    for letter in LETTERS[:KEYS]:
        mark, began = screen.mark, screen.type(letter)
        yield screen.until(letter, mark) - began
        time.sleep(PAUSE)
    screen.keys("C-u")
    time.sleep(4 * PAUSE)


def _time_keys_while_streaming(screen: Screen) -> Iterator[float]:
    mark = _send_message(screen)
    screen.until("Part 1", mark)
    yield from _time_keys(screen)
    screen.until(END, mark)


def _key_times(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    return (
        f"{table.ms(median(ordered))} ({table.ms(ordered[ceil(len(ordered) * 0.99) - 1])})"
    )


def _long_session(directory: Path, blocks: int) -> int:
    """Store a session with at least `blocks` blocks. Return how many it has."""
    work = directory / "work"
    work.mkdir(exist_ok=True)
    events, count, entries = blocks * 2, 0, list[Entry]()
    while count < blocks:
        entries = list(split_into_turns(list(session(work, events))))
        count = len(screen_of(entries).done)
        events = events * 5 // 4
    path = JournalDirectory(directory / "home/refold/sessions").path(LONG)
    anyio.run(journal.write, path, entries)
    return count


def _plain_shell(home: Path, workspace: Path, port: int) -> Environ:
    return {}


def _refold(home: Path, workspace: Path, port: int) -> Environ:
    return {
        "REFOLD_HOME": str(home / "refold"), "ANTHROPIC_API_KEY": "sk-ant-mock",
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}", "REFOLD_BUDGET__TOKENS": "0", "REFOLD_BUDGET__DOLLARS": "0",
        "REFOLD_MEMORY": "0",
    }  # fmt: skip


def _codex(home: Path, workspace: Path, port: int) -> Environ:
    settings = f"""
model = "gpt-6.1-sol"
model_provider = "mock"
check_for_update_on_startup = false
[model_providers.mock]
name = "mock"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
env_key = "MOCK_KEY"
[projects."{workspace}"]
trust_level = "trusted"
[analytics]
enabled = false
"""
    (home / "config.toml").write_text(settings, encoding="utf-8")
    return {"CODEX_HOME": str(home), "MOCK_KEY": "sk-mock"}


def _claude(home: Path, workspace: Path, port: int) -> Environ:
    settings = {
        "hasCompletedOnboarding": True, "theme": "dark", "numStartups": 5,
        "customApiKeyResponses": {"approved": ["sk-ant-mock"], "rejected": []},
        "projects": {str(workspace): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }  # fmt: skip
    (home / ".claude.json").write_text(json.dumps(settings), encoding="utf-8")
    return {
        "CLAUDE_CONFIG_DIR": str(home), "ANTHROPIC_API_KEY": "sk-ant-mock",
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}", "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
    }  # fmt: skip


@contextmanager
def _serve(directory: Path, letters: int) -> Generator[int]:
    port = directory / "port"
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.streaming_server", str(directory), str(letters), END],
        cwd=runs.ROOT,
    )
    try:
        while not port.exists():
            if server.poll() is not None:
                raise RuntimeError("the streaming server did not start")
            time.sleep(0.005)
        yield int(port.read_text())
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
