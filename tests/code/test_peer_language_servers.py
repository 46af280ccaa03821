"""Real language servers, in the sandbox, in sessions: basedpyright and typescript-language-server.

The first is installed with the tools for developers, the other by `scripts/peers`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from refold import Agent
from refold.journal.events.kinds import Ended
from refold.testing.providers import Line, ScriptedProvider
from tests.place.walled import needs_bubblewrap

PEERS = Path(os.environ.get("REFOLD_PEERS") or Path(__file__).parents[2] / ".peers")
PYTHON = Path(sys.prefix) / "bin"
TYPESCRIPT = PEERS / "typescript" / "node_modules" / ".bin"
pytestmark = [pytest.mark.peer, pytest.mark.timeout(240)]

SHAPES = {
    "shapes.py": """\
class Square:
    def __init__(self, side: int) -> None:
        self.side = side

    def area(self) -> int:
        return self.side ** 2


def double(square: Square) -> int:
    return 2 * square.area()
""",
    "main.py": """\
from shapes import Square, double

print(double(Square("3")))
""",
}
TS_SHAPES = {
    "tsconfig.json": '{"compilerOptions": {"strict": true, "module": "nodenext"}}',
    "shapes.ts": """\
export class Square {
  constructor(readonly side: number) {}
  area(): number {
    return this.side ** 2;
  }
}
export const double = (square: Square) => 2 * square.area();
""",
    "main.ts": """\
import { Square, double } from "./shapes.js";
console.log(double(new Square("3")));
""",
}


def needs(program: Path) -> None:
    needs_bubblewrap()
    if not program.exists():
        pytest.skip(f"{program.name} is not in {program.parent}")


def call_tools(
    directory: Path, programs: Path, files: Mapping[str, str], *lines: Line
) -> list[str]:
    """Return what the calls of a session gave the model."""
    work = directory / "work"
    work.mkdir()
    for name, text in files.items():
        (work / name).write_text(text)
    node = shutil.which("node") or "/usr/bin/node"
    path = f"{programs}:{Path(node).parent}:/usr/bin:/bin"

    async def use_session() -> list[str]:
        agent = Agent(
            provider=ScriptedProvider(*lines, "Done."),
            directory=work,
            home=directory / "home",
            mode="accept-edits",
            settings={
                "sandbox.readable": [sys.base_prefix, sys.prefix, str(PEERS)],
                "code.answer_seconds": 120,
            },
        )
        async with agent.session() as session:
            await session.run("Go.")
            entries = await session.reports.entries()
        return [entry.event.text for entry in entries if isinstance(entry.event, Ended)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path)
        patch.chdir(work)  # the directories above the workspace are not trusted
        return anyio.run(use_session)


def call(tool: str, **arguments: object) -> Line:
    return [(tool, json.dumps(arguments))]


def test_basedpyright_finds_symbols_references_errors_and_new_errors_of_an_edit(
    tmp_path: Path,
) -> None:
    needs(PYTHON / "basedpyright-langserver")

    result = call_tools(
        tmp_path, PYTHON, SHAPES,
        call("symbols", query="Square"),
        call("symbols", file="shapes.py"),
        call("references", file="shapes.py", line=9, symbol="double"),
        call("diagnostics", file="main.py"),
        call("read_file", path="shapes.py"),
        call("diagnostics"),
        call("edit_file", path="shapes.py", old="square.area()", new="square.aera()"),
    )  # fmt: skip

    by = "By basedpyright-langserver."
    assert "shapes.py:1 class Square\n" in result[0]
    assert result[1] == (
        f"1 class Square\n2 method Square.__init__\n3 variable Square.side\n"
        f"5 method Square.area\n9 function double\n{by}"
    )
    assert result[2] == (
        "defined:\n  shapes.py:9: def double(square: Square) -> int:\nused:\n"
        "  main.py:1: from shapes import Square, double\n"
        f'  main.py:3: print(double(Square("3")))\n{by}'
    )
    assert result[3].startswith(
        "main.py:3: error: Argument of type \"Literal['3']\" cannot"
    )
    assert result[5] == f"No problems in shapes.py.\n{by}"
    assert result[6].startswith(
        "Edited shapes.py: line 10 (+1 -1).\nbasedpyright-langserver reports "
        'a new problem caused by this edit:\nshapes.py:10: error: Cannot access attribute "aera"'
    )


def test_typescript_language_server_finds_symbols_uses_and_errors(tmp_path: Path) -> None:
    needs(TYPESCRIPT / "typescript-language-server")

    result = call_tools(
        tmp_path, TYPESCRIPT, TS_SHAPES,
        call("symbols", file="shapes.ts"),
        call("symbols", query="squ"),
        call("references", file="main.ts", line=2, symbol="double"),
        call("diagnostics", file="main.ts"),
    )  # fmt: skip

    by = "By typescript-language-server."
    assert result == [
        "1 class Square\n2 constructor Square.constructor\n2 property Square.side\n"
        f"3 method Square.area\n7 constant double\n{by}",
        f"shapes.ts:1 class Square\n{by}",
        "defined:\n  shapes.ts:7: export const double = (square: Square) => 2 * "
        "square.area();\nused:\n"
        '  main.ts:1: import { Square, double } from "./shapes.js";\n'
        f'  main.ts:2: console.log(double(new Square("3")));\n{by}',
        "main.ts:2: error: Argument of type 'string' is not assignable to parameter of type "
        f"'number'. (2345)\n{by}",
    ]


def test_language_servers_exit_when_refold_is_killed(tmp_path: Path) -> None:
    needs(PYTHON / "basedpyright-langserver")
    work = tmp_path / "work"
    work.mkdir()
    (work / "shapes.py").write_text(SHAPES["shapes.py"])
    script = tmp_path / "script.jsonl"
    lines = [
        {"calls": [{"tool": "symbols", "arguments": {"file": "shapes.py"}}]},
        {"calls": [{"tool": "bash", "arguments": {"command": "sleep 600"}}]},
    ]
    script.write_text("\n".join(map(json.dumps, lines)))
    environ = {
        **os.environ,
        "PATH": f"{PYTHON}:/usr/bin:/bin",
        "REFOLD_HOME": str(tmp_path / "home"),
        "REFOLD_SANDBOX__READABLE": f"{sys.base_prefix},{sys.prefix}",
    }
    started = subprocess.Popen(
        [sys.executable, "-m", "refold", "-p", "go", "--script", str(script),
         "--permission-mode", "bypass"],
        cwd=work, env=environ, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert wait_until(60, lambda: of_kind(started.pid, "langserver"))
        servers = of_kind(started.pid, "langserver")
        assert wait_until(60, lambda: of_kind(started.pid, "sleep"))
    finally:
        started.send_signal(signal.SIGKILL)
        started.wait()

    assert wait_until(10, lambda: not any(Path(f"/proc/{pid}").exists() for pid in servers))


def of_kind(above: int, word: str) -> list[int]:
    """Return the processes below this one whose command line has the word."""
    parents, pids = dict[int, int](), list[int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                stat = (entry / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat[1])
            if word in words:
                pids.append(int(entry.name))

    def below(pid: int) -> bool:
        while pid in parents and pid != above:
            pid = parents[pid]
        return pid == above

    return [pid for pid in pids if below(pid) and pid != above]


def wait_until(seconds: float, condition: object) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():  # pyright: ignore[reportCallIssue]
            return True
        time.sleep(0.05)
    return False
