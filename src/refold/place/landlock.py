"""Calls Landlock, with which a Linux thread permanently gives up rights.

The rights are lost for the thread and everything that it starts. This module knows the system
calls, and what each version of Landlock can enforce. `sandbox` decides who gives up which
rights. See landlock(7) and linux/landlock.h.
"""

import os
import platform
import struct
from collections.abc import Sequence
from functools import cache

from msgspec import Struct

from refold.place.syscalls import forbid_new_privileges, system_call

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # numbers of system calls
_GET_VERSION = 1
_RULE_PATH = 1

_WRITE_FILE = 1 << 1
_REMOVE_RIGHTS = 1 << 4 | 1 << 5
_MAKE_RIGHTS = 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_FILE_RIGHTS = _WRITE_FILE | _TRUNCATE
# The versions in which these rights, and the fields for them, were added.
_REFER_VERSION, _TRUNCATE_VERSION, _TCP_VERSION, _SCOPES_VERSION = 2, 3, 4, 6
_TCP_RIGHTS = 1 << 0 | 1 << 1  # bind, connect
_SCOPES = 1 << 0 | 1 << 1  # abstract sockets, signals


class Restrictions(Struct, frozen=True):
    """The rights that a thread gives up.

    The thread can then write only to the paths in `writable`, unless `writable` is None. With
    `tcp` it cannot use TCP. With `others` it can neither connect to abstract sockets of
    processes that it did not start, nor send them signals.
    """

    writable: tuple[str, ...] | None = None
    tcp: bool = False
    others: bool = False


@cache
def landlock_version() -> int:
    """Return the version of Landlock in this kernel; 0 if the kernel has none."""
    if platform.system() != "Linux":
        return 0
    try:
        # Without a ruleset, this only asks for the version.
        return system_call(_CREATE, None, 0, _GET_VERSION)
    except OSError:
        return 0


def restrict_thread(rights: Restrictions) -> None:
    """Take rights from this thread and everything that it starts from now on.

    What this kernel cannot enforce is left out. Raises `OSError`.
    """
    version = landlock_version()
    file_rights = 0 if rights.writable is None else _write_rights(version)
    tcp_rights = _TCP_RIGHTS if rights.tcp and version >= _TCP_VERSION else 0
    scopes = _SCOPES if rights.others and version >= _SCOPES_VERSION else 0
    if not (file_rights or tcp_rights or scopes):
        return
    ruleset = struct.pack("=QQQ", file_rights, tcp_rights, scopes)
    rules = system_call(_CREATE, ruleset, _ruleset_bytes(version), 0)
    try:
        _allow(rules, rights.writable or (), file_rights)
        forbid_new_privileges()
        system_call(_RESTRICT, rules, 0)
    finally:
        os.close(rules)


def _ruleset_bytes(version: int) -> int:
    """Return the size of the ruleset structure in a version of Landlock."""
    if version < _TCP_VERSION:
        return 8
    if version < _SCOPES_VERSION:
        return 16
    return 24


def _allow(rules: int, paths: Sequence[str], rights: int) -> None:
    """Add to the ruleset `rules` that writing below each of `paths` is allowed.

    Missing paths are left out. `rights` are the rights that the thread gives up elsewhere.
    """
    for path in paths:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # a missing path cannot be written to
            continue
        try:
            path_rights = rights if os.path.isdir(path) else rights & _FILE_RIGHTS
            rule = struct.pack("=Qi", path_rights, descriptor)
            system_call(_ADD, rules, _RULE_PATH, rule, 0)
        finally:
            os.close(descriptor)


def _write_rights(version: int) -> int:
    """Return all rights to change files that a version of Landlock can take away."""
    rights = _WRITE_FILE | _REMOVE_RIGHTS | _MAKE_RIGHTS
    if version >= _REFER_VERSION:
        rights |= _REFER
    if version >= _TRUNCATE_VERSION:
        rights |= _TRUNCATE
    return rights
