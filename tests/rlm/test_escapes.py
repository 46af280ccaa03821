"""What code in the Python worker cannot do: real attempts from inside.

After each of them all processes are gone.
"""

import os
import socket
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from refold.place.reaper import owner_token
from refold.rlm.worker_port import Variables, WorkerLimits, WorkerLost
from tests.place.walled import list_marked, needs_bubblewrap
from tests.rlm.walled_python import QUICK, Session, python, run_with_session, value

SHORT = WorkerLimits(seconds=1, memory=512 * 1024**2)


@pytest.fixture(autouse=True)
def _walls() -> None:
    needs_bubblewrap()


async def read_end(root: Path, code: str, limits: WorkerLimits) -> str:
    """Return how a cell came to its end, by itself or not."""
    async with python(root, limits) as session:
        try:
            return (await session.cell(code)).text
        except WorkerLost as gone:
            return str(gone)


async def read_loss(root: Path, code: str, limits: WorkerLimits = QUICK) -> str:
    """Why the worker is gone that ran this. Nothing is left of it."""
    before = {*list_marked(owner_token())}  # of earlier tests of this process
    async with python(root, limits) as session:
        with pytest.raises(WorkerLost) as error:
            await session.cell(code)
        with pytest.raises(WorkerLost):
            await session.worker.list_variables()
    assert {*list_marked(owner_token())} <= before
    return str(error.value)


def test_keys_and_credentials_cannot_be_read(tmp_path: Path, home: Path) -> None:
    secret = "sk-test-of-the-walls-0123456789"
    for path in (".ssh/id_ed25519", ".aws/credentials", "refold/credentials.json"):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(secret)
    os.environ["ACME_API_KEY"] = secret

    async def use_session(session: Session) -> None:
        text = await session.text(
            "import os, glob\n"
            "said = [str(dict(os.environ))]\n"
            f"for folder, _, names in os.walk({str(home)!r}):\n"
            "    said += [open(os.path.join(folder, name)).read() for name in names]\n"
            "for path in glob.glob('/proc/[0-9]*/environ'):\n"
            "    said.append(open(path).read())\n"
            f"print(len(said), {secret!r} in ''.join(said), 'CANARY' in ''.join(said))"
        )
        assert text.endswith("False False")

    try:
        run_with_session(tmp_path / "ws", use_session, own=(str(home / "refold"),))
    finally:
        del os.environ["ACME_API_KEY"]


def test_code_can_write_only_to_a_private_tmp(tmp_path: Path, home: Path) -> None:
    root, private = tmp_path / "ws", f"/tmp/{os.urandom(8).hex()}"
    places = [str(root / "x"), str(home / "x"), str(tmp_path / "x"), "/etc/x", "/usr/x"]

    async def use_session(session: Session) -> None:
        cell = await session.cell(
            "done = []\n"
            f"for path in {[*places, private]!r}:\n"
            "    try:\n"
            "        open(path, 'w').write('x'); done.append(path)\n"
            "    except OSError: pass\n"
            "FINAL(done)"
        )
        assert private in str(value(cell))

    run_with_session(root, use_session)

    assert [path for path in [*places, private] if os.path.exists(path)] == []


def test_code_cannot_connect_to_tcp_or_unix_sockets(tmp_path: Path) -> None:
    door = tmp_path / "door"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        unix.bind(str(door))
        unix.listen()
        port = tcp.getsockname()[1]

        async def use_session(session: Session) -> None:
            cell = await session.cell(
                "import socket\n"
                "def attempt(kind, where):\n"
                "    try:\n"
                "        with socket.socket(kind) as one:\n"
                "            one.settimeout(1); one.connect(where)\n"
                "        return 'out'\n"
                "    except OSError: return 'shut'\n"
                f"FINAL([attempt(socket.AF_INET, ('127.0.0.1', {port})),\n"
                "       attempt(socket.AF_INET, ('1.1.1.1', 53)),\n"
                f"       attempt(socket.AF_UNIX, {str(door)!r})])"
            )
            assert value(cell) == ["shut"] * 3

        run_with_session(tmp_path / "ws", use_session)


def test_code_cannot_see_or_kill_other_processes(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        cell = await session.cell(
            "import os, signal\n"
            "seen = [int(n) for n in os.listdir('/proc') if n.isdigit()]\n"
            f"try: os.kill({os.getpid()}, signal.SIGKILL)\n"
            "except ProcessLookupError: pass\n"
            "FINAL(len(seen) < 6)"
        )
        assert value(cell) is True

    run_with_session(tmp_path / "ws", use_session)


def test_killing_parent_processes_ends_only_the_worker(tmp_path: Path) -> None:
    root = tmp_path / "ws"

    async def use_another_session(session: Session) -> None:
        assert await session.text("1 + 1") == "2"

    why = anyio.run(
        read_loss,
        root,
        "import os\nos.kill(1, 9); os.kill(os.getppid(), 9)\nimport time; time.sleep(60)",
    )

    assert "Python worker" in why
    run_with_session(root, use_another_session)


@pytest.mark.slow
def test_a_fork_bomb_is_stopped_at_the_process_limit(tmp_path: Path) -> None:
    # It would end by itself if it were not killed.
    code = "import os, time\nfor _ in range(10): os.fork()\ntime.sleep(20)"

    why = anyio.run(read_loss, tmp_path / "ws", code)

    assert "processes at a time" in why


def test_allocating_ten_gigabytes_is_a_memory_error_and_the_worker_survives(
    tmp_path: Path,
) -> None:
    async def use_session(session: Session) -> None:
        cell = await session.cell("x = 1\ny = [0] * (10 * 2**27)")
        assert cell.failed
        assert cell.text.endswith("MemoryError")
        assert await session.text("x") == "1"

    run_with_session(tmp_path / "ws", use_session)


@pytest.mark.slow
def test_memory_of_started_programs_counts_towards_the_limit(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "eat = 'x = bytearray(400 * 2**20); import time; time.sleep(60)'\n"
        "all = [subprocess.Popen([sys.executable, '-c', eat]) for _ in range(3)]\n"
        "all[0].wait()"
    )

    assert "of memory" in anyio.run(read_loss, tmp_path / "ws", code)


WAYS = [
    "try:\n    FINAL('a')\nexcept BaseException:\n    seen.append('after')\n",
    "try:\n    FINAL('a')\nfinally:\n    raise ValueError\nFINAL('b')",
    "import contextlib\nwith contextlib.suppress(BaseException):\n    FINAL('a')\nseen.append(1)\nFINAL('b')",
    "while True:\n    try: FINAL('a')\n    except BaseException: pass",
    "while True:\n    try:\n        while True: FINAL('a')\n    except: continue",
    "def f():\n    try: FINAL('a')\n    finally: return 3\nf()\nseen.append(1)\nFINAL('b')",
    "import threading\nt = threading.Thread(target=FINAL, args=('a',))\nt.start(); t.join()\nimport time; time.sleep(1e9)",
    "import threading\nthreading.Thread(target=FINAL, args=('a',)).start()\nwhile True: pass",
    "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n    list(pool.map(FINAL, ['a'] * 9))",
    "FINAL('a') or FINAL('b')",
    "[FINAL('a') for _ in range(3)]",
    "class A:\n    def __del__(self): FINAL('a')\nx = A(); del x\nimport time; time.sleep(1e9)",
    "class A:\n    def __repr__(self): FINAL('a')\nA()",
    "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntry: FINAL('a')\nexcept BaseException: pass\nwhile True: pass",
    "import sys\ntry: FINAL('a')\nexcept BaseException: sys.settrace(None)\nwhile True: pass",
]  # fmt: skip


def test_final_ends_the_cell_even_if_code_catches_its_exception(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        await session.cell("seen = []")
        for code in WAYS:
            assert value(await session.cell(code)) == "a"
            # It lives, and comes to rest in the two seconds that it has.
            assert await session.text("seen") == "[]", code

    run_with_session(tmp_path / "ws", use_session)


def test_final_counts_even_if_the_process_exits_immediately(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        code = (
            "import os\ntry: FINAL([1])\nexcept BaseException: pass\nfinally: os._exit(3)"
        )
        assert value(await session.cell(code)) == [1]

    run_with_session(tmp_path / "ws", use_session)


@pytest.mark.slow
def test_code_that_continues_after_final_is_killed(tmp_path: Path) -> None:
    code = (
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "try: FINAL('a')\nexcept BaseException: pass\n"
        "finally: time.sleep(1e9)"
    )

    async def use_session(session: Session) -> None:
        # It raises at the line, and sleeps in `finally` all the same.
        assert value(await session.cell(code)) == "a"
        with pytest.raises(WorkerLost, match="FINAL was called"):
            await session.persist()

    run_with_session(tmp_path / "ws", use_session)


def test_endless_threads_do_not_delay_the_end_of_a_session(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        assert (
            await session.text(
                "import threading, time\n"
                "for _ in range(20): threading.Thread(target=time.sleep, args=(1e9,)).start()\n"
                "threading.active_count() > 20"
            )
            == "True"
        )
        await session.persist()

    before = {*list_marked(owner_token())}
    run_with_session(tmp_path / "ws", use_session)

    assert {*list_marked(owner_token())} <= before


def test_restored_snapshot_runs_code_only_in_the_sandbox(tmp_path: Path) -> None:
    """The snapshot has a variable whose bytes run a program when they are loaded."""
    mark = tmp_path / "ws" / "pwned"
    bomb = (
        "import os\n"
        "class Bomb:\n"
        f"    def __reduce__(self): return os.system, ('id > {mark}; echo boom',)\n"
        "bomb, x = Bomb(), 1"
    )

    async def use_session(session: Session) -> None:
        await session.cell(bomb)
        variables, report = await session.persist()
        assert ("bomb", "Bomb") in report.kept
        restored = await session.restore(variables, session.disk)
        assert await session.text("x") == "1"
        assert ("x", "int") in restored.kept

    run_with_session(tmp_path / "ws", use_session)

    assert not mark.exists()


@pytest.mark.slow
def test_an_invalid_snapshot_is_refused_with_a_message(tmp_path: Path) -> None:
    async def main() -> None:
        for garbage in (b"", b"\0\0\0\1["):
            async with python(tmp_path / "ws") as session:
                with pytest.raises(WorkerLost, match="could not be read"):
                    await session.restore(Variables(garbage), {})

    anyio.run(main)


FIND = (
    "import os, socket, stat\n"
    "mine = [n for n in range(3, 1024) if os.path.exists(f'/proc/self/fd/{n}')\n"
    "        and stat.S_ISSOCK(os.fstat(n).st_mode)]\n"
)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        pytest.param("b'\\xff' * 4096", "announced a message of", marks=pytest.mark.slow),
        ("b'\\x80\\0\\0\\0' + b'\\0' * 4", "announced a message of 2,147,483,648 bytes"),
        pytest.param(
            "b'\\0\\0\\0\\1' + b'\\x7f\\xff\\xff\\xff'",
            "announced a message of",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "b'\\0\\0\\0\\4\\0\\0\\0\\0null'", "Unexpected message", marks=pytest.mark.slow
        ),
        ('b\'\\0\\0\\0\\x0c\\0\\0\\0\\0{"t":"what"}\'', "Unexpected message"),
        pytest.param(
            "b'\\0\\0\\0\\4\\0\\0\\0\\0\\xff\\xfe\\xfd\\xfc'",
            "Unexpected message",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "b'\\0\\1\\x86\\xa0\\0\\0\\0\\0' + b'[' * 100000",
            "Unexpected message",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_garbage_on_the_socket_ends_the_worker(
    tmp_path: Path, message: str, why: str
) -> None:
    code = f"{FIND}for n in mine: os.write(n, {message})\nimport time; time.sleep(60)"

    assert why in anyio.run(read_loss, tmp_path / "ws", code)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "why"),
    [
        (
            '{"t":"call","call":1,"name":"budget","arguments":{}}',
            "does not read the answers",
        ),
        ('{"t":"printed","text":"again"}', "the cell ran over 4 s"),
    ],
)
def test_a_flood_on_the_socket_does_not_block_the_event_loop(
    tmp_path: Path, message: str, why: str
) -> None:
    frame = len(message).to_bytes(4, "big") + bytes(4) + message.encode()
    flood = (
        f"{FIND}import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"while True:\n    try: os.write(mine[0], {frame!r} * 500)\n    except BaseException: pass"
    )
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await anyio.sleep(0.01)

    async def main() -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(tick)
            text = await read_end(tmp_path / "ws", flood, replace(SHORT, seconds=4))
            group.cancel_scope.cancel()
        return text

    assert why in anyio.run(main)
    assert ticks > 1  # the event loop runs meanwhile


def test_closing_the_connection_ends_the_worker(tmp_path: Path) -> None:
    why = anyio.run(
        read_loss,
        tmp_path / "ws",
        "import os\nos.closerange(0, 65536)\nimport time; time.sleep(60)",
    )

    assert "connection" in why


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os; os._exit(3)", "with code 3"),
        pytest.param("import os; os.abort()", "SIGABRT", marks=pytest.mark.slow),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        pytest.param("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "SIGTERM", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_the_error_names_exit_code_or_signal_of_the_worker(
    tmp_path: Path, code: str, why: str
) -> None:
    result = anyio.run(read_loss, tmp_path / "ws", code)

    assert why in result


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(1e9)",
        "9 ** 9 ** 9 ** 9",
        "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
    ],
)
def test_code_that_ignores_interrupts_is_killed_after_the_time_limit(
    tmp_path: Path, code: str
) -> None:
    why = anyio.run(read_loss, tmp_path / "ws", code, SHORT)

    assert why == (
        "The Python worker was killed: the cell ran over 1 s, and the code did not stop."
    )


@pytest.mark.slow
def test_endless_recursion_ends_the_cell_or_the_worker(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.setrecursionlimit(10**9)\n"
        "class A:\n    def __getattr__(self, name): return getattr(self, name + 'x')\nA().x"
    )

    text = anyio.run(read_end, tmp_path / "ws", code, QUICK)

    assert any(word in text for word in ("SIGSEGV", "RecursionError", "memory"))


def test_a_forked_process_cannot_call_the_host_or_set_the_final_value(
    tmp_path: Path,
) -> None:
    async def use_session(session: Session) -> None:
        text = await session.text(
            "import os\n"
            "child = os.fork()\n"
            "if not child: budget(); FINAL('of the child')\n"
            "_, code = os.waitpid(child, 0)\n"
            "print('ended', code)"
        )
        assert text.endswith("ended 0")
        assert session.host.heard == []

    run_with_session(tmp_path / "ws", use_session)


def test_next_cell_works_after_code_broke_python(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        for code in (
            "del __builtins__", "__builtins__ = {}", "lm = FINAL = budget = 1", "del lm",
            "import json, json.encoder\njson.dumps = json.loads = json.JSONEncoder = None",
            "import builtins\nbuiltins.len = builtins.print = builtins.str = None",
            "import sys\nsys.stdout = sys.stderr = sys.stdin = None",
            "import sys; sys.modules.clear()", "import sys; sys.path.clear()",
            "import os; os.read = os.write = None", "import threading; threading.Lock = None",
            "globals().clear()", "import io; io.open = open = None",
        ):  # fmt: skip
            await session.cell(code)
            assert await session.text("print(lm('a', 'b'), len([1]))") == "lm is answered 1"

    run_with_session(tmp_path / "ws", use_session)


def test_cell_results_of_recursion_an_exit_and_huge_output_are_short(
    tmp_path: Path,
) -> None:
    async def use_session(session: Session) -> None:
        deep = await session.cell("def f(n): return f(n + 1)\nf(0)")
        assert "RecursionError" in deep.text
        assert deep.text.count("\n") < 30
        assert (await session.cell("import sys; sys.exit(3)")).text.endswith(
            "SystemExit: 3"
        )
        huge = await session.text("for n in range(50_000): print(n, 'x' * 50)")
        assert len(huge) < 10_500
        assert huge.startswith("0 x")
        assert huge.endswith(f"49999 {'x' * 50}")
        assert "characters were left out here" in huge
        odd = await session.cell(r"print('a\ud800b\x00\x1b[31m'); '\udfff'")
        assert not odd.failed
        odd.text.encode()

    run_with_session(tmp_path / "ws", use_session)


def test_a_stopped_cell_keeps_the_variables(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        for code in (
            "while True: pass",
            "import time; time.sleep(1e9)",
            "import threading; threading.Lock().acquire(); threading.Event().wait()",
        ):
            cell = await session.cell(f"x = 5\n{code}")
            assert cell.failed
            assert cell.text.endswith("Stopped: the cell ran over 0.2 s.")
        assert await session.text("x") == "5"

    run_with_session(
        tmp_path / "ws", use_session, WorkerLimits(seconds=0.2, memory=512 * 1024**2)
    )
