"""Output to a slow reader, and to one that has closed the pipe."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import pytest
from anyio import to_thread

from refold.headless.output import StdoutWriter

MUCH = "x" * 1_000_000  # more than a pipe holds


@contextmanager
def a_pipe_as_stdout(monkeypatch: pytest.MonkeyPatch) -> Generator[int]:
    """Make stdout a pipe, and yield its other end. A fixture would not do: pytest replaces
    stdout between the two.
    """
    reading, writing = os.pipe()
    with (
        os.fdopen(writing, "w") as out,
        os.fdopen(reading, "rb") as other,
        monkeypatch.context() as patch,
    ):
        patch.setattr(sys, "stdout", out)
        yield other.fileno()


def test_stdout_writer_does_not_treat_a_slow_reader_as_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run_story(reading: int) -> tuple[bool, bool, int]:
        outlet, read, meanwhile = StdoutWriter(), 0, True
        async with anyio.create_task_group() as group:
            group.start_soon(outlet.write, MUCH)
            read += len(await to_thread.run_sync(os.read, reading, 1))
            meanwhile = outlet.reader_left
            while read < len(MUCH):
                read += len(await to_thread.run_sync(os.read, reading, 65_536))
        return meanwhile, outlet.reader_left, read

    with a_pipe_as_stdout(monkeypatch) as reading:
        assert anyio.run(run_story, reading) == (False, False, len(MUCH))


def test_stdout_writer_writes_nothing_after_a_cancelled_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run_story(reading: int) -> tuple[bool, bool]:
        outlet, read = StdoutWriter(), 0
        async with anyio.create_task_group() as group:
            group.start_soon(outlet.write, MUCH)
            read = len(await to_thread.run_sync(os.read, reading, 1))
            group.cancel_scope.cancel()
        has_left, more = outlet.reader_left, await outlet.write("more")
        while read < len(MUCH):  # so that the thread that writes it comes to its end
            read += len(os.read(reading, 65_536))
        return has_left, more

    with a_pipe_as_stdout(monkeypatch) as reading:
        assert anyio.run(run_story, reading) == (True, False)
