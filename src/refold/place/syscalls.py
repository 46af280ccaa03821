"""System calls of Linux that Python has no function for.

`landlock`, `openat`, `socket_guard` and `stopped_call` use them. See syscall(2).
"""

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import CDLL

_NO_NEW_PRIVS = 38  # PR_SET_NO_NEW_PRIVS


def system_call(number: int, *arguments: int | bytes | None) -> int:
    """Make the system call `number`. Bytes are passed by address. Raises `OSError`."""
    import ctypes

    wide_arguments = (
        ctypes.c_long(argument) if isinstance(argument, int) else argument
        for argument in arguments
    )
    result = int(_libc().syscall(ctypes.c_long(number), *wide_arguments))
    if result < 0:
        raise _os_error()
    return result


def forbid_new_privileges() -> None:
    """No program that this thread starts gets more rights than it. Raises `OSError`."""
    import ctypes

    zero = ctypes.c_ulong(0)
    if _libc().prctl(_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero):
        raise _os_error()


def connect(descriptor: int, address: bytes) -> None:
    """Connect a socket to an address of any family, as it is in memory. Raises `OSError`."""
    if _libc().connect(descriptor, address, len(address)):
        raise _os_error()


def shut_down(descriptor: int) -> None:
    """Shut down a socket, both ways. Calls that wait for its connection return."""
    _libc().shutdown(descriptor, 2)


@cache
def _libc() -> "CDLL":
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _os_error() -> OSError:
    import ctypes

    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
