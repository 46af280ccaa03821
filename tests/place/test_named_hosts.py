"""Commands that reach named hosts: through the filter, and by no other way."""

import os
import socket
import subprocess
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import anyio
import pytest

from refold.network.filter import HostFilter
from refold.place.port import Finished
from refold.values.display import HostAttempt
from refold.values.hosts import ReachableHosts
from refold.values.tools import Confinement
from tests.network.filtered import LoopbackServer
from tests.place.walled import LONG, Walled, needs_bubblewrap, walled

NOWHERE = ReachableHosts()


@pytest.fixture
def workspace(tmp_path: Path) -> Generator[Walled]:
    needs_bubblewrap()
    serving = HostFilter({})
    with walled(tmp_path / "ws", filter=serving) as result:
        yield result
    serving.close()


@pytest.fixture
def site_server() -> Iterator[LoopbackServer]:
    server = LoopbackServer("site")
    yield server
    server.close()


def run(
    ws: Walled, command: str, hosts: ReachableHosts, *, seconds: float = LONG
) -> Finished:
    confines = Confinement(writes=True, network=True, hosts=hosts)

    async def main() -> Finished:
        return await ws.commands.run(
            command, cwd=str(ws.root), seconds=seconds, confines=confines
        )

    return anyio.run(main)


def allow_host(site: LoopbackServer) -> ReachableHosts:
    return ReachableHosts((f"localhost:{site.port}",))


def test_a_named_host_is_reached_and_recorded_in_the_result(
    workspace: Walled, site_server: LoopbackServer
) -> None:
    result = run(
        workspace,
        f"curl -sS http://localhost:{site_server.port}/x",
        allow_host(site_server),
    )

    assert (result.text, result.code, result.filtered) == ("site\n", 0, True)
    assert result.attempts == (HostAttempt("localhost", site_server.port),)


def test_an_unnamed_host_is_refused_and_recorded_in_the_result(
    workspace: Walled, site_server: LoopbackServer
) -> None:
    result = run(workspace, "curl -sS https://other.example/", allow_host(site_server))

    assert "403" in result.text
    assert "other.example" not in result.text.replace("https://other.example", "")
    (attempt,) = result.attempts
    assert (attempt.host, attempt.port) == ("other.example", 443)
    assert attempt.refused.endswith("no rule and no answer of the user names it")
    assert not site_server.received


# {site}: a named server, which redirects to the one at {port}.
TRICKS = {
    "a redirect": "curl -sL http://localhost:{site}/",
    "a list of hosts without a proxy": "NO_PROXY='*' no_proxy='*' curl -s http://localhost:{port}/",
    "no proxy": "curl -s --noproxy '*' http://127.0.0.1:{port}/",
    "a proxy of its own": "curl -s -x http://localhost:{port} http://localhost:{site}/",
    "the filter as the first of two proxies": (
        "curl -s --preproxy $HTTP_PROXY -x http://localhost:{port} http://localhost:{site}/"
    ),
    "another place for the named host": (
        "curl -s --connect-to localhost:{site}:127.0.0.1:{port} http://localhost:{site}/"
    ),
    "another address for the named host": (
        "curl -s --resolve localhost:{port}:127.0.0.1 http://localhost:{port}/"
    ),
    "another Host header": "curl -s -H 'Host: localhost:{port}' http://localhost:{site}/",
    "a tunnel to another port": "curl -sp http://localhost:{port}/",
    "a tunnel in plain words": (
        "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT localhost:{port} HTTP/1.1\\r\\n\\r\\n"
        "GET / HTTP/1.1\\r\\n\\r\\n' >&3; timeout 3 cat <&3"
    ),
}


@pytest.mark.parametrize("command", TRICKS.values(), ids=TRICKS)
def test_no_request_makes_the_filter_connect_to_an_unnamed_host(
    workspace: Walled, site_server: LoopbackServer, command: str
) -> None:
    moved = LoopbackServer("moved", location=f"http://localhost:{site_server.port}/")

    result = run(
        workspace, command.format(site=moved.port, port=site_server.port), allow_host(moved)
    )
    moved.close()

    assert "site" not in result.text.replace("site.", "")
    assert not site_server.received


def test_a_server_that_the_command_starts_is_reached_without_the_filter(
    workspace: Walled,
) -> None:
    serve = "python3 -m http.server 8123 >log 2>&1 & "
    ask = "curl -sS --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:8123/ | head -1"

    result = run(workspace, serve + ask, NOWHERE)

    assert "<!DOCTYPE" in result.text
    assert result.attempts == ()


def test_a_timed_out_command_with_hosts_has_all_its_output_and_attempts(
    workspace: Walled, site_server: LoopbackServer
) -> None:
    ask = f"curl -sS http://localhost:{site_server.port}/; sleep 30"

    result = run(workspace, ask, allow_host(site_server), seconds=1)

    assert (result.text, result.timed_out) == ("site\n", True)
    assert result.attempts == (HostAttempt("localhost", site_server.port),)


def test_a_denied_host_is_refused_to_a_command_with_every_host(
    tmp_path: Path, site_server: LoopbackServer
) -> None:
    needs_bubblewrap()
    serving = HostFilter({})
    wish = {"filter": serving, "denied_hosts": lambda: ("denied.example",)}
    with walled(tmp_path / "ws", **wish) as ws:  # pyright: ignore[reportArgumentType] - as given
        result = ws.run("curl -sS https://denied.example/", network=True)
    serving.close()

    (attempt,) = result.attempts
    assert (attempt.host, "a deny rule names it" in attempt.refused) == (
        "denied.example",
        True,
    )


# Ways past the proxy, tried in a command that may reach no host at all. {port}: a service of
# the host, {socket}: a socket of the host in the workspace, {name}: one without a file.
WAYS = {
    "tcp": "socket.create_connection(('127.0.0.1', {port}), 2)",
    "tcp to this machine by another address": "socket.create_connection(('{address}', {port}), 2)",
    "tcp to a public address": "socket.create_connection(('93.184.216.34', 80), 2)",
    "tcp over IPv6": "socket.create_connection(('::1', {port}), 2)",
    "a name": "socket.create_connection(('example.org', 80), 2)",
    "DNS by UDP": (
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2)\n"
        "s.sendto(bytes.fromhex('abcd01000001000000000000076578616d706c65036f72670000010001'), "
        "('8.8.8.8', 53)); s.recv(99)"
    ),
    "a datagram to the host": (
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)\n"
        "s.sendto(b'x', ('{address}', {port})); s.recv(9)"
    ),
    "a raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
    "a packet socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)",
    "a virtual machine's host": "socket.socket(40, socket.SOCK_STREAM).connect((2, {port}))",
    "a socket of the host": "socket.socket(socket.AF_UNIX).connect('{socket}')",
    "an abstract socket": "socket.socket(socket.AF_UNIX).connect('\\0{name}')",
    "the network of another process": (
        "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n"
        "n = max(os.open(f'/proc/{{p}}/ns/net', 0) for p in (1, os.getppid()))\n"
        "r = c.setns(n, 0); socket.create_connection(('127.0.0.1', {port}), 2)"
    ),
    "a network of its own with a way out": (
        "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n"
        "assert c.unshare(0x10000000) == 0"
    ),
    "the files of the first process": (
        "socket.fromfd(os.open('/proc/1/fd/0', os.O_RDWR), socket.AF_INET, socket.SOCK_STREAM)"
        ".connect(('127.0.0.1', {port}))"
    ),
    "an inherited socket": (
        "found = [n for n in os.listdir('/proc/self/fd') if n not in '012' and os.path.exists("
        "'/proc/self/fd/' + n) and os.readlink('/proc/self/fd/' + n).startswith('socket')]\n"
        "assert found"
    ),
    "the listener of the filter": (
        "lines = open('/proc/net/unix').read().splitlines()[1:]\n"
        "assert [line for line in lines if len(line.split()) > 7]"
    ),
    "a new address of the loopback": (
        "import subprocess; subprocess.run(['ip', 'route', 'add', 'default', 'dev', 'lo'], "
        "check=True)"
    ),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_no_connection_bypasses_the_host_filter(
    workspace: Walled, site_server: LoopbackServer, tmp_path: Path, way: str
) -> None:
    name = f"refold-test-{os.getpid()}"
    with (
        socket.socket(socket.AF_UNIX) as on_disk,
        socket.socket(socket.AF_UNIX) as without_file,
    ):
        # The whole path may be too long for a socket.
        folder = os.open(workspace.root, os.O_RDONLY)
        on_disk.bind(f"/proc/self/fd/{folder}/host.sock")
        os.close(folder)
        without_file.bind("\0" + name)
        for item in (on_disk, without_file):
            item.listen()
        words = {
            "port": site_server.port,
            "socket": "host.sock",
            "name": name,
            "address": _address(),
        }
        (workspace.root / "way.py").write_text(
            "import os, socket\n" + way.format(**words) + "\nprint('REACHED')\n"
        )

        result = run(workspace, "python3 way.py", NOWHERE)

    assert "Traceback" in result.text or "Error" in result.text
    assert "REACHED" not in result.text
    assert not site_server.received


def _address() -> str:
    """Another address of this machine, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.2"


def test_concurrent_commands_reach_only_their_own_named_hosts(
    workspace: Walled, site_server: LoopbackServer
) -> None:
    ask = f"curl -s -o /dev/null -w %{{http_code}} http://localhost:{site_server.port}/"
    texts = dict[str, str]()

    async def reach_host(name: str, hosts: ReachableHosts) -> None:
        confines = Confinement(writes=True, network=True, hosts=hosts)
        done = await workspace.commands.run(
            ask, cwd=str(workspace.root), seconds=LONG, confines=confines
        )
        texts[name] = done.text

    async def run_both() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(reach_host, "named", allow_host(site_server))
            group.start_soon(
                reach_host, "other", ReachableHosts((f"localhost:{site_server.port + 1}",))
            )

    anyio.run(run_both)

    assert texts == {"named": "200", "other": "403"}


def test_the_host_filter_leaves_no_process_and_no_descriptor(
    workspace: Walled, site_server: LoopbackServer
) -> None:
    ask = f"curl -sS http://localhost:{site_server.port}/"
    run(workspace, ask, allow_host(site_server))
    before = len(os.listdir("/proc/self/fd")), _children()

    for _ in range(5):
        assert run(workspace, ask, allow_host(site_server)).text == "site\n"

    deadline = time.monotonic() + 5
    while (len(os.listdir("/proc/self/fd")), _children()) > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _children() -> int:
    pid = os.getpid()
    done = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True)
    return len(done.stdout.split())


def test_a_host_that_a_call_denies_is_refused_under_network_for_every_host(
    tmp_path: Path, site_server: LoopbackServer
) -> None:
    """An agent has deny rules that the settings of the workspace do not have."""
    needs_bubblewrap()
    serving = HostFilter({})
    with walled(tmp_path / "ws", filter=serving, network=True) as ws:
        denied = ReachableHosts(("*:*",), ("denied.example",))
        result = run(ws, "curl -sS https://denied.example/", denied)
        narrow = ReachableHosts(("a.example",), ("denied.example",))
        wide = run(ws, "curl -sS http://93.184.216.34:9/ -m 1; true", narrow)
    serving.close()

    (attempt,) = result.attempts
    assert "a deny rule names it" in attempt.refused
    assert not any(attempt.refused for attempt in wide.attempts)
