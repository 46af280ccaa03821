"""Gives a command a pair of datagram sockets that can send only to each other.

Datagram sockets need no connection, so each socket of a normal pair can also send to any socket
file on the disk. A SOCK_SEQPACKET pair has the same boundaries between messages, but ignores
addresses. Therefore the kernel stops a command that requests a SOCK_DGRAM pair, and this module
gives it a SOCK_SEQPACKET pair. Refusing the call would not do, because container engines need a
pair when they start.
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
_TYPE_MASK = 0xF  # the type of a socket without its flags


def is_pair_call(number: int) -> bool:
    architecture = native_architecture()
    return architecture is not None and architecture.calls["socketpair"] == number


def make_pair(
    stopped_call: StoppedCall,
    control: Callable[[int, bytearray], int],
    check: Callable[[], None],
) -> None:
    """Give the stopped caller a pair of sockets. Raises `OSError` for another kind of pair.

    `control` sends a request to the kernel's listener. `check` raises if the caller no longer
    waits.
    """
    _, type_, protocol, address = stopped_call.arguments[:4]
    is_datagram = type_ & _TYPE_MASK in (socket.SOCK_DGRAM, socket.SOCK_RAW)
    # The protocol is the lower half of the argument; 0 is the usual one.
    if not is_datagram or protocol & 0xFFFFFFFF:
        raise OSError(errno.EPERM, "a pair that is not for datagrams")
    descriptor_flags = os.O_CLOEXEC if type_ & socket.SOCK_CLOEXEC else 0
    is_blocking = not type_ & socket.SOCK_NONBLOCK
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with pair[0], pair[1]:
        callers_descriptors = list[int]()
        for end in pair:
            end.setblocking(is_blocking)
            request = _DESCRIPTOR_STRUCT.pack(
                stopped_call.id, 0, end.fileno(), 0, descriptor_flags
            )
            callers_descriptors.append(control(_ADD_DESCRIPTOR, bytearray(request)))
    stopped_call.write(address, struct.pack("=ii", *callers_descriptors), check)
