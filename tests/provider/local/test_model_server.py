"""One server of an embedded model for all sessions of a user: found, shared, and ended."""

import json
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.errors import Refused
from refold.provider.local.serve import ServerFacts, process_start, reason_to_end
from refold.provider.local.server import (
    Address,
    ServerStatus,
    Serving,
    SharedServer,
    running_servers,
    stop,
)

PRETENDING = Path(__file__).with_name("pretending.py")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory with a model; its server is stopped with the test."""
    (tmp_path / "model.gguf").write_bytes(b"a model")
    yield tmp_path
    for each in running(tmp_path):
        stop(each)


def server(place: Path, how: str = "", keep: float = 60.0, **more: Any) -> SharedServer:
    command = (sys.executable, str(PRETENDING), how)
    serving = Serving(keep=keep, context=512, template="{{ messages }}")
    environ = more.pop("environ", dict(os.environ))
    return SharedServer(
        place / "model.gguf", place / "local", serving, command=command, environ=environ
    )


def running(place: Path) -> list[ServerStatus]:
    return list(running_servers(place / "local", time.time()))


def used(server: SharedServer, prefix: str = "") -> Address:
    async def once() -> Address:
        async with server.lease(prefix) as address:
            return address

    return anyio.run(once)


def log(place: Path) -> list[Any]:
    """What the newest server said: first of itself, then what was posted to it."""
    (path,) = (place / "local").glob("*.log")
    return [json.loads(line) for line in path.read_text().splitlines()]


def ended(pid: int, within: float = 10.0) -> bool:
    until = time.monotonic() + within
    while process_start(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not process_start(pid)


@pytest.mark.slow
def test_all_sessions_share_the_server_that_the_first_one_started(place: Path) -> None:
    first, second = server(place), server(place)
    assert not second.running

    addresses = used(first), used(second)

    assert addresses[0] == addresses[1]
    assert second.running
    (found,) = running(place)
    assert (found.record.pid, found.in_use) == (log(place)[0]["pid"], False)


@pytest.mark.slow
def test_sessions_that_need_it_at_once_wait_for_one_that_loads(place: Path) -> None:
    found: list[Address] = []

    async def at_once() -> None:
        async def one() -> None:
            async with server(place, "silent").lease() as address:
                found.append(address)

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)
            group.start_soon(one)
            (place / "go").touch()

    anyio.run(at_once)

    assert len(found) == 3
    assert len(set(found)) == 1


@pytest.mark.slow
def test_only_its_user_can_read_where_it_serves_and_with_which_key(place: Path) -> None:
    used(server(place))

    modes = {
        path.name.partition(".")[2]: stat.S_IMODE(path.stat().st_mode)
        for path in (place / "local").iterdir()
    }

    assert modes == {"json": 0o600, "lock": 0o600, "log": 0o600, "use": 0o600}
    assert stat.S_IMODE((place / "local").stat().st_mode) == 0o700


@pytest.mark.slow
def test_it_knows_what_to_serve_and_none_of_our_keys(place: Path) -> None:
    environ = {"HOME": "/h", "PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-secret"}
    if path := os.environ.get("PYTHONPATH"):
        environ["PYTHONPATH"] = path

    address = used(server(place, environ=environ))

    said = log(place)[0]
    order = said["order"]
    assert (order["model"], order["context"]) == (str(place / "model.gguf"), 512)
    assert (order["template"], order["key"]) == ("{{ messages }}", address.key)
    assert order["threads"] >= 1
    known = {"HOME", "PATH", "OMP_WAIT_POLICY", "PYTHONPATH", "LC_CTYPE"}
    assert set(said["environ"]) <= known
    assert said["environ"]["OMP_WAIT_POLICY"] == "passive"
    assert said["cwd"] == str(place)


@pytest.mark.slow
def test_it_ends_some_time_after_the_last_use(place: Path) -> None:
    used(server(place, keep=0.5))
    (found,) = running(place)

    assert ended(found.record.pid)
    assert running(place) == []
    assert not found.path.exists()


@pytest.mark.slow
def test_it_does_not_end_while_it_is_used_however_long_that_takes(place: Path) -> None:
    async def long() -> bool:
        async with server(place, keep=0.1).lease():
            (found,) = running(place)
            assert found.in_use
            return await anyio.to_thread.run_sync(ended, found.record.pid, 2.5)

    assert anyio.run(long) is False


@pytest.mark.slow
def test_it_ends_when_its_files_are_removed(place: Path) -> None:
    used(server(place))
    (found,) = running(place)

    shutil.rmtree(place / "local")

    assert ended(found.record.pid)


@pytest.mark.slow
def test_one_that_was_killed_is_started_again_with_another_key(place: Path) -> None:
    first = used(server(place))
    (found,) = running(place)
    os.kill(found.record.pid, signal.SIGKILL)
    assert ended(found.record.pid)

    second = used(server(place))

    assert second.key != first.key
    (again,) = running(place)
    assert again.record.pid != found.record.pid


@pytest.mark.slow
def test_another_file_under_the_same_name_gets_a_server_of_its_own(place: Path) -> None:
    first = used(server(place))
    (place / "model.gguf").write_bytes(b"a newer model")

    second = used(server(place))

    assert first.url != second.url
    assert len(running(place)) == 2


@pytest.mark.slow
def test_stopping_ends_it_at_once_also_while_it_is_used(place: Path) -> None:
    async def use() -> None:
        async with server(place).lease():
            (found,) = running(place)
            await anyio.to_thread.run_sync(stop, found)
            assert process_start(found.record.pid) == ""

    anyio.run(use)

    assert running(place) == []


@pytest.mark.slow
def test_who_does_not_want_to_wait_leaves_nothing_behind(place: Path) -> None:
    async def impatient() -> None:
        waits = server(place, "silent")
        async with anyio.create_task_group() as group:

            async def one() -> None:
                async with waits.lease():
                    pass

            group.start_soon(one)
            while not [*(place / "local").glob("*.log")] or not log(place):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    anyio.run(impatient)

    assert ended(log(place)[0]["pid"])
    assert running(place) == []


@pytest.mark.slow
def test_one_that_dies_while_loading_is_told_in_its_own_words(place: Path) -> None:
    served = server(place, "fail")

    with pytest.raises(Refused, match="load_model: failed to load model") as found:
        used(served)

    assert str(place / "local") in str(found.value)
    assert not served.running


def test_a_program_that_is_not_there_is_told(place: Path) -> None:
    served = SharedServer(
        place / "model.gguf", place / "local", command=("/no/such/program",)
    )

    with pytest.raises(Refused, match="/no/such/program"):
        used(served)


@pytest.mark.slow
def test_a_prefix_is_read_once_and_restored_by_each_later_server(place: Path) -> None:
    used(server(place), "You are brief.")
    read = log(place)[1:]
    stop(running(place)[0])

    used(server(place), "You are brief.")

    (saved,) = (place / "local/prefixes").glob("*.bin")
    system, user = (
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": ""},
    )
    asked = {"messages": [system, user], "max_tokens": 1, "id_slot": 0}
    restored = [path for path, _, _ in log(place)[1:]]
    assert restored[0] == "/slots/0?action=restore"
    assert {path.partition("?")[2] for path in restored} == {"action=restore"}
    assert read[:2] == [
        ["/v1/chat/completions", True, asked],
        ["/slots/0?action=save", True, {"filename": saved.name}],
    ]
    assert [path for path, _, _ in read[2:]] == restored
    assert stat.S_IMODE(saved.stat().st_mode) & 0o077 == 0


@pytest.mark.slow
def test_a_saved_prefix_that_cannot_be_restored_is_removed_and_costs_only_time(
    place: Path,
) -> None:
    used(server(place, "forgets"), "You are brief.")

    assert [*(place / "local/prefixes").glob("*.bin")] == []
    assert len(running(place)) == 1


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (ServerFacts(), ""),
        (ServerFacts(idle=59.0), ""),
        (ServerFacts(idle=60.0), "unused for 60 s"),
        (ServerFacts(idle=60.0, in_use=True), ""),
        (ServerFacts(memory=0.04), "memory is short"),
        (ServerFacts(memory=0.04, in_use=True), ""),
        (ServerFacts(logged_in=False, in_use=True), "the user has logged out"),
        (ServerFacts(recorded=False, in_use=True), "its record is gone"),
    ],
)
def test_server_ends_for_each_reason(seen: ServerFacts, reason: str) -> None:
    assert reason_to_end(seen, keep=60.0) == reason
