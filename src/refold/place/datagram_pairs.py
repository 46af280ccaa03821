"""Gives a command a pair of sockets for datagrams that send to each other and to nothing else.

A datagram needs no connection: with an address, one socket of a pair sends to any socket on a
disk. A pair of the type SOCK_SEQPACKET has the same boundaries between messages, and obeys no
address. So the kernel stops the call for the one, and the caller gets the other. Container engines
start with such a pair.
"""

import errno
import os
import socket
import struct
from collections.abc import Callable

from refold.place.seccomp import native_architecture
from refold.place.stopped_call import StoppedCall

_ADD_DESCRIPTOR = 0x40182103  # an ioctl of a listener
_DESCRIPTOR_STRUCT = struct.Struct("=QIIII")  # id, flags, ours, theirs, flags of theirs
_TYPE_MASK = 0xF  # of a type with its flags


def is_pair_call(number: int) -> bool:
    known = native_architecture()
    return known is not None and known.calls["socketpair"] == number


def make_pair(
    stopped_call: StoppedCall,
    control: Callable[[int, bytearray], int],
    check: Callable[[], None],
) -> None:
    """`control` makes a request to the listener; `check` raises if the caller no longer waits.

    Raises `OSError`.
    """
    _, type_, protocol, address = stopped_call.arguments[:4]
    if (
        type_ & _TYPE_MASK not in (socket.SOCK_DGRAM, socket.SOCK_RAW)
        or protocol & 0xFFFFFFFF
    ):
        raise OSError(errno.EPERM, "a pair that is not for datagrams")
    closing = os.O_CLOEXEC if type_ & socket.SOCK_CLOEXEC else 0
    waiting = not type_ & socket.SOCK_NONBLOCK
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with pair[0], pair[1]:
        numbers = list[int]()
        for number in pair:
            number.setblocking(waiting)
            words = _DESCRIPTOR_STRUCT.pack(stopped_call.id, 0, number.fileno(), 0, closing)
            numbers.append(control(_ADD_DESCRIPTOR, bytearray(words)))
    stopped_call.write(address, struct.pack("=ii", *numbers), check)
