"""The contract of a worker, which holds for both engines: CPython, and Monty (`refold[monty]`)."""

import time
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest

from refold.rlm.worker_port import Engine, WorkerLimits, WorkerLost
from tests.place.walled import needs_bubblewrap
from tests.rlm.walled_python import Session, python, run_with_session, value

no_monty = pytest.mark.skipif(
    find_spec("pydantic_monty") is None, reason="refold[monty] is not installed"
)
both_engines = pytest.mark.parametrize(
    "engine", ["cpython", pytest.param("monty", marks=no_monty)]
)


@pytest.fixture(autouse=True)
def _walls() -> None:
    needs_bubblewrap()


@both_engines
def test_a_cell_returns_its_output_its_last_value_or_its_error(
    tmp_path: Path, engine: Engine
) -> None:
    async def use_session(session: Session) -> None:
        assert await session.text("x = [1, 2]\nprint('hello')\nx") == "hello\n[1, 2]"
        assert await session.text("x.append(3)") == ""
        assert await session.text("# nothing") == ""
        assert await session.text("x, __name__") == "([1, 2, 3], '__main__')"
        assert session.printed[0].startswith("hello")
        await session.cell("def half(n):\n    return 1 / n")
        cell = await session.cell("print('before')\nhalf(0)")
        assert (cell.failed, cell.text) == (
            True,
            "before\n  line 2: half(0)\n  an earlier cell, line 2, in half: return 1 / n\n"
            "ZeroDivisionError: division by zero",
        )
        cell = await session.cell("x = (1,\ny = 2")
        assert cell.failed
        assert "SyntaxError: " in cell.text
        assert await session.text("x") == "[1, 2, 3]"

    run_with_session(tmp_path / "ws", use_session, engine=engine)


@both_engines
def test_code_calls_host_functions_with_positional_and_keyword_arguments(
    tmp_path: Path, engine: Engine
) -> None:
    async def use_session(session: Session) -> None:
        assert await session.text("lm('text', query='why?')") == "'lm is answered'"
        assert await session.text("read_file('a.py', first=3)") == "'read_file is answered'"
        assert session.host.heard == [
            ("lm", {"input": "text", "query": "why?"}),
            ("read_file", {"path": "a.py", "first": 3}),
        ]
        assert await session.text("echo([(1, 2), {'k': None}, True])") == (
            "[[1, 2], {'k': None}, True]"
        )
        for code, error in (
            ("lm('text')", "TypeError: lm(input, query, schema=None) needs query."),
            ("lm('a', 'b', 'c', 'd')", "was given 4 arguments."),
            ("lm('a', quest='b')", "has no parameter 'quest'."),
            ("fails('the words')", "Error: the words"),
            ("echo({'a': [1, float('nan')]})", "echo['value']['a'][1] is nan"),
        ):
            cell = await session.cell(code)
            assert cell.failed
            assert error in cell.text
        text = "try:\n    fails('x')\nexcept HostError as e:\n    print(e)"
        assert await session.text(text) == "x"
        text = await session.text(
            "slots = map_lm(['a', 'b', 'c'], 'q')\n[s for s in slots if s]"
        )
        assert text.endswith("['one', 'three']")
        assert await session.text("isinstance(slots[1], Failed)") == "True"
        assert await session.text("FINAL = budget = 1") == (
            "(reserved and put back: FINAL, budget)"
        )
        assert await session.text("budget()") == "'budget is answered'"

    run_with_session(tmp_path / "ws", use_session, engine=engine)


@both_engines
def test_final_ends_a_cell_whose_variables_stay(tmp_path: Path, engine: Engine) -> None:
    async def use_session(session: Session) -> None:
        cell = await session.cell(
            "n = 5\nprint('so far')\ntry:\n    FINAL({'a': (n, 2)})\nexcept Exception:\n    n = 6"
        )
        assert (value(cell), cell.text) == ({"a": [5, 2]}, "so far\n")
        assert await session.text("n") == "5"
        cell = await session.cell("class P:\n    n = 1\nFINAL([P()])")
        assert cell.failed
        assert "TypeError: value[0]" in cell.text
        cell = await session.cell("try:\n    FINAL(1)\nexcept:\n    pass\nFINAL(2)")
        assert value(cell) == 1

    run_with_session(tmp_path / "ws", use_session, engine=engine)


@both_engines
def test_variables_are_saved_and_restored_in_another_worker(
    tmp_path: Path, engine: Engine
) -> None:
    async def main() -> None:
        async with python(tmp_path / "ws", engine=engine) as session:
            await session.put("context", "a\n" * 500_000)
            await session.put("parts", [1])
            await session.cell(
                "import math\nn = len(context)\n"
                "def twice(x):\n    return 2 * x * n\n"
                "class P:\n    def __init__(self):\n        self.x = twice(3)\n"
                "p = P()\nparts.append(2)"
            )
            assert (await session.text("SHOW_VARS()")).splitlines()[:4] == [
                "context: str, 1,000,000 characters", "parts: list, 2 items", "math: module",
                "n: int",
            ]  # fmt: skip
            variables, report = await session.persist()
            disk = session.disk
        assert (dict(report.kept)["n"], report.lost) == ("int", ())
        assert len(variables.index) < 100_000  # the material is a part of its own
        async with python(tmp_path / "ws", engine=engine) as session:
            await session.cell("gone = 1")
            restored = await session.restore(variables, disk)
            assert restored == report
            assert await session.text(
                "twice(1), p.x, parts, len(context), math.pi > 3"
            ) == ("(2000000, 6000000, [1, 2], 1000000, True)")
            assert (await session.cell("gone")).failed
            await session.cell("context = context[:10]")
            again, _ = await session.persist()
            assert not set(again.parts) & {name for name in disk if len(disk[name]) > 999}

    anyio.run(main)


@both_engines
def test_code_is_limited_in_time_and_memory_and_the_worker_survives(
    tmp_path: Path, engine: Engine
) -> None:
    async def use_session(session: Session) -> None:
        async def slow(name: str, arguments: object) -> object:
            await anyio.sleep(0.7)
            return name

        await session.cell("x = 1")
        await session.persist()
        begin = time.monotonic()
        cell = await session.worker.run("lm('a', 'b')", slow, session.printed.append)
        wall_seconds = time.monotonic() - begin
        assert cell.text == "'lm'"
        assert cell.seconds < wall_seconds - 0.6  # waiting does not count
        cell = await session.cell("while True: pass")
        assert cell.failed
        assert "Stopped: the cell ran over 0.5 s" in cell.text
        with anyio.move_on_after(0.1):
            await session.cell("rlm('for ever')")
        assert "MemoryError" in await session.text("'a' * 10**11")
        assert await session.text("x") == "1"

    limits = WorkerLimits(seconds=0.5, memory=512 * 1024**2)
    run_with_session(tmp_path / "ws", use_session, limits, engine)


@both_engines
def test_exception_of_the_host_ends_the_cell_and_propagates(
    tmp_path: Path, engine: Engine
) -> None:
    async def use_session(session: Session) -> None:
        async def broken(name: str, arguments: object) -> object:
            raise LookupError("a bug")

        with pytest.raises(LookupError, match="a bug"):
            await session.worker.run("lm('a', 'b')", broken, session.printed.append)
        assert await session.text("1") == "1"

    run_with_session(tmp_path / "ws", use_session, engine=engine)


@both_engines
def test_code_reads_the_workspace_and_changes_nothing(
    tmp_path: Path, engine: Engine
) -> None:
    async def use_session(session: Session) -> None:
        (tmp_path / "ws/a.txt").write_text("in a file\n")
        assert await session.text("open('a.txt').read()") == "'in a file\\n'"
        for path in ("a.txt", "b.txt"):
            assert (await session.cell(f"open('{path}', 'w').write('x')")).failed
        outside = tmp_path / "outside.txt"
        outside.write_text("hidden")
        assert "hidden" not in await session.text(f"open('{outside}').read()")
        assert [p.name for p in (tmp_path / "ws").iterdir()] == ["a.txt"]

    run_with_session(tmp_path / "ws", use_session, engine=engine)


@no_monty
def test_code_that_monty_does_not_support_gets_one_error_that_says_so(
    tmp_path: Path,
) -> None:
    async def use_session(session: Session) -> None:
        for code in (
            "def g():\n    yield 1",
            "import threading",
            "class P(int):\n    pass",
        ):
            cell = await session.cell(code)
            assert cell.failed
            assert cell.text.endswith("of the standard library: write it without.)")

    run_with_session(tmp_path / "ws", use_session, engine="monty")


@no_monty
def test_variables_of_the_other_engine_are_refused_with_what_to_do(tmp_path: Path) -> None:
    async def main() -> None:
        saved = dict[Engine, object]()
        engines: tuple[Engine, Engine] = ("cpython", "monty")
        for engine in engines:
            async with python(tmp_path / "ws", engine=engine) as session:
                await session.cell("x = 1")
                saved[engine], _ = await session.persist()
        for engine, other in (engines, engines[::-1]):
            async with python(tmp_path / "ws", engine=engine) as session:
                with pytest.raises(WorkerLost, match=f'python.engine = "{other}"'):
                    await session.restore(saved[other], {})  # pyright: ignore[reportArgumentType] - as saved

    anyio.run(main)
