"""Builds the two seccomp filters of a command in the form that the kernel reads.

With the `guard_filter`, the kernel asks `socket_guard` about connections and setgid bits. The
thread that starts bubblewrap installs it. The `command_filter` forbids mounts and more;
bubblewrap installs it after its own mounts, so that it applies only to the command. The kernel
obeys the stricter filter. See seccomp(2).
"""

import errno
import platform
import socket
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TypeAlias

from msgspec import Struct

# The calls that set the mode of a file, each with the index of its mode argument.
MODE_ARGUMENTS = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
# Operation, lines to skip if true and if false, operand.
LINE_STRUCT = struct.Struct("=HBBI")

_Line: TypeAlias = tuple[int, int, int, int]

# Jumps on the loaded number: equal, greater or equal, any of these bits set.
_LOAD, _IS, _NO_LESS, _ANY, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_AT_NUMBER, _AT_ARCH, _AT_ARGUMENTS = 0, 4, 16  # offsets in seccomp_data
_JUMP = 0x05
_ALLOW: _Line = (_RETURN, 0, 0, 0x7FFF0000)
_ASK_SUPERVISOR: _Line = (_RETURN, 0, 0, 0x7FC00000)
_DENY: _Line = (_RETURN, 0, 0, 0x00050000 | errno.EPERM)
_NO_SUCH_CALL: _Line = (_RETURN, 0, 0, 0x00050000 | errno.ENOSYS)
_X32_BIT = 0x40000000

_SETUID, _SETGID = 0o4000, 0o2000
_MAKES_A_FILE = 0o100 | 0o20000000  # O_CREAT, and the bit of O_TMPFILE
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWUSER, CLONE_NEWNS and the like
_VIRTUAL_MACHINES = 40  # AF_VSOCK: between a virtual machine and its host

# They have the same number on all architectures.
_COMMON_NUMBERS = {
    "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_open": 434, "clone3": 435,
    "openat2": 437, "pidfd_getfd": 438, "mount_setattr": 442, "fchmodat2": 452,
    "open_tree_attr": 467,
}  # fmt: skip


class Architecture(Struct, frozen=True):
    """A processor architecture. `audit` is the kernel's number for it.

    `calls` maps the names of system calls to their numbers.
    """

    audit: int
    calls: Mapping[str, int]


def _architecture(audit: int, calls: str) -> Architecture:
    """Return an architecture. `calls` has names of system calls, each before its number."""
    words = calls.split()
    numbers = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    return Architecture(audit, {**_COMMON_NUMBERS, **numbers})


# Each machine comes with the older instruction set of the same architecture.
_ARCHITECTURES: Mapping[str, tuple[Architecture, Architecture]] = {
    "x86_64": (
        _architecture(0xC000003E, """
            seccomp 317 socket 41 connect 42 socketpair 53 add_key 248 request_key 249
            keyctl 250 clone 56 unshare 272 setns 308 mount 165 umount2 166 pivot_root 155
            ptrace 101 process_vm_readv 310 process_vm_writev 311 kcmp 312 open 2 creat 85
            openat 257 mknod 133 mknodat 259 chmod 90 fchmod 91 fchmodat 268
        """),
        _architecture(0x40000003, """
            socketcall 102 socket 359 socketpair 360 connect 362 add_key 286 request_key 287
            keyctl 288 clone 120 unshare 310 setns 346 mount 21 umount 22 umount2 52
            pivot_root 217 ptrace 26 process_vm_readv 347 process_vm_writev 348 kcmp 349
            open 5 creat 8 openat 295 mknod 14 mknodat 297 chmod 15 fchmod 94 fchmodat 306
        """),
    ),
    "aarch64": (
        _architecture(0xC00000B7, """
            seccomp 277 socket 198 connect 203 socketpair 199 add_key 217 request_key 218
            keyctl 219 clone 220 unshare 97 setns 268 mount 40 umount2 39 pivot_root 41
            ptrace 117 process_vm_readv 270 process_vm_writev 271 kcmp 272 openat 56
            mknodat 33 fchmod 52 fchmodat 53
        """),
        _architecture(0x40000028, """
            socketcall 102 socket 281 connect 283 socketpair 288 add_key 309 request_key 310
            keyctl 311 clone 120 unshare 337 setns 375 mount 21 umount2 52 pivot_root 218
            ptrace 26 process_vm_readv 376 process_vm_writev 377 kcmp 378 open 5 creat 8
            openat 322 mknod 14 mknodat 324 chmod 15 fchmod 94 fchmodat 333
        """),
    ),
}  # fmt: skip
_KEYRING_CALLS = ("add_key", "request_key", "keyctl")
_SOCKET_CALLS = ("socketcall", "socket", "socketpair", "connect")
_MOUNT_CALLS = (
    "mount", "umount", "umount2", "pivot_root", "setns", "open_tree", "open_tree_attr",
    "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
)  # fmt: skip
# The arguments of these calls that name a process.
_PROCESS_CALLS = {
    "ptrace": (1,), "process_vm_readv": (0,), "process_vm_writev": (0,), "kcmp": (0, 1),
    "pidfd_open": (0,),
}  # fmt: skip
# The arguments of these calls with the mode of a new file, and with the flags.
_CALLS_THAT_SET_MODES = {
    "open": (2, 1), "openat": (3, 2), "creat": (1, None), "mknod": (1, None),
    "mknodat": (2, None),
}  # fmt: skip


def native_architecture() -> Architecture | None:
    """Return the architecture of this machine; None if refold does not know its calls."""
    machine = _ARCHITECTURES.get(platform.machine())
    if machine is None:
        return None
    own, _ = machine
    return own


@cache
def guard_filter() -> bytes:
    """Return the filter with which the kernel asks about certain calls.

    The kernel asks about connections, socket pairs and setgid bits. Calls that cannot be judged
    by their arguments fail.
    """
    own, older = _ARCHITECTURES[platform.machine()]
    calls = own.calls
    lines = [
        *_for_calls([calls["io_uring_setup"]], _NO_SUCH_CALL),
        # crun continues without these calls if they are missing
        *_for_calls(_numbers(own, _KEYRING_CALLS), _NO_SUCH_CALL),
        *_for_calls([calls["connect"]], _ASK_SUPERVISOR),
        *_for_calls([calls["socket"]], *_allow_connected_sockets(_DENY)),
        *_for_calls([calls["socketpair"]], *_allow_connected_sockets(_ASK_SUPERVISOR)),
    ]
    for name, mode_argument in MODE_ARGUMENTS.items():
        ask_about_setgid = _if_bits(mode_argument, _SETGID, _ASK_SUPERVISOR)
        lines += _for_calls(_numbers(own, [name]), *ask_about_setgid)
    lines.append(_ALLOW)
    # The older instruction set could connect a socket that the newer one created.
    foreign = [
        *_for_calls([calls["io_uring_setup"]], _NO_SUCH_CALL),
        *_for_calls(_numbers(older, (*_SOCKET_CALLS, *_KEYRING_CALLS)), _DENY),
        _ALLOW,
    ]
    return _program((own, lines), (older, foreign))


@cache
def command_filter(*, namespaces: bool = False, asks: bool = True) -> bytes:
    """Return the filter that confines a command; b"" if this architecture is unknown.

    It forbids mounts, access to the first process, and files with a setuid or setgid bit. With
    `namespaces` a command may make namespaces, and mount in them. With `asks`, setgid bits are
    left to the guard.
    """
    machine = _ARCHITECTURES.get(platform.machine())
    if machine is None:
        return b""
    own, older = machine
    return _program(
        (own, _command_lines(own, namespaces=namespaces, asks=asks)),
        (older, _command_lines(older, namespaces=namespaces, asks=False)),
    )


def _command_lines(
    architecture: Architecture, *, namespaces: bool, asks: bool
) -> list[_Line]:
    """Return the lines of the command filter for one architecture.

    Without `namespaces`, calls that make namespaces or mounts are denied. With `asks`, calls
    that set the setgid bit of an existing file are not denied, because the guard stops them.
    """
    lines = list[_Line]()
    if not namespaces:
        lines += _for_calls(_numbers(architecture, _MOUNT_CALLS), _DENY)
        # The call's flags are in memory. Every C library falls back to `clone`.
        lines += _for_calls(_numbers(architecture, ["clone3"]), _NO_SUCH_CALL)
        denials = _if_bits(argument=0, bits=_NEW_NAMESPACES, line=_DENY)
        lines += _for_calls(_numbers(architecture, ["clone", "unshare"]), *denials)
    for name, arguments in _PROCESS_CALLS.items():
        denials = [
            line for argument in arguments for line in _deny_for_first_process(argument)
        ]
        lines += _for_calls(_numbers(architecture, [name]), *denials, _ALLOW)
    lines += _for_calls(_numbers(architecture, ["pidfd_getfd"]), _DENY)
    for name, (mode_argument, flags_argument) in _CALLS_THAT_SET_MODES.items():
        # The mode only counts if the flags say that the call creates a file.
        allow_others = list[_Line]()
        if flags_argument is not None:
            allow_others = [_load(flags_argument), (_ANY, 1, 0, _MAKES_A_FILE), _ALLOW]
        denials = _if_bits(mode_argument, _SETUID | _SETGID, _DENY)
        lines += _for_calls(_numbers(architecture, [name]), *allow_others, *denials)
    # The call's mode is in memory. Its callers support kernels without it.
    lines += _for_calls(_numbers(architecture, ["openat2"]), _NO_SUCH_CALL)
    denied_bits = _SETUID if asks else _SETUID | _SETGID
    for name, mode_argument in MODE_ARGUMENTS.items():
        denials = _if_bits(mode_argument, denied_bits, _DENY)
        lines += _for_calls(_numbers(architecture, [name]), *denials)
    return [*lines, _ALLOW]


def _allow_connected_sockets(otherwise: _Line) -> list[_Line]:
    """Return lines that allow sockets with connections; others get `otherwise`.

    A socket without a connection could send to any address, even if it is one of a pair.
    """
    # A comparison has the number of lines to skip if it is true, and if it is false.
    return [
        _load(0),  # the family
        (_IS, 0, 1, _VIRTUAL_MACHINES),
        _DENY,
        (_IS, 1, 0, socket.AF_UNIX),
        _ALLOW,
        _load(1),  # the type, with flags in its upper bits
        (_AND, 0, 0, 0xF),
        (_IS, 2, 0, socket.SOCK_STREAM),
        (_IS, 1, 0, socket.SOCK_SEQPACKET),
        otherwise,
        _ALLOW,
    ]


def _numbers(architecture: Architecture, names: Iterable[str]) -> list[int]:
    return [architecture.calls[name] for name in names if name in architecture.calls]


def _for_calls(numbers: Iterable[int], *lines: _Line) -> list[_Line]:
    """Return lines that apply `lines` to the calls `numbers`; other calls skip them.

    `lines` must end with a decision.
    """
    return [line for number in numbers for line in ((_IS, 0, len(lines), number), *lines)]


def _if_bits(argument: int, bits: int, line: _Line) -> list[_Line]:
    """Return lines that decide `line` if an argument has any of `bits`.

    Otherwise they allow the call. `argument` is the argument's number.
    """
    return [_load(argument), (_ANY, 0, 1, bits), line, _ALLOW]


def _deny_for_first_process(argument: int) -> list[_Line]:
    """Return lines that deny a call if an argument is the id of the first process."""
    return [_load(argument), (_IS, 0, 1, 1), _DENY]


def _load(argument: int) -> _Line:
    """Return a line that loads the lower half of an argument.

    That suffices for modes, flags and process ids.
    """
    return _LOAD, 0, 0, _AT_ARGUMENTS + 8 * argument


def _program(*parts: tuple[Architecture, list[_Line]]) -> bytes:
    """Return a filter from the lines for each architecture.

    Calls of other architectures fail.
    """
    lines: list[_Line] = []
    for architecture, body_lines in parts:
        refuse_x32 = [(_NO_LESS, 0, 1, _X32_BIT), _NO_SUCH_CALL]
        body = [(_LOAD, 0, 0, _AT_NUMBER), *refuse_x32, *body_lines]
        # Conditional jumps skip at most 255 lines; an unconditional one skips any number.
        lines += [
            (_LOAD, 0, 0, _AT_ARCH),
            (_IS, 1, 0, architecture.audit),
            (_JUMP, 0, 0, len(body)),
            *body,
        ]
    return b"".join(LINE_STRUCT.pack(*line) for line in [*lines, _NO_SUCH_CALL])
