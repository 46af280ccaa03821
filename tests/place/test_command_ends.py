"""Every command ends in time with a clear result, and leaves no process behind.

With a sandbox and without one.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from refold.place.limits import Limits
from refold.place.port import Finished
from refold.place.reaper import reap_strays
from refold.place.sandbox_rules import Profile
from tests.place.walled import Walled, list_marked, needs_bubblewrap, walled

LIMITS = Limits(processes=60, memory=300_000_000)
FORKS = "python3 -c 'import os,time\nfor i in range({}):\n  if not os.fork(): time.sleep(100)\ntime.sleep(100)'"


@pytest.fixture(params=["workspace", "off"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Walled]:
    profile: Profile = request.param
    if profile == "workspace":
        needs_bubblewrap()
    with walled(tmp_path / "ws", limits=LIMITS, profile=profile) as result:
        yield result


@pytest.fixture(autouse=True)
def nobody_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    mark = f"LC_TEST_MARK_{os.getpid()}_{os.urandom(4).hex()}"
    monkeypatch.setenv(mark, "1")
    yield mark
    assert list_marked(mark) == []


# Other tests may be asleep at the same time.
LONG = 100_000 + os.getpid()


def sleepers(seconds: int) -> list[str]:
    words = f"sleep\0{seconds}\0".encode()
    texts = list[str]()
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path("/proc", number, "cmdline").read_bytes() == words:
                texts.append(number)
        except OSError:
            continue
    return texts


async def beat(beats: list[float]) -> None:
    """Record a beat now and then while nothing blocks the event loop."""
    while True:
        beats.append(time.monotonic())
        await anyio.sleep(0.02)


@pytest.mark.parametrize(
    "command",
    [
        "(sleep 1000 &) ; echo done",
        "sleep 1000 & disown; echo done",
        "setsid sleep 1000 >/dev/null 2>&1 & echo done",
        "env -i setsid nohup sleep 1000 >/dev/null 2>&1 & echo done",
        "python3 -c 'import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): "
        "os._exit(0)\nos.execvpe(\"sleep\", [\"sleep\", \"1000\"], {})'; echo done",
    ],
)  # fmt: skip
def test_background_processes_of_a_command_are_killed_when_it_ends(
    workspace: Walled, command: str
) -> None:
    result = workspace.run(command.replace("1000", str(LONG)))

    assert (result.code, result.text) == (0, "done\n")
    assert sleepers(LONG) == []


@pytest.mark.parametrize(
    "command",
    [
        "sleep 1001 & sleep 1001",
        "trap '' TERM; sleep 1001",
        "setsid sleep 1001 & disown; sleep 1001",
        "env -i setsid sleep 1001 >/dev/null 2>&1 & sleep 1001",
        "kill -STOP $$",
        "sleep 1001 & kill -STOP $!; wait",
    ],
)
def test_all_processes_of_a_command_are_killed_at_its_timeout(
    workspace: Walled, command: str
) -> None:
    result = workspace.run(command.replace("1001", str(LONG)), seconds=0.2)

    assert (result.code, result.timed_out, result.stopped) == (None, True, "")
    assert sleepers(LONG) == []


@pytest.mark.parametrize(
    "command",
    [
        "read x", "cat", "python3", "vi a", "vim a", "nano a", "less a", "man ls", "top",
        "git init -q .; git -c user.name=a -c user.email=a@b commit --allow-empty",
        "ssh nobody@127.0.0.1", "sudo -S true", "su nobody", "passwd", "git rebase -i HEAD",
        "npm init", "read x </dev/tty", "python3 -c 'input()'", "gpg --gen-key", "bash -i", "sh",
    ],
)  # fmt: skip
@pytest.mark.slow
def test_a_command_that_reads_input_ends_or_times_out(
    workspace: Walled, command: str
) -> None:
    result = workspace.run(command, seconds=5)

    assert result.code is not None or result.timed_out


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [":(){ :|:& };:", ":(){ :|:& };:; sleep 100", FORKS.format(2000)]
)
def test_a_command_over_the_process_limit_is_stopped_with_a_reason(
    workspace: Walled, command: str
) -> None:
    beats, ended = list[float](), list[Finished]()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(beat, beats)
            ended.append(
                await workspace.commands.run(command, cwd=str(workspace.root), seconds=10)
            )
            group.cancel_scope.cancel()

    anyio.run(main)
    finished = ended[0]

    assert finished.stopped == "it ran more than 60 processes at a time"
    assert finished.code is None
    assert len(beats) > 1  # the event loop runs meanwhile


def test_a_command_below_the_process_limit_succeeds(workspace: Walled) -> None:
    result = workspace.run("for i in $(seq 30); do sleep 0.3 & done; wait; echo done")

    assert (result.code, result.text, result.stopped) == (0, "done\n", "")


@pytest.mark.slow
def test_a_command_over_the_memory_limit_is_stopped_with_a_reason(
    workspace: Walled,
) -> None:
    alone = workspace.run(
        "python3 -c 'x = b\"x\" * 400_000_000; import time; time.sleep(9)'"
    )
    together = workspace.run(
        "for i in 1 2 3; do python3 -c 'import time; x = b\"x\" * 150_000_000; time.sleep(9)' & "
        "done; wait"
    )

    assert alone.stopped == together.stopped == "it used more than 300 MB of memory"


def test_a_crashed_command_leaves_no_core_file(workspace: Walled) -> None:
    assert workspace.run("ulimit -c; kill -SEGV $$").text == "0\n"
    assert os.listdir(workspace.root) == []


@pytest.mark.slow
def test_five_gigabytes_of_output_are_counted_and_do_not_block_the_event_loop(
    workspace: Walled,
) -> None:
    many, texts, beats = 5_000_000_000, list[str](), list[float]()
    ended = list[Finished]()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(beat, beats)
            ended.append(
                await workspace.commands.run(
                    f"head -c {many} /dev/zero", cwd=str(workspace.root), seconds=100,
                    on_output=texts.append,
                )
            )  # fmt: skip
            group.cancel_scope.cancel()

    began = time.monotonic()
    anyio.run(main)
    took, finished = time.monotonic() - began, ended[0]

    assert len(finished.start) + len(finished.end) + finished.dropped == many
    assert len(texts) <= took * 21 + 3
    assert max(map(len, texts)) < 40_000
    assert len(beats) > 10  # the event loop runs meanwhile


def test_output_is_published_in_few_pieces_and_completely(workspace: Walled) -> None:
    texts = list[str]()

    result = workspace.run("for i in $(seq 2000); do echo $i; done", on_output=texts.append)

    assert "".join(texts) == result.text
    assert len(texts) < 40


def test_a_command_that_writes_to_a_full_disk_gets_an_error(workspace: Walled) -> None:
    result = workspace.run(
        "ulimit -f 100; head -c 10000000 /dev/zero > big; echo $?; echo x > /dev/full"
    )

    assert result.code == 1
    assert "No space left on device" in result.text
    assert (workspace.root / "big").stat().st_size <= 102_400


LEAVER = """
import anyio, os, sys
from pathlib import Path
from refold.place.limits import Limits
from refold.values.tools import Confinement
from tests.place.walled import walled

CALM = "sleep 1002 & setsid sleep 1002 & sleep 1002"

async def main():
    with walled(Path(sys.argv[1]), profile=sys.argv[2]) as ws:
        await ws.commands.run(
            " ".join(sys.argv[3:]) or CALM, cwd=str(ws.root), seconds=100, on_output=print,
            confines=Confinement(writes=True),
        )

anyio.run(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["workspace", "off"])
@pytest.mark.parametrize("order", [signal.SIGKILL, signal.SIGTERM])
def test_processes_of_a_killed_refold_are_killed(
    tmp_path: Path, profile: str, order: signal.Signals, nobody_is_left: str
) -> None:
    if profile == "workspace":
        needs_bubblewrap()
    here = Path(__file__).parents[2]
    command_line = [sys.executable, "-c", LEAVER, str(tmp_path / "ws"), profile]
    with subprocess.Popen(command_line, cwd=here) as killed:
        while len(sleepers(1002)) < 3:
            time.sleep(0.02)
        killed.send_signal(order)
        killed.wait()

    if profile == "off":
        assert reap_strays() >= 3
    until = time.monotonic() + 30
    # The shell above them goes a moment later.
    while (sleepers(1002) or list_marked(nobody_is_left)) and time.monotonic() < until:
        time.sleep(0.02)
    assert sleepers(1002) == []


# Makes the first process of the sandbox call prctl(PR_SET_PDEATHSIG, 0), then sleeps.
_CLEARS = """
import ctypes, os, platform, sys

pytestmark = pytest.mark.usefixtures("port")
libc = ctypes.CDLL(None); libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
if platform.machine() == "x86_64":
    libc.ptrace({how}, 1, None, None)
    {stop}
    os.waitpid(1, 0x40000000)
    regs = (ctypes.c_ulong * 27)(); libc.ptrace(12, 1, None, regs)
    changed = (ctypes.c_ulong * 27)(*regs)
    memory = open("{memory}", "r+b", buffering=0)
    memory.seek(regs[16]); code = memory.read(3); memory.seek(regs[16])
    memory.write(bytes([15, 5, 204]))
    changed[15], changed[10], changed[14], changed[13] = 2**64 - 1, 157, 1, 0
    libc.ptrace(13, 1, None, changed); libc.ptrace(7, 1, None, None); os.waitpid(1, 0x40000000)
    memory.seek(regs[16]); memory.write(code)
    libc.ptrace(13, 1, None, regs); libc.ptrace(17, 1, None, None)
"""
SURVIVES = {
    "attaches to the first process": _CLEARS.format(how=16, stop="", memory="/proc/1/mem"),
    "seizes it": _CLEARS.format(
        how=0x4206, stop="libc.ptrace(0x4207, 1, None, None)", memory="/proc/1/mem"
    ),
    "uses the memory of its thread": _CLEARS.format(
        how=16, stop="", memory="/proc/1/task/1/mem"
    ),
    "is the first process of another space": (
        "import ctypes, os; ctypes.CDLL(None).unshare(0x30020000); os.fork()"
    ),
    "becomes a daemon": "import os; os.fork() and os._exit(0); os.setsid(); os.fork()",
    "ignores what can be ignored": (
        "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("evasion", SURVIVES)
def test_a_command_that_resists_signals_ends_with_a_killed_refold(
    tmp_path: Path, evasion: str, nobody_is_left: str
) -> None:
    needs_bubblewrap()
    here = Path(__file__).parents[2]
    script = tmp_path / "ws/survive.py"
    script.parent.mkdir()
    script.write_text(SURVIVES[evasion])
    line = "(python3 survive.py; touch ready; sleep 1002) & sleep 1002"
    command_line = [sys.executable, "-c", LEAVER, str(tmp_path / "ws"), "workspace", line]
    with subprocess.Popen(command_line, cwd=here) as killed:
        while not (tmp_path / "ws/ready").exists():
            time.sleep(0.02)
        killed.kill()
        killed.wait()

    until = time.monotonic() + 30
    while (sleepers(1002) or list_marked(nobody_is_left)) and time.monotonic() < until:
        time.sleep(0.02)
    assert sleepers(1002) == []


def test_reap_strays_spares_processes_of_a_running_refold(workspace: Walled) -> None:
    finisheds = list[Finished]()

    async def main() -> None:
        async def slow() -> None:
            finisheds.append(
                await workspace.commands.run(
                    "sleep 0.4; echo done", cwd=str(workspace.root), seconds=9
                )
            )

        async with anyio.create_task_group() as group:
            group.start_soon(slow)
            await anyio.sleep(0.2)
            reap_strays()

    anyio.run(main)

    assert finisheds[0].text == "done\n"


def test_a_cancelled_command_leaves_no_process(workspace: Walled) -> None:
    async def main() -> None:
        with anyio.move_on_after(0.3):
            await workspace.commands.run(
                f"setsid sleep {LONG} & sleep {LONG}", cwd=str(workspace.root), seconds=None
            )

    anyio.run(main)

    assert sleepers(LONG) == []


@pytest.mark.slow
def test_files_in_shared_memory_count_toward_the_memory_limit(tmp_path: Path) -> None:
    needs_bubblewrap()
    with walled(tmp_path / "ws", limits=LIMITS) as ws:
        result = ws.run("head -c 400000000 /dev/zero > /dev/shm/x; sleep 9")

    assert result.stopped == "it used more than 300 MB of memory"
