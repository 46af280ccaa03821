"""Landlock: a Linux process gives up rights, and all that it starts does without them.

Only the system calls, and what a version of the kernel knows of them. They hold for
the thread that makes them, for good. Who gives up what is `sandbox`'s business.
See landlock(7) and linux/landlock.h.
"""

import os
import platform
import struct
from collections.abc import Callable, Sequence

from msgspec import Struct

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION = 1
_RULE_PATH = 1
_NO_NEW_PRIVS = 38

_WRITE_FILE = 1 << 1
_REMOVE = 1 << 4 | 1 << 5
_MAKE = 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_OF_FILES = _WRITE_FILE | _TRUNCATE
_TCP = 1 << 0 | 1 << 1  # bind, connect
_SCOPED = 1 << 0 | 1 << 1  # abstract sockets, signals


class GivenUp(Struct, frozen=True):
    """Writing anywhere but below `writable`, if that is not None; TCP; reaching others.

    `others`: sockets without a file and signals go no further than what we start.
    """

    writable: tuple[str, ...] | None = None
    tcp: bool = False
    others: bool = False


def version() -> int:
    """Of Landlock in this kernel; 0: there is none."""
    if platform.system() != "Linux":
        return 0
    try:
        return _call(_CREATE, None, 0, _VERSION)
    except OSError:
        return 0


def give_up(rights: GivenUp) -> None:
    """For this thread and all it starts from now on. Raises `OSError`."""
    known = version()
    files = 0 if rights.writable is None else _writing(known)
    tcp = _TCP if rights.tcp and known >= 4 else 0
    scoped = _SCOPED if rights.others and known >= 6 else 0
    if not (files or tcp or scoped):
        return
    size = 8 if known < 4 else 16 if known < 6 else 24
    rules = _call(_CREATE, struct.pack("=QQQ", files, tcp, scoped), size, 0)
    try:
        _allow(rules, rights.writable or (), files)
        _no_new_privileges()
        _call(_RESTRICT, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, paths: Sequence[str], rights: int) -> None:
    for path in paths:
        try:
            number = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # what is not there cannot be written
            continue
        try:
            held = rights if os.path.isdir(path) else rights & _OF_FILES
            _call(_ADD, rules, _RULE_PATH, struct.pack("=Qi", held, number), 0)
        finally:
            os.close(number)


def _writing(known: int) -> int:
    rights = _WRITE_FILE | _REMOVE | _MAKE
    if known >= 2:
        rights |= _REFER
    if known >= 3:
        rights |= _TRUNCATE
    return rights


def _call(number: int, *given: int | bytes | None) -> int:
    import ctypes

    wide = (ctypes.c_long(one) if isinstance(one, int) else one for one in given)
    libc = ctypes.CDLL(None, use_errno=True)
    return _done(int(libc.syscall(ctypes.c_long(number), *wide)), ctypes.get_errno)


def _no_new_privileges() -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    result = libc.prctl(_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero)
    _done(int(result), ctypes.get_errno)


def _done(result: int, why: Callable[[], int]) -> int:
    if result < 0:
        raise OSError(why(), f"Landlock: {os.strerror(why())}")
    return result
