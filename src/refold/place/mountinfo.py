"""Lists the mounts that a process sees, as the kernel reports them. See proc_pid_mountinfo(5)."""

import os
import re
from collections.abc import Iterator

from msgspec import Struct

_OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")  # the escape of blanks


class Mount(Struct, frozen=True):
    number: int
    device: str  # "major:minor"
    inside: str  # the path, on that device, of the mounted directory
    path: str
    writable: bool


def mounts(pid: int) -> Iterator[Mount]:
    """Yield the mounts that the process `pid` sees, in their order. Raises `OSError`.

    If several are at the same path, the last one is visible.
    """
    with open(f"/proc/{pid}/mountinfo", "rb", buffering=0) as file:
        text = os.fsdecode(file.readall())
    # Each command waits for this loop, so most lines are skipped without a call. Only "\n"
    # ends a line: a name may contain any other character.
    for line in text.split("\n")[:-1]:
        number, _, device, inside, path, options, _ = line.split(" ", 6)
        if "\\" in line:
            inside, path = _unescape(inside), _unescape(path)
        writable = "rw" in options.split(",")
        yield Mount(int(number), device, inside, path, writable)


def _unescape(path: str) -> str:
    return _OCTAL_ESCAPE.sub(lambda match: chr(int(match[1], 8)), path)
