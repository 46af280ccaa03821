"""What the kernel refuses to a command: namespaces, its first process, setuid files."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.place import socket_guard
from tests.place.walled import Walled, home_on_disk, needs_bubblewrap, walled

NUMBERS = {
    "x86_64": {"clone": 56, "unshare": 272, "setns": 308, "mount": 165, "umount2": 166,
               "pivot_root": 155, "ptrace": 101, "process_vm_readv": 310, "kcmp": 312,
               "process_vm_writev": 311, "fchmodat": 268, "mknodat": 259, "openat": 257},
    "aarch64": {"clone": 220, "unshare": 97, "setns": 268, "mount": 40, "umount2": 39,
                "pivot_root": 41, "ptrace": 117, "process_vm_readv": 270, "kcmp": 272,
                "process_vm_writev": 271, "fchmodat": 53, "mknodat": 33, "openat": 56},
}  # fmt: skip
EVERYWHERE = {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "pidfd_open": 434, "clone3": 435, "openat2": 437, "pidfd_getfd": 438,
    "mount_setattr": 442, "fchmodat2": 452, "open_tree_attr": 467,
}  # fmt: skip
CALLS = f"""
import ctypes, errno, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
numbers = {NUMBERS!r}[os.uname().machine] | {EVERYWHERE!r}
def call(name, *given):
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in given]
    result = libc.syscall(ctypes.c_long(numbers[name]), *given)
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]
def old(number, *given):
    "The same by the older instruction set: up to three numbers, or texts."
    libc.mmap.restype = ctypes.c_void_p
    low = libc.mmap(None, 8192, 7, 0x22 | 0x40, -1, ctypes.c_long(0))
    # A function of the first argument, the number, the second and the third.
    code = bytes.fromhex("5389f089fb4989c889d14489c2cd805bc3")
    ctypes.memmove(low, code, len(code))
    words, at = [], low + 4096
    for one in given:
        if isinstance(one, bytes):
            ctypes.memmove(at, one + bytes(1), len(one) + 1); words.append(at); at += 256
        else:
            words.append(one)
    words += [0] * (3 - len(words))
    made = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint] * 4)(low)
    result = made(words[0], number, words[1], words[2])
    return "done" if result >= 0 else errno.errorcode.get(-result, str(result))
"""


@pytest.fixture
def confined() -> Iterator[Walled]:
    needs_bubblewrap()
    with home_on_disk() as home, walled(home / "ws") as place:
        (place.root / "calls.py").write_text(CALLS)
        yield place


@pytest.fixture
def with_namespaces() -> Iterator[Walled]:
    """A place in which commands may create namespaces."""
    needs_bubblewrap()
    with home_on_disk() as home, walled(home / "ws", user_namespaces=True) as place:
        (place.root / "calls.py").write_text(CALLS)
        yield place


def run_python(room: Walled, *lines: str) -> str:
    (room.root / "go.py").write_text("\n".join(("from calls import *", *lines)))
    return room.run("python3 go.py").text.strip()


NEW = {"user": 0x10000000, "mounts": 0x20000, "pids": 0x20000000, "net": 0x40000000}


@pytest.mark.parametrize("kind", NEW)
@pytest.mark.parametrize("more", [0, 0x10000000])
def test_a_command_cannot_create_namespaces(confined: Walled, kind: str, more: int) -> None:
    flags = NEW[kind] | more
    text = run_python(
        confined,
        f"print(call('unshare', {flags}))",
        f"print(call('clone', {flags} | 17, 0))",
    )

    assert text == "EPERM\nEPERM"


@pytest.mark.parametrize(
    "name",
    ["mount", "umount2", "pivot_root", "setns", "open_tree", "move_mount", "fsopen",
     "fsconfig", "fsmount", "fspick", "mount_setattr", "open_tree_attr"],
)  # fmt: skip
def test_a_command_cannot_call_mount_functions(
    with_namespaces: Walled, confined: Walled, name: str
) -> None:
    """They are refused in a user namespace of the command as well: a descriptor of another
    program may lead into one.
    """
    line = f"print(call('{name}', 99, b'.', 0, 0, 0))"

    assert run_python(confined, line) == "EPERM"
    assert run_python(with_namespaces, "call('unshare', 0x10020000)", line) != "EPERM"


def test_clone3_creates_no_namespaces_and_threads_still_work(confined: Walled) -> None:
    threads = "import threading; t = threading.Thread(target=print, args=('a thread',))"

    text = run_python(
        confined, "print(call('clone3', bytes(64), 64))", threads, "t.start(); t.join()"
    )

    assert text == "ENOSYS\na thread"


@pytest.mark.parametrize("namespaces", [False, True])
@pytest.mark.parametrize(
    "line",
    [
        "print(call('ptrace', 16, 1, 0, 0))",  # attach
        "print(call('ptrace', 0x4206, 1, 0, 0))",  # seize
        "print(call('ptrace', 16, 1 << 32 | 1, 0, 0))",  # the kernel drops the upper half
        "print(call('process_vm_writev', 1, bytes(16), 1, bytes(16), 1, 0))",
        "print(call('process_vm_readv', 1, bytes(16), 1, bytes(16), 1, 0))",
        "print(call('pidfd_open', 1, 0))",
        "print(call('pidfd_getfd', 3, 0, 0))",
        "print(call('kcmp', 1, os.getpid(), 0, 0, 0))",
        "print(call('kcmp', os.getpid(), 1, 0, 0, 0))",
        "print(old(26, 16, 1, 0)) if os.uname().machine == 'x86_64' else print('EPERM')",
    ],
)
def test_a_command_cannot_control_the_first_process_of_its_sandbox(
    confined: Walled, with_namespaces: Walled, line: str, *, namespaces: bool
) -> None:
    """Otherwise it could clear the signal that ends it with refold, and keep running."""
    assert run_python(with_namespaces if namespaces else confined, line) in (
        "EPERM",
        "ENOSYS",
    )


@pytest.mark.parametrize(
    "path",
    ["/proc/1/mem", "/proc/1/task/1/mem", "/proc/self/root/proc/1/mem",
     "/proc/self/task/../../1/mem", "/proc/self/cwd/../../../../../../proc/1/mem"],
)  # fmt: skip
def test_a_command_cannot_open_the_memory_of_the_first_process(
    confined: Walled, with_namespaces: Walled, path: str
) -> None:
    line = f"os.read(os.open({path!r}, os.O_RDWR), 1)"

    assert (
        "PermissionError" in (text := run_python(confined, line)) or "FileNotFound" in text
    )
    nested = "call('unshare', 0x10020000); call('umount2', b'/proc/1/mem', 2)"
    assert "Error" in run_python(
        with_namespaces, nested, "call('umount2', b'/proc/1/task', 2)", line
    )


def test_a_command_can_trace_its_own_processes(confined: Walled) -> None:
    text = run_python(
        confined,
        "child = os.fork()",
        "if not child: os.read(os.pipe()[0], 1)",
        "print(call('ptrace', 0x4206, child, 0, 0), os.pidfd_open(child) > 0)",
        "print(open(f'/proc/{child}/mem', 'rb') is not None)",
        "os.kill(child, 9)",
    )

    assert text == "done True\nTrue"


@pytest.mark.peer
@pytest.mark.parametrize(
    ("program", "line", "expected_output"),
    [
        (
            "strace",
            "strace -f -e trace=openat true 2>&1 | tail -1",
            "+++ exited with 0 +++",
        ),
        (
            "gdb",
            "gdb -q -batch -ex run -ex 'info inferiors' --args sleep 0 2>&1 | grep -c 'exited normally'",
            "1",
        ),
        (
            "unshare",
            "unshare -rm true 2>&1",
            "unshare: unshare failed: Operation not permitted",
        ),
        ("bwrap", "bwrap --ro-bind / / true 2>&1 | grep -ci namespace", "1"),
    ],
)
def test_programs_of_developers_work_in_the_sandbox(
    confined: Walled, program: str, line: str, expected_output: str
) -> None:
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed here (optional)")

    assert confined.run(line).text.strip() == expected_output


@pytest.mark.peer
@pytest.mark.parametrize(
    "line", ["unshare -Um true", "unshare -rm true", "bwrap --ro-bind / / true"]
)
def test_the_setting_user_namespaces_lets_commands_create_namespaces(
    with_namespaces: Walled, line: str
) -> None:
    if not shutil.which(line.split()[0]):
        pytest.skip(f"{line.split()[0]} is not installed here (optional)")
    if os.geteuid() == 0 and "U" not in line:
        pytest.skip("the kernel lets no root without capabilities map itself (optional)")

    assert (with_namespaces.run(line).code, with_namespaces.run(line).text) == (0, "")


SETS_A_BIT = {
    "chmod": "os.chmod('f', {mode})",
    "fchmod": "os.fchmod(os.open('f', os.O_RDONLY), {mode})",
    "fchmodat": "print(call('fchmodat', -100, b'f', {mode}))",
    "fchmodat2": "print(call('fchmodat2', -100, b'f', {mode}, 0))",
    "fchmodat2 of a descriptor": "print(call('fchmodat2', os.open('f', 0), b'', {mode}, 0x1000))",
    "its link in /proc": "os.chmod(f'/proc/self/fd/{{os.open(\"f\", 0)}}', {mode})",
    "open": "os.open('new', os.O_CREAT | os.O_WRONLY, {mode})",
    "openat": "print(call('openat', -100, b'new', 0o101, {mode}))",
    "openat2": "print(call('openat2', -100, b'new', struct.pack('QQQ', 0o101, {mode}, 0), 24))",
    "a file without a name": "n = os.open('.', os.O_TMPFILE | os.O_WRONLY, {mode});"
    "os.link(f'/proc/self/fd/{{n}}', 'new', follow_symlinks=True)",
    "mknod": "os.mknod('new', {mode} | 0o100000)",
    "mknodat": "print(call('mknodat', -100, b'new', {mode} | 0o100000, 0))",
    "mkdir": "os.mkdir('new', {mode})",
    "a socket": "import socket as s; a = s.socket(s.AF_UNIX); os.fchmod(a.fileno(), {mode}); a.bind('new')",
    "the older chmod": "print(old(15, b'f', {mode}))",
    "the older creat": "print(old(8, b'new', {mode}))",
    "the older open": "print(old(5, b'new', 0o101, {mode}))",
    "cp -p": "import subprocess; subprocess.run(['cp', '-p', 'mine', 'new'])",
    "tar": "import subprocess; subprocess.run(['tar', 'xpf', 'a.tar'])",
}  # fmt: skip


@pytest.mark.parametrize(
    "mode",
    [0o6711, *(pytest.param(mode, marks=pytest.mark.slow) for mode in (0o4755, 0o2755))],
)
@pytest.mark.parametrize("call", SETS_A_BIT)
def test_a_command_cannot_set_the_setuid_bit_of_a_file(
    confined: Walled, call: str, mode: int
) -> None:
    if call.startswith("the older") and os.uname().machine != "x86_64":
        pytest.skip("written in the words of another machine")
    mine = confined.root / "mine"
    for path in (confined.root / "f", mine):
        path.write_text("#!/bin/sh\n")
    if call in ("cp -p", "tar"):
        mine.chmod(mode)
        shutil.make_archive(str(confined.root / "a"), "tar", confined.root, "mine")
    mine.chmod(mode if call == "cp -p" else 0o755)

    run_python(confined, SETS_A_BIT[call].format(mode=mode))

    assert with_bits(confined.root, but=mine if call == "cp -p" else None) == []


def with_bits(folder: Path, but: Path | None) -> list[str]:
    about = ((path, path.lstat().st_mode) for path in folder.rglob("*") if path != but)
    return [str(p) for p, m in about if not stat.S_ISDIR(m) and m & 0o6000]


@pytest.mark.parametrize(
    "line",
    [
        "os.chmod('d', 0o2775)", "os.fchmod(os.open('d', 0), 0o2775)",
        "os.chmod('d', 0o2775, dir_fd=os.open('.', 0))", "print(call('fchmodat2', -100, b'd', 0o2775, 0))",
        "os.chmod(f'/proc/self/fd/{os.open(\"d\", 0)}', 0o2775)",
        "os.chmod(os.path.abspath('d'), 0o2775)",
    ],
)  # fmt: skip
def test_a_command_can_set_the_setgid_bit_of_a_directory(
    confined: Walled, line: str
) -> None:
    if not socket_guard.is_permitted():
        pytest.skip("this machine lets nobody answer for a call")
    (confined.root / "d").mkdir()

    run_python(confined, line)

    assert (confined.root / "d").stat().st_mode & 0o7777 == 0o2775


def test_a_command_can_create_a_shared_git_repository(confined: Walled) -> None:
    if not socket_guard.is_permitted():
        pytest.skip("this machine lets nobody answer for a call")
    result = confined.run(
        "git init -q --shared=group shared && git -C shared status --short"
    )

    assert (result.code, result.text) == (0, "")
    assert (confined.root / "shared/.git/objects").stat().st_mode & stat.S_ISGID


def test_a_command_cannot_set_the_setgid_bit_of_a_directory_outside(
    confined: Walled,
) -> None:
    outside = confined.root.parent / "outside"
    outside.mkdir(mode=0o755)

    text = run_python(confined, f"os.chmod({str(outside)!r}, 0o2775)")

    assert "OSError" in text or "PermissionError" in text
    assert outside.stat().st_mode & 0o7777 == 0o755


def test_a_file_swapped_with_a_directory_during_chmod_gets_no_setgid_bit(
    confined: Walled,
) -> None:
    """The mode goes to the file that was checked, however fast names are exchanged."""
    (confined.root / "d").mkdir()
    (confined.root / "f").touch()

    run_python(
        confined,
        "import threading, time",
        "rename = {'x86_64': 316, 'aarch64': 276}[os.uname().machine]",
        "def flip():",
        "    while True: libc.syscall(rename, -100, b'd', -100, b'f', 2)",
        "threading.Thread(target=flip, daemon=True).start()",
        "for _ in range(300):",
        "    try: os.chmod('d', 0o2775)",
        "    except OSError: pass",
        "os._exit(0)",
    )

    assert with_bits(confined.root, None) == []
