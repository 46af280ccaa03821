"""Runs an agent against the mock server, and measures the run.

Every run has a directory of its own for its home and its workspace, and a server of its
own, so nothing remains of the run before.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
END = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"  # the command that ends mini-swe-agent
PROMPT = (
    "Run the steps, one shell command at a time, until there are no more; then say DONE."
)


@dataclass(frozen=True)
class Agent:
    """A command to be measured, in which `{prompt}` and `{steps}` are replaced.

    `extra` are environment variables. `last` is the shell command that lets the agent end, or ""
    if a response without a call does.
    """

    name: str
    command: tuple[str, ...]
    extra: tuple[tuple[str, str], ...] = ()
    last: str = ""


@dataclass(frozen=True)
class Run:
    """The figures of a run. Times are in seconds, sizes in bytes.

    `memory` is the largest process of the run, in MB. `gaps[k]` is the time from the end of
    answer k to the end of the next request. `computed[k]` is the processor time of the agent
    itself until request k, without the programs that it started. A busy machine makes times
    longer, but hardly processor times.
    """

    first_request: float
    computed: tuple[float, ...]
    exit_lag: float
    memory: float
    gaps: tuple[float, ...]
    body: int
    disk: int


def agents(peers: bool = False) -> list[Agent]:
    """Return the agents that are installed: the floor, refold with and without its sandbox,
    and with `peers` mini-swe-agent.
    """
    python = sys.executable
    result = [Agent("floor", (python, str(ROOT / "bench/floor.py"), "{prompt}"))]
    refold = Path(python).parent / "refold"
    if refold.exists():
        line = (
            f"{refold} -p {{prompt}} -m openai-chat/mock-model --yolo --max-turns {{steps}}"
        )
        # The price of the model is unknown, and 2,000 steps are many tokens.
        unbounded = (("REFOLD_BUDGET__TOKENS", "0"), ("REFOLD_BUDGET__DOLLARS", "0"))
        open_ = (*unbounded, ("REFOLD_SANDBOX__PROFILE", "off"))
        result.append(Agent("refold", tuple(line.split(" ")), unbounded))
        result.append(Agent("refold, no sandbox", tuple(line.split(" ")), open_))
    mini = ROOT / ".peers/mini/bin/mini"
    if peers and mini.exists():
        line = f"{mini} -y --exit-immediately -l 0 -m openai/mock-model -t {{prompt}}"
        quiet = ("MSWEA_CONFIGURED", "true"), ("MSWEA_SILENT_STARTUP", "1")
        free = (
            ("MSWEA_COST_TRACKING", "ignore_errors"),
            ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
        )
        result.append(Agent("mini-swe-agent", tuple(line.split(" ")), (*quiet, *free), END))
    return result


def measure(agent: Agent, turns: int, limit: float = 600) -> Run:
    """Run the agent once. Raises `RuntimeError` with its output if it made too few requests."""
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as directory:
        here = Path(directory)
        with serve(turns, agent.last, here) as port:
            return watch(agent, turns, port, here, limit)


@contextmanager
def serve(turns: int, last: str, directory: Path) -> Iterator[int]:
    port_file = directory / "port"
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "bench.mock_server", "--turns", str(turns)),
            *("--last", last),
            *("--log", str(directory / "log"), "--port-file", str(port_file)),
            *("--pid-file", str(directory / "pid")),
        ],
        cwd=ROOT,
    )
    try:
        while not port_file.exists():
            if server.poll() is not None:
                raise RuntimeError("the mock server did not start")
            time.sleep(0.005)
        yield int(port_file.read_text())
    finally:
        server.terminate()
        server.wait()


def watch(agent: Agent, turns: int, port: int, directory: Path, limit: float) -> Run:
    work, home = directory / "work", directory / "home"
    work.mkdir()
    home.mkdir()
    command = [part.format(prompt=PROMPT, steps=turns + 10) for part in agent.command]
    with (directory / "said").open("w+b") as file:
        began = time.monotonic()
        # `wait4` returns the memory of the process and of the children that it awaited.
        process = subprocess.Popen(
            command,
            cwd=work,
            env=environment(agent, port, home),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        (directory / "pid").write_text(str(process.pid))
        usage = wait(process, limit)
        over = time.monotonic()
        file.seek(0)
        text = file.read().decode(errors="replace")
    rows = [json.loads(row) for row in (directory / "log").read_text().splitlines()]
    if len(rows) < turns + 1:
        raise RuntimeError(
            f"{agent.name} made {len(rows)} of {turns + 1} requests, "
            f"exit {process.returncode}: {text[-2000:]}"
        )
    return Run(
        first_request=rows[0]["came"] - began,
        # The servers of `bench.wires` do not measure the processor time.
        computed=tuple(row.get("computed", 0.0) for row in rows),
        exit_lag=over - rows[-1]["went"],
        memory=usage / 1024,
        gaps=tuple(b["came"] - a["went"] for a, b in itertools.pairwise(rows)),
        body=rows[-1]["bytes"],
        disk=sum(f.stat().st_size for f in home.rglob("*") if f.is_file()),
    )


def environment(agent: Agent, port: int, home: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "REFOLD_HOME": str(home / "refold"),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "OPENAI_API_BASE": f"http://127.0.0.1:{port}/v1",
        "OPENAI_API_KEY": "sk-nobody",
        **dict(agent.extra),
    }


def wait(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Wait for the end of a process. Return the largest resident size in kB.

    It is that of the process or of a child that the process awaited.
    """
    late = threading.Timer(seconds, process.kill)
    late.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        late.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss // (1024 if sys.platform == "darwin" else 1)


def run_alternately(
    chosen: Sequence[Agent], turns: int, times: int
) -> dict[str, list[Run]]:
    """Measure the agents in turn, `times` rounds, so that other load falls on all of them."""
    data: dict[str, list[Run]] = {agent.name: [] for agent in chosen}
    going = list(chosen)
    for _ in range(times):
        for agent in list(going):
            try:
                data[agent.name].append(measure(agent, turns))
            except RuntimeError as error:
                print(f"  left out: {error}", file=sys.stderr)
                going.remove(agent)
    if not data["floor"]:
        raise SystemExit("the floor itself did not run: the figures would mean nothing")
    return {name: runs for name, runs in data.items() if runs}
