"""The server is started when needed and never outlives us."""

import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.errors import Refused
from refold.provider.local.server import ServerProcess

PRETENDING = Path(__file__).with_name("pretending.py")


def server(directory: Path, how: str = "", **more: Any) -> ServerProcess:
    model = directory / "model.gguf"
    command = (sys.executable, "-S", "-E", str(PRETENDING), how)
    return ServerProcess(model, directory / "log", command=command, **more)


def use(server: ServerProcess, what: Callable[[], Awaitable[None]]) -> None:
    async def inside() -> None:
        try:
            await what()
        finally:
            await server.stop()

    anyio.run(inside)


def said(directory: Path) -> dict[str, Any]:
    """What the process wrote into its log about itself."""
    return json.loads((directory / "log").read_text().splitlines()[0])


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_is_started_once_and_ended_with_its_provider(tmp_path: Path) -> None:
    served = server(tmp_path)

    async def twice() -> None:
        assert not served.running
        first, second = await served.start(), await served.start()
        assert (first.url, first) == ("http://127.0.0.1:9", second)
        assert served.running
        assert lives(said(tmp_path)["pid"])

    use(served, twice)

    assert not served.running
    assert not lives(said(tmp_path)["pid"])


def test_two_that_need_it_at_once_get_the_same(tmp_path: Path) -> None:
    served = server(tmp_path)
    found: list[str] = []

    async def both() -> None:
        async def one() -> None:
            found.append((await served.start()).key)

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)

    use(served, both)

    assert len(found) == 2
    assert len(set(found)) == 1


def test_it_knows_what_to_serve_and_none_of_our_keys(tmp_path: Path) -> None:
    environ = {"HOME": "/h", "PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-secret"}
    served = server(tmp_path, environ=environ, context=512, template="{{ messages }}")

    async def once() -> None:
        key = (await served.start()).key
        order = said(tmp_path)["order"]
        assert order["template"] == "{{ messages }}"
        assert (order["path"], order["context"]) == (str(tmp_path / "model.gguf"), 512)
        assert order["key"] == key
        assert order["threads"] >= 1

    use(served, once)

    found = said(tmp_path)
    assert set(found["environ"]) - {"LC_CTYPE"} == {"HOME", "PATH", "OMP_WAIT_POLICY"}
    assert found["environ"]["OMP_WAIT_POLICY"] == "passive"
    assert found["cwd"] == str(tmp_path)


def test_one_that_dies_while_loading_is_told_in_its_own_words(tmp_path: Path) -> None:
    served = server(tmp_path, "fail")

    async def once() -> None:
        with pytest.raises(Refused, match="load_model: failed to load model") as found:
            await served.start()
        assert str(tmp_path / "log") in str(found.value)

    use(served, once)

    assert not served.running


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    served = ServerProcess(tmp_path / "m", tmp_path / "log", command=("/no/such/program",))

    async def once() -> None:
        with pytest.raises(Refused, match="/no/such/program"):
            await served.start()

    use(served, once)


def test_one_that_was_killed_is_started_again(tmp_path: Path) -> None:
    served = server(tmp_path)

    async def again() -> None:
        first = await served.start()
        killed = said(tmp_path)["pid"]
        os.kill(killed, signal.SIGKILL)
        while served.running:
            await anyio.lowlevel.checkpoint()
        second = await served.start()
        assert second.key != first.key
        assert said(tmp_path)["pid"] != killed

    use(served, again)


def test_a_person_who_does_not_want_to_wait_leaves_nothing_behind(tmp_path: Path) -> None:
    served = server(tmp_path, "silent")

    async def impatient() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(served.start)
            while not (tmp_path / "log").exists() or not (tmp_path / "log").read_text():
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert not lives(said(tmp_path)["pid"])

    use(served, impatient)


def test_it_ends_when_we_are_killed(tmp_path: Path) -> None:
    """Nobody is left to tell it: it notices that its stdin is closed."""
    held, other = os.pipe()
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-S", "-E", str(PRETENDING)],
        {},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, held, 0),
            (os.POSIX_SPAWN_CLOSE, other),
            (
                os.POSIX_SPAWN_OPEN,
                2,
                str(tmp_path / "log"),
                os.O_CREAT | os.O_WRONLY,
                0o600,
            ),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0o600),
        ],
    )
    os.write(other, b"{}\n")
    os.close(other)  # as the kernel does for the killed

    assert os.waitpid(child, 0)[1] == 0
    os.close(held)
