"""Measures a slow connection to a workspace elsewhere: round trips of each step, and keys.

The place is a shell on this machine behind `relay`, which delays both directions. The times of the
same steps without the delay are subtracted, so only the time for the connection remains.

Usage: python -m bench.places [--delay 0.08] [--times 5]
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import anyio

from bench import table
from bench.relay import relay_argv
from bench.tmux_screen import Screen
from refold import Agent
from refold.client.elsewhere import stand_in_directory
from refold.provider.port import Delta, Request
from refold.testing.providers import ScriptedProvider

_LETTERS = "qwertyuiopasdfghjklzxcvbnm"
_KEY_PAUSE_SECONDS = 0.05
_TARGET_ROUND_TRIPS = 2
_TARGET_GLOB_ROUND_TRIPS = 1
_STEPS: Mapping[str, tuple[str, dict[str, object]]] = {
    "glob": ("glob", {"pattern": "*{n}.txt"}),
    "grep": ("grep", {"pattern": "hello|{n}"}),
    "read_file": ("read_file", {"path": "a{n}.txt"}),
    "edit_file": ("edit_file", {"path": "a{n}.txt", "old": "hello", "new": "bye"}),
    "bash": ("bash", {"command": "true {n}"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0.08, help="seconds each way (0.08)")
    parser.add_argument("--times", type=int, default=5, help="calls of each kind (5)")
    chosen = parser.parse_args()
    report(chosen.delay, chosen.times)


def report(delay: float, times: int) -> None:
    near, far = (_step_seconds(seconds, times) for seconds in (0.0, delay))
    rows = list[tuple[str, ...]]()
    for name in _STEPS:
        added = median(far[name]) - median(near[name])
        target = _TARGET_GLOB_ROUND_TRIPS if name == "glob" else _TARGET_ROUND_TRIPS
        rows.append((
            name, table.ms(median(near[name])), table.ms(median(far[name])),
            f"{added / (2 * delay):.1f}" if delay else "", f"≤ {target}",
        ))  # fmt: skip
    table.show(
        f"steps elsewhere, {delay * 1000:.0f} ms each way, {times} of each (median)",
        ["without", "with delay", "round trips", "target"], rows,
    )  # fmt: skip
    keys = [
        (f"{seconds * 1000:.0f} ms each way", *_key_figures(seconds))
        for seconds in (0.0, delay)
    ]
    table.show("from a key to its letter", ["median", "max"], keys)


class _ClockedProvider(ScriptedProvider):
    """Records the time of each request: a step lasts from one request to the next."""

    def __init__(self, *lines: str | list[tuple[str, str]]) -> None:
        super().__init__(*lines)
        self.asked = list[float]()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.asked.append(time.perf_counter())
        async for delta in super().stream(request):
            yield delta


def _step_seconds(delay: float, times: int) -> Mapping[str, list[float]]:
    calls = [
        (name, tool, json.dumps(arguments).replace("{n}", str(n)))
        for name, (tool, arguments) in _STEPS.items()
        for n in range(times)
    ]
    # The first step also sets up the connection, so it is not measured.
    first = ("read_file", json.dumps({"path": "a0.txt"}))
    provider = _ClockedProvider([first], *([call[1:]] for call in calls), "Done.")
    with _place(delay, times) as address:
        agent = Agent(
            provider=provider, mode="bypass", tools=(), builtin=True,
            directory=stand_in_directory(address),
        )  # fmt: skip

        async def run() -> None:
            async with agent.session() as session:
                await session.run("Go.")

        anyio.run(run)
    seconds = dict[str, list[float]]()
    for (name, *_), begin, end in zip(
        calls, provider.asked[1:], provider.asked[2:], strict=False
    ):
        seconds.setdefault(name, []).append(end - begin)
    return seconds


def _key_figures(delay: float) -> tuple[str, str]:
    with _place(delay, 1) as address:
        script = Path(os.environ["HOME"], "script")
        script.touch()
        command = (
            sys.executable, "-m", "refold", "tui", "--workspace", address,
            "--script", str(script),
        )  # fmt: skip
        environ = {**os.environ, "TERM": "tmux-256color", "LANG": "C.UTF-8"}
        screen = Screen(command, environ, Path(os.environ["HOME"]))
        screen.start()
        try:
            screen.until("? keys")
            seconds = list(_time_keys(screen))
        finally:
            screen.close()
    return table.ms(median(seconds)), table.ms(max(seconds))


def _time_keys(screen: Screen) -> Iterator[float]:
    typed = ""
    for letter in _LETTERS:
        mark, began = screen.mark, screen.type(letter)
        typed += letter
        yield screen.until(letter, mark) - began
        time.sleep(_KEY_PAUSE_SECONDS)


@contextmanager
def _place(delay: float, files: int) -> Generator[str]:
    """Yield the address of a place with this number of files, in a home of its own."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(
        prefix="refold-bench-",
        ignore_cleanup_errors=True,  # a process that ends later may write to it
    ) as folder:
        root = Path(folder, "work")
        root.mkdir()
        for n in range(files):
            (root / f"a{n}.txt").write_text("hello\n")
        os.environ |= {"HOME": folder, "REFOLD_HOME": f"{folder}/refold",
                       "PYTHONPATH": str(Path(__file__).parents[1])}  # fmt: skip
        argv = relay_argv(delay, Path(folder, "pid"), "/bin/sh")
        try:
            yield f"cmd:{' '.join(argv)} # {root}"
        finally:
            os.environ.clear()
            os.environ.update(before)


if __name__ == "__main__":
    main()
