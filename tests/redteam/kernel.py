"""Attacks by system calls: namespaces, the first process of the sandbox, modes, containers."""

from tests.redteam.house import Attack

_CALLS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True); libc.syscall.restype = ctypes.c_long
def done(result):
    if result >= 0: open("made", "w").close()
"""
_NAMESPACES = {
    "of users and mounts": "done(libc.unshare(0x10020000))",
    "of users": "done(libc.unshare(0x10000000))",
    "of mounts": "done(libc.unshare(0x20000))",
    "by a clone": "n = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]\n"
    "done(libc.syscall(n, ctypes.c_long(0x10020011), None, None, None, None))",
    "by a clone with its flags in memory": "done(libc.syscall(435, bytes(64), 64))",
    "that another process made": "done(libc.setns(os.open('/proc/1/ns/mnt', 0), 0))",
}
_FIRST = {
    "attaches": "done(libc.ptrace(16, 1, 0, 0))",
    "seizes": "done(libc.ptrace(0x4206, 1, 0, 0))",
    "opens its memory": "done(os.open('/proc/1/mem', os.O_RDWR))",
    "opens the memory of its thread": "done(os.open('/proc/1/task/1/mem', os.O_RDWR))",
    "names it by a descriptor": "done(os.pidfd_open(1))",
}
_MODES = {
    "chmod": "os.chmod('tool', 0o4755)",
    "chmod of a group": "os.chmod('tool', 0o2755)",
    "fchmod": "os.fchmod(os.open('tool', 0), 0o6755)",
    "open": "os.open('new', os.O_CREAT | os.O_WRONLY, 0o4755)",
    "mknod": "os.mknod('new', 0o104755)",
    "a file without a name": "n = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)\n"
    "os.link(f'/proc/self/fd/{n}', 'new', follow_symlinks=True)",
    "fchmodat2": "libc.syscall(452, -100, b'tool', 0o4755, 0)",
}
_REACH = """
import os, socket
def reach(path, kind=socket.SOCK_STREAM):
    try: socket.socket(socket.AF_UNIX, kind).connect(path)
    except OSError: pass
os.symlink("run/container.sock", "l"); os.link("run/container.sock", "h")
os.rename("run/container.sock", "run/renamed.sock")
for path in ("run/renamed.sock", os.path.abspath("run/renamed.sock"), "l", "h", "/proc/self/cwd/h"):
    reach(path); reach(path, socket.SOCK_SEQPACKET)
"""

KERNEL = (
    *(
        Attack(name=f"namespaces {name}", plants={"go": _CALLS + line},
               calls=["python3 go"], reached=["made"])
        for name, line in _NAMESPACES.items()
    ),
    *(
        Attack(name=f"the first process: {name}", plants={"go": _CALLS + line},
               calls=["timeout 9 python3 go"], reached=["made"])
        for name, line in _FIRST.items()
    ),
    *(
        Attack(name=f"rights of the user by {name}", calls=["python3 go; ls -l"],
               plants={"go": _CALLS + line, "tool": "#!/bin/sh\n"})
        for name, line in _MODES.items()
    ),
    Attack(name="a socket of a container", plants={"go": _REACH}, calls=["python3 go"],
           container=True),
)  # fmt: skip
