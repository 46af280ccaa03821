"""How fast an embedded model is, as its server measures it and as `refold doctor` says it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from refold.errors import Unreachable
from refold.provider.local.server import Address
from refold.provider.local.speed import Speed, measure_speed
from refold.testing.wire_server import Answer, ReceivedRequest, wire_server

TIMINGS = (
    b'{"choices":[],"timings":{"prompt_per_second":60.5,"predicted_per_second":12.25}}'
)


class Running:
    running = True

    def __init__(self, url: str) -> None:
        self._url = url

    @asynccontextmanager
    async def lease(self, prefix: str = "") -> AsyncGenerator[Address, None]:
        yield Address(self._url, f"the-key{prefix}")


def measure(answer: Answer) -> tuple[Speed, ReceivedRequest]:
    async def converse() -> tuple[Speed, ReceivedRequest]:
        async with wire_server(answer) as server:
            return await measure_speed(Running(server.url)), server.heard[0]

    return anyio.run(converse)


def test_speed_is_what_the_server_measured_for_a_short_text() -> None:
    speed, request = measure(Answer(TIMINGS, headers={"content-type": "application/json"}))

    assert speed == Speed(reading=60.5, writing=12.25)
    assert request.headers["authorization"] == "Bearer the-key"
    body = msgspec.json.decode(request.body)
    assert (body["max_tokens"], body["cache_prompt"]) == (32, False)


@pytest.mark.parametrize("answer", [Answer(b"{}"), Answer(b"no", status=500)])
def test_server_without_speed_measurements_is_an_error(answer: Answer) -> None:
    with pytest.raises(Unreachable, match="its speed cannot be measured: "):
        measure(answer)
