"""Lists the files of a directory as they are found, for completion while typing.

ripgrep lists them if it is installed, otherwise `place.file_walk`; files that git ignores
are left out.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress

from refold import programs
from refold.programs import Programs

_LONGEST = 20.0  # seconds of listing


def file_names(directory: str) -> Iterator[str]:
    """Relative to the directory. Waits for a disk; raises `OSError`."""
    where = os.path.realpath(directory)
    if program := Programs(os.environ, (where,)).find("rg"):
        yield from _by_ripgrep(program, where)
    else:
        yield from _by_walking(where)


def _by_ripgrep(program: str, where: str) -> Iterator[str]:
    from refold.tools.find import excludes_input, ripgrep

    _, *options = ripgrep(where)
    text = excludes_input(where)
    until = time.monotonic() + _LONGEST
    with programs.start_bounded(
        [program, *options, "--files", "--null"], cwd=where,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True, env=programs.plain(os.environ),
    ) as running:  # fmt: skip
        assert running.stdin is not None  # both are pipes
        assert running.stdout is not None
        with suppress(BrokenPipeError), running.stdin as own:  # a pipe holds that much
            own.write(os.fsencode(text))
        reader, rest = running.stdout.fileno(), b""
        try:
            while time.monotonic() < until and (more := os.read(reader, 65_536)):
                *names, rest = (rest + more).split(b"\0")
                yield from map(os.fsdecode, names)
        finally:
            running.kill()


def _by_walking(where: str) -> Iterator[str]:
    from refold.place.file_walk import walk

    until = time.monotonic() + _LONGEST

    def on_step() -> None:
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.0005)  # a key that was pressed meanwhile comes first

    for path in walk(where, on_step):
        yield path[len(where) :].lstrip("/")
