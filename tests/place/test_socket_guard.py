"""Which sockets on disk a command reaches: only its own."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from refold.place import socket_guard
from tests.place.walled import Walled, home_on_disk, needs_bubblewrap, walled


@pytest.fixture
def read_only_place() -> Iterator[Walled]:
    """Yield a workspace in a folder that commands see, and cannot write."""
    needs_bubblewrap()
    if not socket_guard.is_permitted():
        pytest.skip("this machine lets nobody answer for a connection")
    with (
        home_on_disk() as home,
        walled(home / "ws", {**os.environ, "HOME": str(home)}) as place,
    ):
        (place.root / "ask.py").write_text(ASK)
        yield place


ASK = """
import socket, sys
for path in sys.argv[1:]:
    try:
        asking = socket.socket(socket.AF_UNIX)
        asking.connect(path)
        asking.settimeout(5)
        print("reached", asking.recv(9).decode())
    except OSError as error:
        print(error.strerror)
"""


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize(
    "attack", ["plain", "renamed", "linked", "elsewhere", "swapped", "symbolic"]
)
def test_a_command_reaches_no_socket_of_another_program(
    read_only_place: Walled, attack: str, *, network: bool
) -> None:
    home = read_only_place.root.parent
    (home / "other").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(home / "plain"))
        server.listen()
        match attack:
            case "renamed":
                (home / "plain").rename(home / "renamed")
            case "linked":
                os.link(home / "plain", home / "linked")
            case "elsewhere":
                (home / "plain").rename(home / "other/elsewhere")
            case "swapped":
                (home / "plain").rename(home / "other/swapped")
                (home / "plain").touch()
            case "symbolic":
                (read_only_place.root / "symbolic").symlink_to(home / "plain")
            case _:
                pass
        place = {"elsewhere": "../other/elsewhere", "swapped": "../other/swapped"}.get(
            attack
        )
        path = place or ("symbolic" if attack == "symbolic" else f"../{attack}")

        result = read_only_place.run(f"python3 ask.py {path} $PWD/{path}", network=network)

    assert "reached" not in result.text
    assert len(result.text.splitlines()) == 2


def test_a_socket_created_while_a_command_runs_is_not_reached(
    read_only_place: Walled,
) -> None:
    late = read_only_place.root.parent / "late"
    with socket.socket(socket.AF_UNIX) as server:

        def open_late() -> None:
            while not (read_only_place.root / "began").exists():
                pass
            server.bind(str(late))
            server.listen()
            (read_only_place.root / "made").touch()

        thread = threading.Thread(target=open_late)
        thread.start()
        result = read_only_place.run(
            f"touch began; until [ -e made ]; do sleep 0.01; done; python3 ask.py {late}"
        )
        thread.join()

    assert result.text == "Permission denied\n"


def test_a_datagram_to_a_socket_of_another_program_is_not_sent(
    read_only_place: Walled,
) -> None:
    goal = str(read_only_place.root.parent / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(goal)
        result = read_only_place.run(
            'python3 -c "import socket; '
            f"socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '{goal}')\""
        )

    assert "PermissionError" in result.text


@pytest.mark.parametrize("network", [False, True])
def test_a_command_reaches_sockets_that_it_created(
    read_only_place: Walled, *, network: bool
) -> None:
    (read_only_place.root / "own.py").write_text("""
import os, socket, subprocess, sys, threading
for path in ("here", "/tmp/there", os.path.abspath("whole"), "sub/../here2"):
    os.makedirs("sub", exist_ok=True)
    server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen()
    threading.Thread(target=lambda s=server: s.accept()[0].send(b"mine"), daemon=True).start()
    subprocess.run([sys.executable, "ask.py", path])
""")

    assert (
        read_only_place.run("python3 own.py", network=network).text == "reached mine\n" * 4
    )


def test_a_blocked_connect_does_not_block_others(read_only_place: Walled) -> None:
    """The client of a listener that accepts nothing waits, and others continue."""
    (read_only_place.root / "wait.py").write_text("""
import socket, threading
full = socket.socket(socket.AF_UNIX); full.bind("full"); full.listen(0)
def connect(path, kept=[]):
    asking = socket.socket(socket.AF_UNIX); kept.append(asking); asking.connect(path)
for _ in range(4):
    threading.Thread(target=connect, args=("full",), daemon=True).start()
free = socket.socket(socket.AF_UNIX); free.bind("free"); free.listen()
for _ in range(3):
    connect("free"); free.accept()
print("went on", flush=True)
import os; os._exit(0)
""")

    assert read_only_place.run("timeout 20 python3 wait.py").text == "went on\n"


def test_processes_of_a_command_can_communicate_by_sockets(read_only_place: Walled) -> None:
    (read_only_place.root / "managed.py").write_text("""
import multiprocessing as m
if __name__ == "__main__":
    m.set_start_method("forkserver")
    with m.Manager() as manager, m.Pool(3) as pool:
        kept = manager.list()
        pool.map(kept.append, range(30))
        print(sorted(kept) == list(range(30)))
""")
    server = "import socket as s; a=s.create_server(('127.0.0.1',0));"
    server += "[s.create_connection(a.getsockname()) for _ in range(9)]; print('tcp')"

    assert (
        read_only_place.run(f'python3 managed.py; python3 -c "{server}"').text
        == "True\ntcp\n"
    )


def test_io_uring_is_unavailable_to_commands(read_only_place: Walled) -> None:
    """`io_uring` connects without a system call that could be checked."""
    look = "import ctypes; l=ctypes.CDLL(None, use_errno=True); "
    look += "print(l.syscall(425, 4, ctypes.create_string_buffer(200)), ctypes.get_errno())"

    assert read_only_place.run(f'python3 -c "{look}"').text == "-1 38\n"


def test_ended_commands_leave_no_descriptor_and_no_guard_thread(
    read_only_place: Walled,
) -> None:
    read_only_place.run("true")
    read_only_place.commands.close()  # from here on no sandbox of a next command holds any
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(10):
        read_only_place.run("python3 ask.py nowhere")

    assert len(os.listdir("/proc/self/fd")) == before
    assert not [t for t in threading.enumerate() if t.name == "refold-socket-guard"]


def test_a_32_bit_system_call_does_not_connect_a_socket(
    read_only_place: Walled,
) -> None:
    """A 32-bit call can use a descriptor that a 64-bit call created."""
    if os.uname().machine != "x86_64":
        pytest.skip("the machine code of this test is for x86_64")
    (read_only_place.root / "connect_32_bit.py").write_text("""
import ctypes, os, socket, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
low = libc.mmap(None, 4096, 7, 0x22 | 0x40, -1, ctypes.c_long(0))  # where 32 bits reach
code = bytes.fromhex("5389fb89f1b86a010000cd805bc3")  # connect(edi, esi, edx) by int 0x80
address = b"\\1\\0" + os.fsencode(sys.argv[1]) + b"\\0"
ctypes.memmove(low, code, len(code)); ctypes.memmove(low + 999, address, len(address))
client = socket.socket(socket.AF_UNIX)
connect = ctypes.CFUNCTYPE(*[ctypes.c_int] * 4)(low)
print("reached" if connect(client.fileno(), low + 999, len(address)) == 0 else "refused")
""")
    with socket.socket(socket.AF_UNIX) as server:
        bound, renamed = (
            read_only_place.root.parent / name for name in ("bound", "renamed")
        )
        server.bind(str(bound))
        server.listen()
        bound.rename(
            renamed
        )  # so it is not hidden by its name, and only the guard refuses it

        result = read_only_place.run(f"python3 connect_32_bit.py {renamed}")

    assert (
        "reached" not in result.text
    )  # it may have crashed: some kernels know no such call


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        ("socket(s.AF_UNIX, 3)", True),
        ("socketpair(s.AF_UNIX, s.SOCK_DGRAM)[0]", False),
        ("socketpair(s.AF_UNIX, s.SOCK_RAW)[0]", False),
    ],
)
def test_no_datagram_reaches_another_program_by_any_socket_type(
    read_only_place: Walled, made: str, *, refused: bool
) -> None:
    goal = read_only_place.root.parent / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(goal))
        goal = goal.rename(read_only_place.root.parent / "renamed")
        server.setblocking(False)

        result = read_only_place.run(
            f"python3 -c \"import socket as s; a = s.{made}; a.sendto(b'x', '{goal}')\""
        )

        with pytest.raises(BlockingIOError):
            server.recv(9)
    assert ("PermissionError" in result.text) == refused


@pytest.mark.parametrize("network", [False, True])
def test_a_datagram_socketpair_preserves_message_boundaries(
    read_only_place: Walled, *, network: bool
) -> None:
    """Container engines, and programs that start others, begin with such a pair."""
    (read_only_place.root / "pair.py").write_text(
        "import fcntl, os, socket as s\n"
        "a, b = s.socketpair(s.AF_UNIX, s.SOCK_DGRAM | s.SOCK_NONBLOCK)\n"
        "a.send(b'one'); a.send(b'two')\n"
        "print(b.recv(9), b.recv(9), a.getblocking(), os.get_inheritable(b.fileno()))\n"
        "os.set_inheritable(a.fileno(), True)\n"
    )

    result = read_only_place.run("python3 pair.py", network=network)

    assert result.text == "b'one' b'two' False False\n"


def test_keyring_calls_fail_as_on_a_kernel_without_keyrings(
    read_only_place: Walled,
) -> None:
    """Container engines work without keyrings, but fail if the calls are refused."""
    (read_only_place.root / "keys.py").write_text(
        "import ctypes, errno, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "number = {'x86_64': 250, 'aarch64': 219}[os.uname().machine]\n"
        "print(libc.syscall(number, 1, 0), errno.errorcode[ctypes.get_errno()])\n"
    )

    assert read_only_place.run("python3 keys.py").text == "-1 ENOSYS\n"


def test_socketpair_with_an_unwritable_result_fails(
    read_only_place: Walled,
) -> None:
    (read_only_place.root / "pair.py").write_text(
        "import ctypes, errno, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for where in (None, ctypes.c_void_p(1 << 63), ctypes.c_void_p(4096)):\n"
        "    print(libc.socketpair(1, 2, 0, where), errno.errorcode[ctypes.get_errno()])\n"
        "print(libc.socketpair(1, 2, 7, bytes(8)) < 0, libc.socketpair(2, 2, 0, bytes(8)) < 0)\n"
    )

    result = read_only_place.run("python3 pair.py")

    assert set(result.text.split()) <= {"-1", "EFAULT", "EIO", "True"}


def test_a_forged_process_name_does_not_redirect_the_socket_guard(
    read_only_place: Walled,
) -> None:
    """A process name may contain a line end, and imitate further lines of /proc."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as ours,
    ):
        text = f"{os.getpid()} {ours.fileno()}"
        (read_only_place.root / "named.py").write_text("""
import ctypes, sys
libc = ctypes.CDLL(None)
libc.prctl(15, f"\\rTgid:\\t{sys.argv[1]}".encode(), 0, 0, 0)
print(libc.connect(int(sys.argv[2]), bytes(16), 16))  # to nothing: it ends a connection
""")
        result = read_only_place.run(f"python3 named.py {text}")

        assert ours.send(b"still there") == 11
    assert result.text == "-1\n"


@pytest.mark.parametrize(
    "asked", ["3, -1, 20", "3, 1 << 62, 20", "-1, 0, 0", "1 << 40, 0, 9"]
)
def test_an_invalid_system_call_fails_and_later_ones_work(
    read_only_place: Walled, asked: str
) -> None:
    (read_only_place.root / "odd.py").write_text(f"""
import ctypes, socket
made = socket.socket(socket.AF_UNIX)
numbers = [ctypes.c_long(n) for n in (42, {asked})]
print(ctypes.CDLL(None).syscall(*numbers))
server = socket.socket(socket.AF_UNIX); server.bind("here"); server.listen()
made.connect("here"); print("went on")
""")

    assert read_only_place.run("timeout 9 python3 odd.py").text == "-1\nwent on\n"


@pytest.mark.parametrize("attack", ["renamed", "linked", "late"])
def test_a_socket_of_another_program_in_the_workspace_is_not_reached(
    read_only_place: Walled, attack: str
) -> None:
    plain, goal = read_only_place.root / "plain", read_only_place.root / attack
    with socket.socket(socket.AF_UNIX) as server:

        def bind() -> None:
            server.bind(str(plain))
            server.listen()
            plain.rename(goal) if attack == "renamed" else os.link(plain, goal)

        if attack == "late":
            timer = threading.Timer(0.3, bind)
            timer.start()
        else:
            bind()
        result = read_only_place.run(
            f"until [ -e {attack} ]; do sleep 0.01; done; python3 ask.py {goal}"
        )

    assert result.text == "Connection refused\n"


@pytest.mark.parametrize("writes", [False, True])
def test_a_command_can_neither_add_nor_find_kernel_keys(
    read_only_place: Walled, *, writes: bool
) -> None:
    add, search = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
    look = f"import ctypes as c; l=c.CDLL(None); print(l.syscall({add}, b'user', b'refold-test',"
    look += f" b'x', 1, -4), l.syscall({search}, 10, -4, b'user', b'refold-test', 0))"

    assert read_only_place.run(f'python3 -c "{look}"', writes=writes).text == "-1 -1\n"


LISTENER = """
import socket, sys
server = socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[2]))
server.bind(sys.argv[1]); server.listen(); print("listens", flush=True)
print(server.accept()[0].recv(9).decode() or "a connection", flush=True)
"""
REACH = """
import os, socket, sys, threading
goal, kind = sys.argv[1:]
def reach(path, kind):
    asking = socket.socket(socket.AF_UNIX, kind)
    try:
        asking.connect(path)
        asking.send(b"reached"); print("reached", flush=True)
    except OSError as error: print(error.strerror, flush=True)
# A socket of one's own under the same name proves nothing about the other.
own = socket.socket(socket.AF_UNIX); own.bind("own"); own.listen()
if kind == "beside its own":
    os.rename("own", "away"); os.link(goal, "own"); goal = "own"
if kind == "by a thread":
    thread = threading.Thread(target=reach, args=(goal, socket.SOCK_STREAM))
    thread.start(); thread.join()
elif kind == "by a child":
    if not os.fork(): reach(goal, socket.SOCK_STREAM); os._exit(0)
    os.wait()
elif kind == "without waiting":
    asking = socket.socket(socket.AF_UNIX); asking.setblocking(False)
    print(os.strerror(asking.connect_ex(goal))); asking.close()
else:
    reach(goal, socket.SOCK_SEQPACKET if kind == "SOCK_SEQPACKET" else socket.SOCK_STREAM)
"""


@pytest.mark.parametrize(
    ("kind", "goal"),
    [
        ("plain", "run/db"), ("plain", "run/../run/db"), ("plain", "{ws}/run/db"),
        ("plain", "/proc/self/root{ws}/run/db"), ("plain", "/proc/self/cwd/run/db"),
        ("plain", "link"), ("plain", "hard"), ("plain", "run/renamed"),
        ("SOCK_SEQPACKET", "run/db"), ("beside its own", "run/db"), ("by a thread", "run/db"),
        ("by a child", "run/db"), ("without waiting", "run/db"),
    ],
)  # fmt: skip
def test_a_socket_of_another_network_namespace_is_not_reached(
    read_only_place: Walled, kind: str, goal: str
) -> None:
    """A container shares a directory of the workspace, and has a network of its own."""
    ws = read_only_place.root
    (ws / "run").mkdir()
    (ws / "reach.py").write_text(REACH)
    type_ = kind if kind.startswith("SOCK") else "SOCK_STREAM"
    apart_from_us = ["bwrap", "--dev-bind", "/", "/", "--unshare-net", "--die-with-parent"]
    command_line = [
        *apart_from_us,
        sys.executable,
        "-c",
        LISTENER,
        str(ws / "run/db"),
        type_,
    ]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "listens\n"
        (ws / "link").symlink_to("run/db")
        os.link(ws / "run/db", ws / "hard")
        if goal == "run/renamed":
            (ws / "run/db").rename(ws / "run/renamed")

        text = read_only_place.run(f"python3 reach.py {goal.format(ws=ws)} '{kind}'").text

        other.kill()
        assert other.stdout.read() == ""
    # In the process that answers, /proc/self is another process.
    nowhere = "No such file or directory" if "/self/" in goal else "Connection refused"
    assert text.strip() == nowhere


def test_with_the_network_a_command_reaches_sockets_of_containers_in_the_workspace(
    read_only_place: Walled,
) -> None:
    """An allowed network is for such sockets: a database that runs in a container."""
    command_line = ["bwrap", "--dev-bind", "/", "/", "--unshare-net", "--die-with-parent"]
    command_line += [
        sys.executable,
        "-c",
        LISTENER,
        str(read_only_place.root / "db"),
        "SOCK_STREAM",
    ]
    (read_only_place.root / "reach.py").write_text(REACH)
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "listens\n"

        text = read_only_place.run("python3 reach.py db plain", network=True).text

        assert other.stdout.readline() == "reached\n"
    assert text == "reached\n"


def test_a_socket_of_an_exited_command_refuses_connections(read_only_place: Walled) -> None:
    """Programs that find a dead socket create it again."""
    read_only_place.run(
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('old')\""
    )

    assert read_only_place.run("python3 ask.py old").text == "Connection refused\n"


FULL = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0), backlog=0)
kept = []
for _ in range(8):
    one = socket.socket(); one.setblocking(False); kept.append(one)
    one.connect_ex(server.getsockname())
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""
CLEARS = """
import fcntl, os, socket, sys, threading, time, random
port, rounds = int(sys.argv[1]), int(sys.argv[2])
def one(wait):
    asking = socket.socket(); asking.setblocking(False); number = asking.fileno()
    copy = os.dup(number)
    def clear():
        until = time.perf_counter() + wait
        while time.perf_counter() < until: pass
        fcntl.fcntl(copy, fcntl.F_SETFL, 0)
    thread = threading.Thread(target=clear, daemon=True); thread.start()
    waiting = threading.Thread(target=asking.connect_ex, args=(("127.0.0.1", port),), daemon=True)
    waiting.start(); thread.join(); waiting.join(0.002)
    os.close(copy)
    if waiting.is_alive(): stuck.append(asking)
    else: asking.close()
stuck = []
for _ in range(rounds):
    one(random.uniform(0, 4e-4))
    if len(stuck) > 50: break
# Whoever asks now is answered, although others wait for ever.
own = socket.socket(socket.AF_UNIX); own.bind("own"); own.listen()
socket.socket(socket.AF_UNIX).connect("own")
print("went on", len(stuck), flush=True); os._exit(0)
"""


@pytest.mark.parametrize("rounds", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_socket_guard_is_not_blocked_by_changed_flags(
    read_only_place: Walled, rounds: int
) -> None:
    """A command may make a socket blocking after the check, and connect to a server that
    accepts nothing.
    """
    (read_only_place.root / "clears.py").write_text(CLEARS)
    command_line = [sys.executable, "-c", FULL]
    with subprocess.Popen(
        command_line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as full:
        assert full.stdout
        port = full.stdout.readline().strip()
        result = read_only_place.run(f"python3 clears.py {port} {rounds}", network=True)
        full.kill()

    assert result.text.startswith("went on")
    assert not result.timed_out


@pytest.mark.slow
@pytest.mark.timeout(60)  # a connection that is not accepted is given up after two minutes
@pytest.mark.parametrize(
    "line",
    [
        "a.connect(('127.0.0.1', port))",  # waits for an accept that never comes
        "os.kill(os.getpid(), 19) if os.fork() else a.connect(('127.0.0.1', port))",
        "[threading.Thread(target=socket.socket().connect, args=(('127.0.0.1', port),),"
        " daemon=True).start() for _ in range(200)]; time.sleep(0.3); os._exit(0)",
        "fcntl.fcntl(a.fileno(), fcntl.F_SETFL, 0); signal.alarm(1); a.connect(('127.0.0.1', port))",
    ],
)
def test_the_end_of_a_command_does_not_wait_for_a_pending_connection(
    read_only_place: Walled, line: str
) -> None:
    names = "import fcntl, os, signal, socket, threading, time"
    (read_only_place.root / "waits.py").write_text(
        f"{names}, sys\nport = int(sys.argv[1])\na = socket.socket()\n{line}\n"
    )
    command_line = [sys.executable, "-c", FULL]
    with subprocess.Popen(
        command_line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as full:
        assert full.stdout
        port = full.stdout.readline().strip()
        result = read_only_place.run(f"python3 waits.py {port}", network=True, seconds=1.5)
        full.kill()

    assert result.timed_out or result.code in (0, 142)
    read_only_place.commands.close()
