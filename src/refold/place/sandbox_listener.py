"""Creates a socket of refold that listens inside the network of a sandbox.

No code of ours runs in the sandbox. Instead, while the sandbox's first process waits at its
gate, a small process enters that network, creates the socket and sends it here. The command has
no other way out of its network. See setns(2), and SCM_RIGHTS in unix(7).
"""

import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

from refold import programs
from refold.errors import ToolFailed
from refold.values.hosts import ReachableHosts, place_of

PROXY_PORT = 3128  # at 127.0.0.1, in a network where nothing else listens yet
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_BACKLOG_CONNECTIONS = 128  # the number of pending connections
_PATIENCE_SECONDS = 5.0
# A network namespace belongs to a user namespace, and the creator of that has all rights in
# it.
_ENTER_PROGRAM = f"""
import _socket, os, fcntl, sys
try:
    from os import setns
except ImportError:
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    def setns(number, kind):
        if libc.setns(number, kind):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
ours = _socket.socket(fileno=int(sys.argv[1]))
first = ours.recv(20)
if first:
    net = os.open("/proc/%d/ns/net" % int(first), os.O_RDONLY)
    owner = fcntl.ioctl(net, 0xB701)
    if not os.path.sameopenfile(owner, os.open("/proc/self/ns/user", os.O_RDONLY)):
        setns(owner, 0x10000000)
    setns(net, 0x40000000)
    made = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    made.bind(("127.0.0.1", {PROXY_PORT}))
    made.listen({_BACKLOG_CONNECTIONS})
    right = made.fileno().to_bytes(4, sys.byteorder)
    ours.sendmsg([b"!"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, right)])
"""


class SandboxListener:
    """Starts the process that creates a sandbox's listener. Call `open` or `close`.

    Create this object before the sandbox, so that the process and the sandbox start at the same
    time.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        if not sys.executable:
            raise ToolFailed(
                "The command could not be kept to named hosts: refold knows no Python to "
                "start. Ask for all hosts instead."
            )
        self._ours, child_end = socket.socketpair()
        try:
            self._process = programs.start(
                (sys.executable, "-I", "-S", "-c", _ENTER_PROGRAM, str(child_end.fileno())),
                cwd="/",
                env=programs.without_loader_variables(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(child_end.fileno(),),
            )
        except BaseException:
            self._ours.close()
            raise
        finally:
            child_end.close()

    def open(self, first: int) -> socket.socket:
        """Return a socket that listens in the network of the process `first`.

        Raises `ToolFailed` if the network cannot be entered.
        """
        self._ours.settimeout(_PATIENCE_SECONDS)
        descriptors = list[int]()
        with suppress(OSError):
            self._ours.send(str(first).encode())
            # the process sends one byte with one descriptor
            _, descriptors, _, _ = socket.recv_fds(self._ours, bufsize=1, maxfds=1)
        if descriptors:
            return socket.socket(fileno=descriptors[0])
        self._process.send_signal(signal.SIGKILL)
        _, stderr = self._process.communicate()
        error = stderr.decode(errors="replace").strip()
        reason = error.splitlines()[-1] if error else "it does not answer"
        raise ToolFailed(
            f"The command could not be kept to named hosts: its network cannot be entered "
            f"({reason}). Ask for all hosts instead."
        )

    def close(self) -> None:
        """Close our end, wait until the process exits, and kill it if that takes too long."""
        self._ours.close()
        try:
            self._process.communicate(timeout=_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def proxy_variables(hosts: ReachableHosts) -> dict[str, str]:
    """Return variables that make programs use refold's proxy for hosts outside the sandbox."""
    proxy = f"http://127.0.0.1:{PROXY_PORT}"
    # Hosts that mean the sandbox itself, unless a port of the machine outside is permitted.
    direct_hosts = ",".join(
        host
        for host in _LOCAL_HOSTS
        if not any(hosts.permits_private(host, port) for port in _ports(hosts))
    )
    names = (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    )
    return {
        **dict.fromkeys(names, proxy),
        "no_proxy": direct_hosts,
        "NO_PROXY": direct_hosts,
        "NODE_USE_ENV_PROXY": "1",  # Node.js 24 and later
        "npm_config_noproxy": direct_hosts,
    }


def _ports(hosts: ReachableHosts) -> set[int]:
    return {80, *(port for _, port in map(place_of, hosts.allowed))}
