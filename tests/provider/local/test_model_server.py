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
    """Yield a directory with a model; its server is stopped with the test."""
    (tmp_path / "model.gguf").write_bytes(b"a model")
    yield tmp_path
    for status in running(tmp_path):
        stop(status)


def server(
    place: Path, behaviour: str = "", keep: float = 60.0, **options: Any
) -> SharedServer:
    command = (sys.executable, str(PRETENDING), behaviour)
    serving = Serving(keep=keep, context=512, template="{{ messages }}")
    environ = options.pop("environ", dict(os.environ))
    return SharedServer(
        place / "model.gguf", place / "local", serving, command=command, environ=environ
    )


def running(place: Path) -> list[ServerStatus]:
    return list(running_servers(place / "local", time.time()))


def lease_once(server: SharedServer, prefix: str = "") -> Address:
    async def once() -> Address:
        async with server.lease(prefix) as address:
            return address

    return anyio.run(once)


def read_log(place: Path) -> list[Any]:
    """Return the log of the newest server: lines of its start, then the requests."""
    (path,) = (place / "local").glob("*.log")
    return [json.loads(line) for line in path.read_text().splitlines()]


def wait_until_gone(pid: int, within: float = 10.0) -> bool:
    until = time.monotonic() + within
    while process_start(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not process_start(pid)


@pytest.mark.slow
def test_all_sessions_share_one_model_server(place: Path) -> None:
    first, second = server(place), server(place)
    assert not second.running

    addresses = lease_once(first), lease_once(second)

    assert addresses[0] == addresses[1]
    assert second.running
    (status,) = running(place)
    assert (status.record.pid, status.in_use) == (read_log(place)[0]["pid"], False)


@pytest.mark.slow
def test_sessions_that_start_together_wait_for_one_model_server(place: Path) -> None:
    addresses: list[Address] = []

    async def open_all() -> None:
        async def one() -> None:
            async with server(place, "silent").lease() as address:
                addresses.append(address)

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)
            group.start_soon(one)
            (place / "go").touch()

    anyio.run(open_all)

    assert len(addresses) == 3
    assert len(set(addresses)) == 1


@pytest.mark.slow
def test_model_server_files_are_readable_by_their_owner_only(place: Path) -> None:
    lease_once(server(place))

    modes = {
        path.name.partition(".")[2]: stat.S_IMODE(path.stat().st_mode)
        for path in (place / "local").iterdir()
    }

    assert modes == {"json": 0o600, "lock": 0o600, "log": 0o600, "use": 0o600}
    assert stat.S_IMODE((place / "local").stat().st_mode) == 0o700


@pytest.mark.slow
def test_model_server_environment_holds_no_api_keys(place: Path) -> None:
    environ = {"HOME": "/h", "PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-secret"}
    if path := os.environ.get("PYTHONPATH"):
        environ["PYTHONPATH"] = path

    address = lease_once(server(place, environ=environ))

    start_record = read_log(place)[0]
    order = start_record["order"]
    assert (order["model"], order["context"]) == (str(place / "model.gguf"), 512)
    assert (order["template"], order["key"]) == ("{{ messages }}", address.key)
    assert order["threads"] >= 1
    known = {"HOME", "PATH", "OMP_WAIT_POLICY", "PYTHONPATH", "LC_CTYPE"}
    assert set(start_record["environ"]) <= known
    assert start_record["environ"]["OMP_WAIT_POLICY"] == "passive"
    assert start_record["cwd"] == str(place)


@pytest.mark.slow
def test_model_server_exits_some_time_after_its_last_use(place: Path) -> None:
    lease_once(server(place, keep=0.5))
    (status,) = running(place)

    assert wait_until_gone(status.record.pid)
    assert running(place) == []
    assert not status.path.exists()


@pytest.mark.slow
def test_model_server_does_not_exit_while_in_use(place: Path) -> None:
    async def long() -> bool:
        async with server(place, keep=0.1).lease():
            (status,) = running(place)
            assert status.in_use
            return await anyio.to_thread.run_sync(wait_until_gone, status.record.pid, 2.5)

    assert anyio.run(long) is False


@pytest.mark.slow
def test_model_server_exits_when_its_files_are_removed(place: Path) -> None:
    lease_once(server(place))
    (status,) = running(place)

    shutil.rmtree(place / "local")

    assert wait_until_gone(status.record.pid)


@pytest.mark.slow
def test_killed_model_server_is_restarted_with_another_key(place: Path) -> None:
    first = lease_once(server(place))
    (status,) = running(place)
    os.kill(status.record.pid, signal.SIGKILL)
    assert wait_until_gone(status.record.pid)

    second = lease_once(server(place))

    assert second.key != first.key
    (again,) = running(place)
    assert again.record.pid != status.record.pid


@pytest.mark.slow
def test_changed_model_file_gets_a_new_server(place: Path) -> None:
    first = lease_once(server(place))
    (place / "model.gguf").write_bytes(b"a newer model")

    second = lease_once(server(place))

    assert first.url != second.url
    assert len(running(place)) == 2


@pytest.mark.slow
def test_stopping_kills_a_model_server_that_is_in_use(place: Path) -> None:
    async def main() -> None:
        async with server(place).lease():
            (status,) = running(place)
            await anyio.to_thread.run_sync(stop, status)
            assert process_start(status.record.pid) == ""

    anyio.run(main)

    assert running(place) == []


@pytest.mark.slow
def test_cancelled_wait_for_a_loading_model_server_kills_it(place: Path) -> None:
    async def impatient() -> None:
        waits = server(place, "silent")
        async with anyio.create_task_group() as group:

            async def one() -> None:
                async with waits.lease():
                    pass

            group.start_soon(one)
            while not [*(place / "local").glob("*.log")] or not read_log(place):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    anyio.run(impatient)

    assert wait_until_gone(read_log(place)[0]["pid"])
    assert running(place) == []


@pytest.mark.slow
def test_model_server_that_fails_while_loading_is_reported_with_its_output(
    place: Path,
) -> None:
    served = server(place, "fail")

    with pytest.raises(Refused, match="load_model: failed to load model") as error:
        lease_once(served)

    assert str(place / "local") in str(error.value)
    assert not served.running


def test_missing_model_server_program_is_named_in_the_error(place: Path) -> None:
    served = SharedServer(
        place / "model.gguf", place / "local", command=("/no/such/program",)
    )

    with pytest.raises(Refused, match="/no/such/program"):
        lease_once(served)


@pytest.mark.slow
def test_prompt_prefix_is_computed_once_and_restored_by_later_servers(place: Path) -> None:
    lease_once(server(place), "You are brief.")
    read = read_log(place)[1:]
    stop(running(place)[0])

    lease_once(server(place), "You are brief.")

    (saved,) = (place / "local/prefixes").glob("*.bin")
    system, user = (
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": ""},
    )
    data = {"messages": [system, user], "max_tokens": 1, "id_slot": 0}
    restored = [path for path, _, _ in read_log(place)[1:]]
    assert restored[0] == "/slots/0?action=restore"
    assert {path.partition("?")[2] for path in restored} == {"action=restore"}
    assert read[:2] == [
        ["/v1/chat/completions", True, data],
        ["/slots/0?action=save", True, {"filename": saved.name}],
    ]
    assert [path for path, _, _ in read[2:]] == restored
    assert stat.S_IMODE(saved.stat().st_mode) & 0o077 == 0


@pytest.mark.slow
def test_saved_prefix_that_cannot_be_restored_is_removed_and_the_server_starts(
    place: Path,
) -> None:
    lease_once(server(place, "forgets"), "You are brief.")

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
def test_model_server_exits_for_each_reason(seen: ServerFacts, reason: str) -> None:
    assert reason_to_end(seen, keep=60.0) == reason
