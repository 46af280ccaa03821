"""Contains a program that leaves the mounts of its sandbox, if it can, and runs its argument.

A mount point can be renamed from another mount namespace, by a descriptor opened before.
"""

WITHOUT_MOUNTS = """import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
top = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
pivot = {"x86_64": 155}.get(os.uname().machine, 41)
steps = (
    lambda: libc.unshare(0x10020000),
    lambda: libc.mount(b"none", b"/", None, 0x44000, None),
    lambda: libc.mount(b"t", b"/run", b"tmpfs", 0, None),
    lambda: os.chdir("/run") or 0,
    lambda: libc.syscall(pivot, b".", b"."),
    lambda: libc.umount2(b".", 2),
)
if any(step() < 0 for step in steps):
    print("no namespace")
os.fchdir(top)
exec(sys.argv[1])
"""
