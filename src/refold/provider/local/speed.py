"""How fast an embedded model reads and writes on this machine, as llama.cpp measures it."""

import urllib.error
import urllib.request
from functools import partial

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct

from refold.errors import Unreachable
from refold.provider.local.server import Address, Server

_SECONDS = 120.0
_WRITTEN_TOKENS = 32
_TEXT = "Explain in a few sentences how a bicycle stays upright while it moves. " * 8


class Speed(Struct, frozen=True):
    """Tokens per second."""

    reading: float
    writing: float


async def measure_speed(server: Server) -> Speed:
    """Let the model read a short text and write a few words.

    Raises `Refused` if its server does not start, and `Unreachable` if it does not answer.
    """
    async with server.lease() as address:
        return await anyio.to_thread.run_sync(partial(_ask, address))


class _Timings(Struct, frozen=True):
    prompt_per_second: float
    predicted_per_second: float


class _Answer(Struct, frozen=True):
    timings: _Timings


def _ask(address: Address) -> Speed:
    body = {
        "messages": [{"role": "user", "content": _TEXT}],
        "max_tokens": _WRITTEN_TOKENS,
        "temperature": 0,
        "cache_prompt": False,
    }
    request = urllib.request.Request(
        f"{address.url}/v1/chat/completions",
        msgspec.json.encode(body),
        {"Authorization": f"Bearer {address.key}", "Content-Type": "application/json"},
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=_SECONDS) as answer:
            timings = msgspec.json.decode(answer.read(), type=_Answer).timings
    except urllib.error.HTTPError as error:
        with error:
            raise Unreachable(f"its speed cannot be measured: {error}") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise Unreachable(f"its speed cannot be measured: {error}") from error
    return Speed(timings.prompt_per_second, timings.predicted_per_second)
