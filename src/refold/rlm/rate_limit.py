"""A limit of model calls per minute for each provider: a call above it waits."""

from collections import defaultdict, deque

import anyio

_MINUTE_SECONDS = 60.0


class RateLimit:
    """A limit for all code that calls models; 0 means no limit."""

    def __init__(self, per_minute: int = 0) -> None:
        self._most = per_minute
        self._times = defaultdict[str, deque[float]](deque)  # by provider

    async def wait(self, model: str) -> None:
        """Wait until `model`, as provider/model, may be called; the call is counted at once."""
        times = self._times[model.partition("/")[0]]
        while self._most:
            now = anyio.current_time()
            while times and times[0] <= now - _MINUTE_SECONDS:
                times.popleft()
            if len(times) < self._most:
                times.append(now)
                return
            await anyio.sleep(times[0] + _MINUTE_SECONDS - now)
