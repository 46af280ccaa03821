"""Which sockets on the disk a command reaches: its own, and nobody else's."""

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from refold.place import doorkeeper
from tests.place.walled import Walled, home_on_disk, needs_bubblewrap, walled


@pytest.fixture
def apart() -> Iterator[Walled]:
    """A workspace in a folder that commands see, and cannot write."""
    needs_bubblewrap()
    if not doorkeeper.works():
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
    "how", ["plain", "renamed", "linked", "elsewhere", "swapped", "symbolic"]
)
def test_no_socket_of_another_program_is_reached(
    apart: Walled, how: str, *, network: bool
) -> None:
    home = apart.root.parent
    (home / "other").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(home / "plain"))
        server.listen()
        match how:
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
                (apart.root / "symbolic").symlink_to(home / "plain")
            case _:
                pass
        place = {"elsewhere": "../other/elsewhere", "swapped": "../other/swapped"}.get(how)
        path = place or ("symbolic" if how == "symbolic" else f"../{how}")

        found = apart.run(f"python3 ask.py {path} $PWD/{path}", network=network)

    assert "reached" not in found.text
    assert len(found.text.splitlines()) == 2


def test_one_that_is_made_while_a_command_runs_is_not_reached(apart: Walled) -> None:
    late = apart.root.parent / "late"
    with socket.socket(socket.AF_UNIX) as server:

        def open_late() -> None:
            while not (apart.root / "began").exists():
                pass
            server.bind(str(late))
            server.listen()
            (apart.root / "made").touch()

        thread = threading.Thread(target=open_late)
        thread.start()
        found = apart.run(
            f"touch began; until [ -e made ]; do sleep 0.01; done; python3 ask.py {late}"
        )
        thread.join()

    assert found.text == "Permission denied\n"


def test_a_datagram_needs_no_connection_and_is_not_sent(apart: Walled) -> None:
    goal = str(apart.root.parent / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(goal)
        found = apart.run(
            'python3 -c "import socket; '
            f"socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '{goal}')\""
        )

    assert "PermissionError" in found.text


@pytest.mark.parametrize("network", [False, True])
def test_a_command_reaches_what_it_listens_on_itself(
    apart: Walled, *, network: bool
) -> None:
    (apart.root / "own.py").write_text("""
import os, socket, subprocess, sys, threading
for path in ("here", "/tmp/there", os.path.abspath("whole"), "sub/../here2"):
    os.makedirs("sub", exist_ok=True)
    server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen()
    threading.Thread(target=lambda s=server: s.accept()[0].send(b"mine"), daemon=True).start()
    subprocess.run([sys.executable, "ask.py", path])
""")

    assert apart.run("python3 own.py", network=network).text == "reached mine\n" * 4


def test_one_who_waits_holds_up_nobody_else(apart: Walled) -> None:
    """A listener that takes nobody: who connects waits, and others go on."""
    (apart.root / "wait.py").write_text("""
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

    assert apart.run("timeout 20 python3 wait.py").text == "went on\n"


def test_programs_that_talk_among_themselves_work(apart: Walled) -> None:
    (apart.root / "managed.py").write_text("""
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

    assert apart.run(f'python3 managed.py; python3 -c "{server}"').text == "True\ntcp\n"


def test_an_older_way_into_the_kernel_makes_no_sockets(apart: Walled) -> None:
    """Rings of the kernel connect for whoever asks, and nobody is asked before."""
    look = "import ctypes; l=ctypes.CDLL(None, use_errno=True); "
    look += "print(l.syscall(425, 4, ctypes.create_string_buffer(200)), ctypes.get_errno())"

    assert apart.run(f'python3 -c "{look}"').text == "-1 38\n"


def test_nothing_of_ours_is_left_when_commands_have_ended(apart: Walled) -> None:
    apart.run("true")
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(10):
        apart.run("python3 ask.py nowhere")

    assert len(os.listdir("/proc/self/fd")) == before
    assert not [t for t in threading.enumerate() if t.name == "refold-doorkeeper"]
