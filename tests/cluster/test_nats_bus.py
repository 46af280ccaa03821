"""NATS carries live documents: the contract of `Bus`, an outage, and logins with permissions."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import ObjectReceiveStream

from refold.errors import BadInput
from refold.testing import BusContract
from tests.cluster.servers import LoopbackServer, nats_server

pytest.importorskip("nats", reason="refold[cluster] is not installed")
from refold.cluster.nats_bus import NatsBus  # after the check

pytestmark = [pytest.mark.anyio, pytest.mark.peer]
_USERS = """
authorization { users = [
  {user: worker, password: w, permissions: {publish: "refold.worker.>", subscribe: "refold.web.>"}}
  {user: web, password: s, permissions: {publish: "refold.web.>", subscribe: "refold.worker.>"}}
] }
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def server() -> Generator[LoopbackServer]:
    with nats_server(_USERS) as started:
        yield started


@asynccontextmanager
async def running(*buses: NatsBus) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as group:
        for bus in buses:
            group.start_soon(bus.run)
        yield
        group.cancel_scope.cancel()


def worker_and_web(server: LoopbackServer) -> tuple[NatsBus, NatsBus]:
    return (
        NatsBus("default", f"nats://worker:w@{server.address}", "worker"),
        NatsBus("default", f"nats://web:s@{server.address}", "web"),
    )


class TestNatsBus(BusContract):
    @pytest.fixture
    async def buses(
        self, server: LoopbackServer
    ) -> AsyncGenerator[tuple[NatsBus, NatsBus]]:
        buses = worker_and_web(server)
        async with running(*buses):
            yield buses


async def receive_rest(documents: ObjectReceiveStream[bytes]) -> list[bytes]:
    received = list[bytes]()
    with anyio.move_on_after(0.1):
        while True:
            received.append(await documents.receive())
    return received


async def receive_again(
    worker: NatsBus, web: NatsBus, server: LoopbackServer, *, restart: bool
) -> list[bytes]:
    documents = list[bytes]()
    async with web.follow("a") as stream, anyio.create_task_group() as group:

        async def publish() -> None:
            while True:
                await worker.publish("a", b'"news"')
                await anyio.sleep(0.02)

        group.start_soon(publish)
        with anyio.fail_after(20):
            documents.append(await stream.receive())
            if restart:
                server.kill()
                await anyio.sleep(0.1)
                await receive_rest(stream)
                server.start()
                documents.append(await stream.receive())
        group.cancel_scope.cancel()
    return documents


async def test_nats_delivers_documents_again_after_its_server_was_killed_and_restarted(
    server: LoopbackServer,
) -> None:
    worker, web = worker_and_web(server)
    async with running(worker, web):
        documents = await receive_again(worker, web, server, restart=True)

    assert documents == [b'"news"'] * 2


async def test_a_node_that_starts_before_the_nats_server_connects_later(
    server: LoopbackServer,
) -> None:
    worker, web = worker_and_web(server)
    server.kill()
    async with running(worker, web):
        async with web.follow("a"):
            await worker.publish("a", b'"lost"')
            server.start()

        assert await receive_again(worker, web, server, restart=False) == [b'"news"']


async def test_an_outage_of_nats_is_reported_once_and_its_end_once(
    server: LoopbackServer,
) -> None:
    lines = list[str]()
    url = f"nats://worker:w@{server.address}"
    worker = NatsBus("default", url, "worker", lines.append)
    web = NatsBus("default", f"nats://web:s@{server.address}", "web")
    async with running(worker, web):
        await receive_again(worker, web, server, restart=False)  # it is connected
        for _ in range(2):
            server.kill()
            await anyio.sleep(1.5)  # it tries to connect again and again meanwhile
            server.start()
            await receive_again(worker, web, server, restart=False)

    assert [line.partition(":")[0].split(" at ")[0] for line in lines] == ["NATS"] * 4
    place = f"NATS at {server.address}"
    assert lines[0].startswith(f"{place} cannot be reached: ")
    assert lines[1::2] == [f"{place} can be reached again"] * 2
    assert lines[2].startswith(f"{place} cannot be reached: ")


async def test_the_nats_login_of_a_web_node_cannot_publish_documents(
    server: LoopbackServer,
) -> None:
    worker, web = worker_and_web(server)
    problems = list[str]()
    stolen = f"nats://web:s@{server.address}"
    forger = NatsBus("default", stolen, "worker", problems.append)
    async with running(worker, web, forger), web.follow("a") as documents:
        with anyio.fail_after(10):
            while not problems:
                await forger.publish("a", b'"forged"')
                await anyio.sleep(0.02)
            for _ in range(50):
                await worker.publish("a", b'"true"')
                await anyio.sleep(0.01)
        received = await receive_rest(documents)

    assert set(received) == {b'"true"'}
    assert "permissions violation" in problems[0].lower()


def test_a_url_of_a_server_other_than_nats_is_refused_without_quoting_its_password() -> (
    None
):
    with pytest.raises(BadInput, match="'http' does not begin the URL of a NATS server"):
        NatsBus("default", "http://me:secret@host", "web")
