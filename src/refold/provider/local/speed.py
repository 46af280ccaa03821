"""Measures how fast an embedded model reads and writes tokens on this machine.

llama.cpp reports the numbers.
"""

import msgspec
from msgspec import Struct

from refold.errors import ProviderError, Unreachable
from refold.provider.api_client import Http
from refold.provider.error_mapping import Peer
from refold.provider.http import Bounds
from refold.provider.local.server import Address, Server

_MEASURE_TIMEOUT_SECONDS = 120.0
_MEASURED_TOKENS = 32
_MAX_ANSWER_BYTES = 1_000_000
_PROMPT_TEXT = "Explain in a few sentences how a bicycle stays upright while it moves. " * 8


class Speed(Struct, frozen=True):
    """The speed of a model in tokens per second."""

    reading: float
    writing: float


async def measure_speed(server: Server) -> Speed:
    """Measure the speed with a short text to read and a few words to write.

    Raises `Refused` if the server does not start, and `Unreachable` if it does not answer.
    """
    async with server.lease() as address:
        return await _ask(address)


class _Timings(Struct, frozen=True):
    prompt_per_second: float
    predicted_per_second: float


class _Answer(Struct, frozen=True):
    timings: _Timings


async def _ask(address: Address) -> Speed:
    """Measure the speed of the server at this address. Raises `Unreachable`."""
    body = {
        "messages": [{"role": "user", "content": _PROMPT_TEXT}],
        "max_tokens": _MEASURED_TOKENS,
        "temperature": 0,
        "cache_prompt": False,
    }
    peer = Peer("llama.cpp", address.url)
    headers = {"Authorization": f"Bearer {address.key}"}
    http = Http(
        peer, headers, secret=address.key, bounds=Bounds(idle=_MEASURE_TIMEOUT_SECONDS)
    )
    try:
        async with http.post("/v1/chat/completions", msgspec.json.encode(body)) as answer:
            content, _ = await answer.content(_MAX_ANSWER_BYTES)
        timings = msgspec.json.decode(content, type=_Answer).timings
    except (ProviderError, msgspec.MsgspecError) as error:
        raise Unreachable(f"its speed cannot be measured: {error}") from error
    finally:
        await http.aclose()
    return Speed(timings.prompt_per_second, timings.predicted_per_second)
