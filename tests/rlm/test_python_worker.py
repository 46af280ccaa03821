"""The worker as its host sees it: cells, values, calls, time, variables."""

from pathlib import Path

import anyio
import pytest

from refold.rlm.worker_port import VariableReport, WorkerLimits, WorkerLost
from tests.place.walled import needs_bubblewrap
from tests.rlm.walled_python import Session, python, run_with_session, value


@pytest.fixture(autouse=True)
def _walls() -> None:
    needs_bubblewrap()


def test_a_cell_returns_its_output_and_the_value_of_its_last_line(
    tmp_path: Path,
) -> None:
    async def use_session(session: Session) -> None:
        assert await session.text("x = [1, 2]\nprint('hello')\nx") == "hello\n[1, 2]"
        assert await session.text("x.append(3)") == ""
        assert await session.text("None") == ""
        assert await session.text("") == ""
        assert await session.text("# nothing") == ""
        assert await session.text("x; y = 1") == ""
        assert await session.text("import os; os.system('echo from a program')") == (
            "0\n[printed by programs]\nfrom a program"
        )
        await session.cell("def f(a): return a * y\nclass P:\n    z = f(2)")
        assert await session.text("P().z, f(3), __name__, P.__module__") == (
            "(2, 3, '__main__', '__main__')"
        )
        assert session.printed[0] == "hello"

    run_with_session(tmp_path / "ws", use_session)


def test_tracebacks_name_only_lines_of_cells(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        await session.cell("def half(n):\n    return 1 / n")
        cell = await session.cell("print('before')\nhalf(0)")
        assert cell.failed
        assert cell.text == (
            "before\n  line 2: half(0)\n  an earlier cell, line 2, in half: return 1 / n\n"
            "ZeroDivisionError: division by zero"
        )
        cell = await session.cell("x = (1,\ny = 2")
        assert cell.text == (
            "  line 1\n    x = (1,\n        ^\nSyntaxError: '(' was never closed"
        )
        cell = await session.cell("import json\njson.loads('{')")
        assert "line 2: json.loads('{')" in cell.text
        assert "decoder.py" in cell.text
        assert cell.text.endswith("line 1 column 2 (char 1)")
        cell = await session.cell("try: 1/0\nexcept ZeroDivisionError: raise KeyError('k')")
        assert "division by zero\nwhich led to:" in cell.text

    run_with_session(tmp_path / "ws", use_session)


def test_values_passed_to_the_host_are_converted_to_json(tmp_path: Path) -> None:
    code = (
        "import datetime, decimal, pathlib, dataclasses, enum, collections\n"
        "@dataclasses.dataclass\n"
        "class P: x: int; y: tuple\n"
        "E = enum.Enum('E', {'A': 'a'})\n"
        "echo([{3, 1}, (1, 2), datetime.date(2020, 1, 2), decimal.Decimal('1.5'),\n"
        "  pathlib.Path('/x'), P(1, (2,)), E.A, {1: 'a', None: 'b', False: 'c'}, 2 ** 70,\n"
        "  range(3), collections.Counter('aa'), {'k': 1}.keys(), True, None, '\\ud83d\\ude00'])"
    )

    async def use_session(session: Session) -> None:
        cell = await session.cell(
            f"{code[: code.rindex('echo')]}FINAL({code[code.rindex('echo') :]})"
        )
        assert value(cell) == [
            [1, 3], [1, 2], "2020-01-02", "1.5", "/x", {"x": 1, "y": [2]}, "a",
            {"1": "a", "null": "b", "false": "c"}, 2**70, [0, 1, 2], {"a": 2}, ["k"], True, None, "😀",
        ]  # fmt: skip
        assert (
            await session.text(
                "a = []\na.append(a)\ntry: FINAL(a)\nexcept TypeError as e: print('refused')"
            )
            == "refused"
        )

    run_with_session(tmp_path / "ws", use_session)


def test_a_failed_slot_is_marked_and_falsy(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        text = await session.text(
            "all = map_lm(['a', 'b', 'c'], 'q')\n"
            "print([bool(one) for one in all], all[1].reason, isinstance(all[1], Failed))\n"
            "[one for one in all if one]"
        )
        assert text == "[True, False, True] overloaded True\n['one', 'three']"
        assert value(await session.cell("FINAL(all)"))[1] == {"__failed__": "overloaded"}  # pyright: ignore[reportIndexIssue]

    run_with_session(tmp_path / "ws", use_session)


def test_concurrent_calls_of_threads_get_their_own_answers(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        text = await session.text(
            "from concurrent.futures import ThreadPoolExecutor\n"
            "with ThreadPoolExecutor(32) as pool:\n"
            "    got = list(pool.map(echo, range(500)))\n"
            "got == list(range(500))"
        )
        assert text == "True"
        assert len(session.host.heard) == 500

    run_with_session(tmp_path / "ws", use_session)


@pytest.mark.slow
def test_computing_time_counts_while_another_thread_waits_for_the_host(
    tmp_path: Path,
) -> None:
    code = (
        "import threading\n"
        "def chain():\n"
        "    while True: echo(1)\n"
        "for _ in range(4): threading.Thread(target=chain, daemon=True).start()\n"
        "while True: pass"
    )

    async def slow(name: str, arguments: object) -> object:
        await anyio.sleep(0.2)
        return name

    async def use_session(session: Session) -> None:
        with anyio.fail_after(60):
            cell = await session.worker.run(code, slow, session.printed.append)
        assert cell.failed
        assert "the cell ran over 1 s" in cell.text

    run_with_session(tmp_path / "ws", use_session, WorkerLimits(seconds=1))


def test_a_cancelled_cell_is_stopped_and_its_calls_with_it(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        for code in ("rlm('for ever')", "while True: pass", "import time; time.sleep(1e9)"):
            with anyio.move_on_after(0.1):
                await session.cell(f"x = 1\n{code}")
        assert await session.text("x") == "1"

    run_with_session(tmp_path / "ws", use_session)


def test_host_calls_are_stopped_with_the_cell_that_made_them(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        code = (
            "import threading, time\nseen = []\n"
            "def ask():\n"
            "    try: rlm('for ever')\n"
            "    except HostError as e: seen.append(str(e))\n"
            "thread = threading.Thread(target=ask); thread.start()\n"
            "echo(1)"
        )
        assert await session.text(code) == "1"
        assert await session.text("thread.join(5); seen") == "['rlm was stopped.']"

    run_with_session(tmp_path / "ws", use_session)


def test_variables_can_be_set_listed_and_summarized(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        await session.put("context", "a\n" * 500_000)
        await session.put("parts", [{"__failed__": "as it stands"}])
        await session.cell("import math\nn = len(context)")
        assert await session.worker.list_variables() == (
            ("context", "str"), ("parts", "list"), ("math", "module"), ("n", "int"),
        )  # fmt: skip
        assert await session.text("SHOW_VARS()") == (
            "context: str, 1,000,000 characters\nparts: list, 1 items\nmath: module\nn: int"
        )
        assert (await session.text("context")).startswith(
            "str, 1,000,000 characters: 'a\\na"
        )
        assert len(await session.text("context")) < 1_200
        assert await session.text("parts") == "[{'__failed__': 'as it stands'}]"

    run_with_session(tmp_path / "ws", use_session)


def test_variables_are_restored_in_another_worker(tmp_path: Path) -> None:
    async def main() -> None:
        async with python(tmp_path / "ws") as session:
            await session.cell(
                "import json, math as m, dataclasses, threading\n"
                "n = 2\n"
                "def inner(x): return x * n\n"
                "def outer(x): return inner(x) + 1\n"
                "def recursive(k): return 1 if k < 2 else k * recursive(k - 1)\n"
                "def counter():\n"
                "    seen = 0\n"
                "    def more():\n"
                "        nonlocal seen; seen += 1; return seen\n"
                "    return more\n"
                "more = counter(); more()\n"
                "@dataclasses.dataclass\n"
                "class P:\n"
                "    x: int\n"
                "    def twice(self): return inner(self.x)\n"
                "p = P(4)\nask = lm\nbad = Failed('why')\n"
                "g = (i for i in range(3)); f = open('/dev/null'); lock = threading.Lock()\n"
                "holds = {'a': [threading.Lock()]}\n"
                "big = bytearray(65 * 2 ** 20)\n"
            )
            variables, report = await session.persist()
            disk = session.disk
        assert [name for name, _ in report.lost] == ["g", "f", "lock", "holds", "big"]
        assert (
            dict(report.lost)["f"]
            == "an open file cannot be kept: keep its path or its text"
        )
        assert dict(report.lost)["big"] == "too large: one variable may have 64 MB"
        assert "cannot pickle '_thread.lock' object" in dict(report.lost)["holds"]
        async with python(tmp_path / "ws") as session:
            await session.cell("gone = 1")
            restored = await session.restore(variables, disk)
            assert restored == VariableReport(report.kept)
            assert await session.text(
                "n = 10\n"
                "outer(1), recursive(5), more(), p.twice(), isinstance(p, P), ask('a', 'b'), "
                "bad.reason, isinstance(bad, Failed), m.pi > 3, json.dumps([n])"
            ) == ("(11, 120, 2, 40, True, 'lm is answered', 'why', True, True, '[10]')")
            failed = await session.cell("recursive('a')")
            assert failed.text.startswith(
                "  line 1: recursive('a')\n  an earlier cell, line 5, in recursive\n"
            )
            assert (await session.cell("gone")).failed
            _, kept_again = await session.persist()
            assert set(report.kept) <= set(kept_again.kept)

    anyio.run(main)


def test_a_variable_that_cannot_be_restored_loses_only_itself(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        await session.cell(
            "class Odd:\n"
            "    def __reduce__(self): return int, ('no number',)\n"
            "class Slow:\n"
            "    def __reduce__(self):\n"
            "        while True: pass\n"
            "a, odd, b, slow, c = 1, Odd(), 2, Slow(), 3"
        )
        variables, report = await session.persist()
        assert [name for name, _ in report.lost] == ["slow", "c"]
        assert dict(report.lost)["slow"] == "the variables took more than 0.3 s"
        restored = await session.restore(variables, session.disk)
        assert [name for name, _ in restored.lost] == ["odd"]
        assert "invalid literal for int()" in restored.lost[0][1]
        assert await session.text("a, b") == "(1, 2)"

    run_with_session(tmp_path / "ws", use_session, WorkerLimits(seconds=0.3))


def test_cells_also_run_without_a_sandbox(tmp_path: Path) -> None:
    async def use_session(session: Session) -> None:
        assert await session.text("x = 2\nx * 21") == "42"
        assert (await session.cell("FINAL(x)")).final is not None

    run_with_session(tmp_path / "ws", use_session, profile="off")


def test_a_worker_that_cannot_start_reports_the_reason(tmp_path: Path) -> None:
    from refold.place.commands import ShellCommands
    from refold.rlm.worker import PythonWorkers

    async def main() -> None:
        workers = PythonWorkers(ShellCommands(), str(tmp_path / "nowhere"))
        with pytest.raises(WorkerLost, match="there is no such directory"):
            async with workers(WorkerLimits(), {}):
                pass

    anyio.run(main)
