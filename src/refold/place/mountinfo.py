"""What is mounted for a process, as the kernel lists it. See proc_pid_mountinfo(5)."""

import os
import re
from collections.abc import Iterator

from msgspec import Struct

_OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")  # how blanks are escaped


class Mount(Struct, frozen=True):
    number: int
    device: str  # "major:minor"
    inside: str  # the path on that device of what is mounted
    path: str
    writable: bool


def mounts(pid: int) -> Iterator[Mount]:
    """Mounts in order: of several at one path the last is visible. Raises `OSError`."""
    with open(f"/proc/{pid}/mountinfo", "rb", buffering=0) as file:
        text = os.fsdecode(file.readall())
    # Each command waits for this, so calls are avoided for most lines. Only "\n" ends a
    # line: a name may contain anything else.
    for line in text.split("\n")[:-1]:
        number, _, device, inside, path, options, _ = line.split(" ", 6)
        if "\\" in line:
            inside, path = _unescape(inside), _unescape(path)
        writable = "rw" in options.split(",")
        yield Mount(int(number), device, inside, path, writable)


def _unescape(path: str) -> str:
    return _OCTAL_ESCAPE.sub(lambda found: chr(int(found[1], 8)), path)
