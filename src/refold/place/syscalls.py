"""Makes Linux system calls for which Python has no function. See syscall(2)."""

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import CDLL

_NO_NEW_PRIVS = 38  # PR_SET_NO_NEW_PRIVS


def system_call(number: int, *arguments: int | bytes | None) -> int:
    """Make the system call `number`, and return its result. Raises `OSError`.

    Bytes are passed by their address, None as 0.
    """
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
    """Keep programs that this thread starts from gaining privileges. Raises `OSError`."""
    import ctypes

    zero = ctypes.c_ulong(0)
    if _libc().prctl(_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero):
        raise _os_error()


def connect(descriptor: int, address: bytes) -> None:
    """Connect the socket `descriptor`. Raises `OSError`.

    `address` is a socket address of any family, as the kernel reads it.
    """
    if _libc().connect(descriptor, address, len(address)):
        raise _os_error()


def shut_down(descriptor: int) -> None:
    """Shut down both directions of a socket, which ends calls that wait for it."""
    _libc().shutdown(descriptor, 2)  # SHUT_RDWR


@cache
def _libc() -> "CDLL":
    """Return the C library. `ctypes.get_errno` returns the error number of a failed call."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _os_error() -> OSError:
    """Return the error that the last system call has set."""
    import ctypes

    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
