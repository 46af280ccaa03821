"""What is mounted for a process, as the kernel lists it. See proc_pid_mountinfo(5)."""

import os
import re
from collections.abc import Iterator

from msgspec import Struct

_OCTAL = re.compile(r"\\([0-7]{3})")  # how blanks are written


class Mounted(Struct, frozen=True):
    number: int
    device: str  # "major:minor"
    inside: str  # the path on that device of what is mounted
    path: str
    writable: bool


def mounts(pid: int) -> Iterator[Mounted]:
    """In their order: of several at one path the last is seen. Raises `OSError`."""
    with open(f"/proc/{pid}/mountinfo", "rb") as file:
        for line in file:  # only a new line ends one: a name may hold anything else
            number, _, device, inside, path, options, *_ = os.fsdecode(line).split(" ", 6)
            writable = "rw" in options.split(",")
            yield Mounted(int(number), device, _plain(inside), _plain(path), writable)


def _plain(path: str) -> str:
    if "\\" not in path:
        return path
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), path)
